"""How much longer one waits: from how long like requests waited, from what rules and notices bound,
or nothing, and then it says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.estimates.wait_history import SimilarRequests, WaitEstimate
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service import wait_estimates
from jupyter_gpushare.scheduler.service.wait_text import about, by_history
from jupyter_gpushare.scheduler.store.past_waits import past_waits
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness

POLICY = """
departments: [{name: research, pools: {default: {gpu: {quota: 2}}}}]
projects:
  - name: vision
    department: research
    members: [alice, carol]
    pools: {default: {gpu: {quota: 2}}}
  - name: guests
    department: research
    members: [alice]
    pools: {default: {gpu: {quota: 0, limit: 2}}}
defaults: {notice: 20s}
"""
RULES = POLICY.replace(
    "defaults: {notice: 20s}", "defaults: {notice: 20s, rules: {max_running: 2h}}"
)
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
CAROL = Identity("carol", (), "person")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A projection ends when it is complete, however slow the machine is."""
    monkeypatch.setattr(wait_estimates, "BUDGET", float("inf"))


class Queue(SchedulerHarness):
    """A scheduler, days after the epoch, so that there is a past."""

    policy = POLICY

    def start(self) -> None:
        self.time = max(self.time, 30 * 24 * HOUR)
        super().start()
        self.service.use_policy(parse_policy(self.policy))

    def wait(self, ms: int) -> None:
        self.time += ms
        self.service.tick(self.time)
        self.service.run_cycle()

    def end(self, id_: str) -> None:
        self.service.end(ALICE, id_)
        self.service.run_cycle()

    def expected(self, id_: str) -> m.ExpectedWait | None:
        return self.service.queries.workload(ALICE, id_).expected_wait

    def would(self, gpu: object = 2, **more: object) -> m.WhatIfAnswer:
        return self.service.what_if(
            ALICE, m.WorkloadRequest(id="asked", pods=[m.PodRequest(gpu=gpu)], **more)
        )

    def happened(self, times: int, waited: int) -> None:
        """So often somebody waited for so long for both GPUs, and then got and ended them."""
        for _ in range(times):
            number = self.service.unit_of_work.revision
            self.ask(f"holder{number}", 2)
            self.ask(f"waiter{number}", 2)
            self.wait(waited)
            self.end(f"holder{number}")
            self.end(f"waiter{number}")


