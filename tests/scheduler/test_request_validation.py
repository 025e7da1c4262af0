"""Invalid requests are refused with the field; long and odd texts are stored as far as possible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput, NotFound
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url).joined()
    yield scheduler
    scheduler.close()
    check_invariants(database.url)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"kernel_id": "k" * 5000}, "kernel_id"),
        ({"kernel_id": "k\0"}, "kernel_id"),
        ({"name": "n\0"}, "name"),
    ],
)
def test_names_that_no_database_keeps_are_refused(scheduler: SchedulerHarness, more, field):
    with pytest.raises(InvalidInput) as caught:
        scheduler.ask("x", **more)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "id_", ["\N{GRINNING FACE}" * 1000, "a\0b"], ids=["four bytes each", "a zero"]
)
def test_ids_that_no_database_keeps_are_refused(scheduler: SchedulerHarness, id_: str):
    with pytest.raises(InvalidInput) as caught:
        scheduler.ask(id_)
    assert caught.value.field == "id"
    with pytest.raises(NotFound):
        scheduler.service.end(ALICE, id_)


def test_what_somebody_says_with_a_zero_in_it_is_kept_as_far_as_it_can_be(
    scheduler: SchedulerHarness,
):
    """The message of an agent must not keep a lease from ending."""
    lease = scheduler.ask("a").pods[0].lease
    scheduler.service.agent_report(
        "n0", m.LeaseReleased(lease=lease.id, ended=True, message="Ended\0.")
    )
    assert scheduler.leases() == []
    assert scheduler.store.is_ended("a")


def test_the_longest_id_is_kept_with_its_lease(scheduler: SchedulerHarness):
    """The lease's id is longer still, and all of it stands in indexes."""
    id_ = "".join(chr(0x4E00 + i % 2000) for i in range(660))
    scheduler.ask(id_)
    scheduler.start()
    assert [lease.workload for lease in scheduler.leases()] == [id_]


REFUSED = {
    "negative": ({"gpu": -1}, InvalidInput, "gpu"),
    "not a number": ({"gpu": "nan"}, InvalidInput, "gpu"),
    "far too many": ({"gpu": 7e9}, InvalidInput, "gpu"),
    "one and a half": ({"gpu": 1.5}, InvalidInput, "gpu"),
    "limit below request": ({"gpu": 0.5, "gpu_limit": 0.2}, InvalidInput, "gpu_limit"),
    "memory without a unit": ({"gpu_memory": 20}, InvalidInput, "gpu_memory"),
    "both forms": ({"gpu": 0.5, "gpu_memory": "1GiB"}, InvalidInput, "gpu_memory"),
}


@pytest.mark.parametrize(("pod", "error", "field"), REFUSED.values(), ids=REFUSED)
def test_nonsense_is_refused_with_its_field(scheduler: SchedulerHarness, pod, error, field):
    with pytest.raises(error) as caught:
        scheduler.service.submit(ALICE, m.WorkloadRequest(id="x", pods=[m.PodRequest(**pod)]))
    assert caught.value.field == field
    assert scheduler.service.unit_of_work.records == {}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"project": "nowhere"}, "project"),
        ({"node_pools": ["nowhere"]}, "node_pools"),
        ({"priority_class": "nowhere"}, "priority_class"),
    ],
)
def test_unknown_names_are_refused_with_those_there_are(scheduler: SchedulerHarness, more, field):
    with pytest.raises(InvalidInput, match="known:") as caught:
        scheduler.ask("x", **more)
    assert caught.value.field == field