@pytest.fixture
def scheduler(database: Database) -> Iterator[Queue]:
    made = Queue(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


@pytest.fixture
def ruled(database: Database) -> Iterator[Queue]:
    class Ruled(Queue):
        policy = RULES

    made = Ruled(database.url)
    yield made.joined()
    made.close()


def test_it_goes_by_like_requests_of_the_last_day(scheduler: Queue):
    scheduler.happened(9, 6 * MINUTE)
    scheduler.ask("holder", 2)
    found = scheduler.ask("w", 2).expected_wait
    assert (found.basis, found.seconds_median, found.seconds_p90, found.based_on) == (
        "history",
        360,
        360,
        9,
    )
    assert (
        found.message == "Expected remaining wait: about 6 min "
        '(based on 9 similar requests in the last 24 h in pool "default").'
    )
    asked = scheduler.would().expected_wait
    assert (asked.basis, asked.based_on) == ("history", 9)
    assert asked.seconds_median == 2 * 360, "it would queue behind the pending one"


def test_a_restart_forgets_nothing_of_it(scheduler: Queue):
    scheduler.happened(8, 6 * MINUTE)
    scheduler.ask("holder", 2)
    scheduler.ask("given up", 2)
    scheduler.wait(HOUR)
    scheduler.end("given up")
    scheduler.end("holder")
    scheduler.happened(1, 7 * MINUTE)
    scheduler.ask("holder2", 2)
    before = scheduler.ask("w", 2).expected_wait
    scheduler.start()
    scheduler.joined()
    assert scheduler.expected("w") == before
    assert before.based_on == 9
    assert before.seconds_p90 is None, (
        "of ten like it one gave up after an hour, so nine in ten are unknown"
    )


def test_a_second_grant_is_not_the_end_of_the_first_wait(ruled: Queue):
    """Read back from the store: what was evicted and granted again has waited once, for its first
    lease.
    """
    view = ruled.ask("a", 1)
    lease, begun = view.pods[0].lease, ruled.time
    with ruled.store.transaction() as write:
        write.lease_ended(lease.id, begun + MINUTE)
        write.granted([replace(lease, id=lease.id + "-again")], begun + HOUR)
        write.granted([replace(lease, id="other@1", workload="unknown")], begun)
    ruled.ask("gone", 2)
    ruled.time += HOUR
    ruled.end("gone")
    assert [
        (one.id, one.begun, one.ended, one.pool) for one in past_waits(ruled.store, begun - 1, 10)
    ] == [("a", begun, begun, "default"), ("gone", begun, begun + HOUR, None)]
    assert [one.id for one in past_waits(ruled.store, begun + 1, 10)] == ["gone"], (
        "not what was granted before the time that is asked about"
    )
    assert [one.id for one in past_waits(ruled.store, begun - 1, 1)] == ["gone"], (
        "the newest first, when there are too many"
    )


def test_what_has_been_waited_counts(scheduler: Queue):
    scheduler.happened(9, 6 * MINUTE)
    scheduler.ask("holder", 2)
    scheduler.ask("w", 2)
    scheduler.wait(4 * MINUTE)
    assert scheduler.expected("w").seconds_median == 120
    scheduler.wait(3 * MINUTE)
    found = scheduler.expected("w")
    assert (found.basis, found.seconds_median) == ("none", None)
    assert (
        found.message
        == "Expected wait unknown: it has waited longer than similar requests of the last 7 days."
    )


def test_it_is_published_again_as_time_passes(scheduler: Queue):
    scheduler.happened(9, 6 * MINUTE)
    scheduler.ask("holder", 2)
    scheduler.ask("w", 2)
    scheduler.listener.frames.clear()
    for _ in range(5 * 60):
        scheduler.wait(SECOND)
        for _ in scheduler.service.pending_status.publish_changes():
            pass
    told = [
        frame.workload
        for frame in scheduler.listener.frames
        if isinstance(frame, m.WorkloadChanged) and frame.workload.id == "w"
    ]
    said = [view.expected_wait.message.partition(" (")[0] for view in told]
    assert said[-1] == "Expected remaining wait: about 1 min"
    assert said == list(dict.fromkeys(said)), "only what is new is said"
    assert len(told) <= 6


def test_too_few_say_nothing(scheduler: Queue):
    scheduler.happened(4, 6 * MINUTE)
    scheduler.ask("holder", 2)
    found = scheduler.ask("w", 2).expected_wait
    assert (found.basis, found.seconds_median, found.seconds_p90, found.seconds_at_most) == (
        "none",
        None,
        None,
        None,
    )
    assert (
        found.message
        == 'Expected wait unknown: too few requests have waited in pool "default" recently.'
    )


def test_what_starts_at_once_waits_for_nothing(scheduler: Queue):
    assert scheduler.would().expected_wait is None
    assert scheduler.ask("a", 2).expected_wait is None


def test_what_can_never_start_has_no_time(scheduler: Queue):
    scheduler.happened(9, 6 * MINUTE)
    asked = scheduler.ask("w", 16, queue_anyway=True)
    assert asked.expected_wait is None, "the reason says that it cannot start"
    assert asked.reason.message.startswith("Cannot start: ")
    assert scheduler.would(16).expected_wait is None


def test_requests_that_wait_for_their_own_project_have_no_estimate(scheduler: Queue):
    scheduler.happened(9, 6 * MINUTE)
    scheduler.ask("g", 2, project="guests")
    found = scheduler.ask("w", 1, project="guests").expected_wait
    assert found.basis == "none"
    assert "until project guests" in found.message


def test_what_is_larger_than_its_projects_limit_never_starts(scheduler: Queue):
    scheduler.service.use_policy(parse_policy(POLICY.replace("limit: 2", "limit: 1")))
    assert scheduler.would(2, project="guests").expected_wait is None


def test_who_is_promised_a_place_waits_for_a_notice_at_most(scheduler: Queue):
    scheduler.ask("g", 2, project="guests")
    asked = scheduler.would().expected_wait
    view = scheduler.ask("w", 2)
    assert view.reason.code == "WaitingForReclaim"
    assert (
        (asked.basis, asked.seconds_at_most)
        == (view.expected_wait.basis, view.expected_wait.seconds_at_most)
        == ("rules", 50)
    )
    scheduler.wait(30 * SECOND)
    assert scheduler.expected("w").seconds_at_most == 20


def test_the_longest_running_time_of_others_is_a_bound(ruled: Queue):
    ruled.ask("r1", 1)
    ruled.wait(30 * MINUTE)
    ruled.ask("r2", 1)
    ruled.ask("w", 1)
    ruled.ask("x", 1)
    ruled.wait(40 * SECOND)
    in_line = [ruled.expected(id_).seconds_at_most for id_ in ("w", "x")]
    assert in_line == [90 * 60 - 40 + 30, 2 * 3600 - 40 + 30]
    assert (
        ruled.expected("w").message
        == "At most 1.5 h: running workloads reach their time limit by then, "
        "unless other requests go first."
    )
    asked = ruled.would(1).expected_wait
    assert (asked.basis, asked.seconds_at_most) == ("none", None), (
        "the two who wait may keep what they get for longer than is foreseen"
    )
    ruled.service.end(ALICE, "x")
    assert ruled.would(1).expected_wait.seconds_at_most == 2 * 3600 - 40 + 30


def test_a_guess_is_never_later_than_the_bound(ruled: Queue):
    ruled.happened(9, HOUR)
    ruled.ask("r", 2)
    ruled.wait(HOUR + 45 * MINUTE)
    ruled.ask("w", 2)
    ruled.wait(40 * SECOND)
    found = ruled.expected("w")
    assert (found.basis, found.seconds_at_most) == ("history", 15 * 60 + 30 - 40)
    assert found.seconds_median == found.seconds_p90 == found.seconds_at_most


WORDS = {
    0: "under 1 min",
    44_000: "under 1 min",
    MINUTE: "1 min",
    11 * MINUTE: "11 min",
    13 * MINUTE: "15 min",
    80 * MINUTE: "80 min",
    2 * HOUR: "2 h",
    2 * HOUR + 20 * MINUTE: "2.5 h",
    30 * HOUR: "30 h",
    50 * HOUR: "2 days",
}


@pytest.mark.parametrize(("ms", "words"), WORDS.items())
def test_times_are_said_no_more_exactly_than_they_are_known(ms: int, words: str):
    assert about(ms) == words


def test_nine_in_ten_are_said_where_that_says_more():
    said = by_history(
        SimilarRequests(WaitEstimate(6 * MINUTE, 25 * MINUTE, 14), 500, 1),
        "t4",
        0,
        None,
        waits=True,
    ).message
    assert (
        said == "Expected remaining wait: about 6 min, at most 25 min in 9 of 10 cases "
        '(based on 14 similar requests in the last 24 h in pool "t4").'
    )


def test_an_unknown_ninetieth_percentile_is_stated():
    said = by_history(
        SimilarRequests(WaitEstimate(20 * SECOND, None, 6), None, 7), "a100", 0, None, waits=False
    ).message
    assert (
        said == "Expected wait: under 1 min, possibly much longer "
        '(based on 6 requests of any size in the last 7 days in pool "a100").'
    )


# -- a new name --


def renamed(scheduler: Queue, id_: str, name: str) -> m.WorkloadView:
    return scheduler.service.rename(ALICE, id_, m.WorkloadName(name=name))


def test_a_workload_is_called_by_its_new_name_everywhere(scheduler: Queue):
    lease = scheduler.ask("a", 1, name="old.ipynb").pods[0].lease
    assert renamed(scheduler, "a", "new.ipynb").name == "new.ipynb"
    order = scheduler.listener.orders[-1]
    assert (order.lease.id, order.lease.name, order.lease.planned_gpus) == (
        lease.id,
        "new.ipynb",
        lease.planned_gpus,
    )
    assert scheduler.listener.frames[-1].workload.name == "new.ipynb"
    scheduler.start()
    scheduler.joined()
    assert (
        scheduler.service.queries.workload(ALICE, "a").name
        == scheduler.service.queries.workload(ALICE, "a").pods[0].lease.name
        == "new.ipynb"
    )
    assert scheduler.service.queries.workload(CAROL, "a").name == "", (
        "a notebook's name is its owner's"
    )


def test_a_pending_workload_is_renamed_too(scheduler: Queue):
    scheduler.ask("a", 2)
    scheduler.ask("w", 2, name="old.ipynb")
    renamed(scheduler, "w", "new.ipynb")
    assert [row.name for row in scheduler.service.queries.waiting(ALICE).waiting] == ["new.ipynb"]
    assert [row.name for row in scheduler.service.queries.waiting(CAROL).waiting] == [""]


def test_the_same_name_again_changes_nothing(scheduler: Queue):
    scheduler.ask("a", 1, name="old.ipynb")
    first = renamed(scheduler, "a", "new.ipynb")
    orders = len(scheduler.listener.orders)
    assert renamed(scheduler, "a", "new.ipynb") == first
    assert len(scheduler.listener.orders) == orders


def test_asking_again_under_the_old_name_is_still_asking_once(scheduler: Queue):
    scheduler.ask("a", 1, name="old.ipynb")
    renamed(scheduler, "a", "new.ipynb")
    assert scheduler.ask("a", 1, name="old.ipynb").name == "new.ipynb"


def test_a_name_that_cannot_be_kept_is_refused(scheduler: Queue):
    scheduler.ask("a", 1, name="old.ipynb")
    for name in ("n" * 1001, "zero\0"):
        with pytest.raises(InvalidInput) as refused:
            renamed(scheduler, "a", name)
        assert refused.value.field == "name"
    assert scheduler.service.queries.workload(ALICE, "a").name == "old.ipynb"


def test_others_work_and_what_is_over_is_not_renamed(scheduler: Queue):
    scheduler.ask("a", 1)
    with pytest.raises(NotAllowed):
        scheduler.service.rename(CAROL, "a", m.WorkloadName(name="mine"))
    scheduler.end("a")
    with pytest.raises(NotFound):
        renamed(scheduler, "a", "late.ipynb")
