"""Time-based fair share in the service: usage from the leases in the store, through restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.events import UsageMeasured
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.metering import LeaseSpan, usage_facts
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.databases import Database

HOUR = 3_600_000
POLICY = """
node_pools: [{name: default, time_based_fairshare: {window: 10h}}]
departments: [{name: d}]
projects: [{name: a, department: d}, {name: b, department: d}]
"""
ALICE = Identity("alice", (), "person")


class Silent:
    """Hears announcements and orders, and does nothing."""

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...

    def send(self, order: m.ToAgent) -> None: ...


class SchedulerHarness:
    """A service on a database with a node of two GPUs; its time is in hours."""

    def __init__(self, url: str) -> None:
        self.url, self.hours = url, 100.0
        self.store: Store | None = None
        self.start()
        devices = [
            m.DeviceReport(index=i, uuid=f"SIM-{i}", model="Simulated", total_mib=80 * 1024)
            for i in range(2)
        ]
        hello = m.AgentHello(
            version="1", node=m.NodeReport(name="n0", simulated=True, devices=devices)
        )
        self.service.agent_hello(hello, Silent().send)

    def start(self) -> None:
        self.close()
        self.store = Store(self.url)
        self.service = SchedulerService(
            self.store, parse_policy(POLICY), Silent(), clock=lambda: round(self.hours * HOUR)
        )

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def ask(self, id_: str, project: str, gpu: float) -> None:
        self.service.submit(
            ALICE,
            m.WorkloadRequest(id=id_, project=project, pods=[m.PodRequest(name="kernel", gpu=gpu)]),
        )
        self.service.run_cycle()

    def usage(self, hours: float) -> dict[str, float]:
        """What the cluster knows of GPU usage after the time went on to that hour."""
        self.hours = hours
        self.service.tick(round(hours * HOUR))
        return {
            queue: used[0] / 1_000_000
            for (queue, _), used in self.service.unit_of_work.cluster.usage.items()
            if any(used)
        }


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url)
    yield scheduler
    scheduler.close()


def test_what_was_held_is_what_the_next_cycles_weigh(scheduler: SchedulerHarness) -> None:
    """Of two GPUs, a held one for two hours and b a half for one: in four hours that is 2 and 0.5
    of 8 GPU-hours.
    """
    scheduler.ask("x", "a", 1)
    scheduler.hours = 101
    scheduler.ask("y", "b", 0.5)
    scheduler.hours = 102
    scheduler.service.end(ALICE, "x")
    scheduler.service.end(ALICE, "y")

    assert scheduler.usage(104) == {"a": 0.25, "b": 0.0625, "d": 0.3125}


def test_a_restart_forgets_nothing(scheduler: SchedulerHarness) -> None:
    scheduler.ask("x", "a", 1)
    scheduler.hours = 102
    scheduler.service.end(ALICE, "x")
    before = scheduler.usage(104)

    scheduler.start()

    assert scheduler.usage(104) == before == {"a": 0.25, "d": 0.25}


def test_it_is_measured_once_a_minute_and_ended_leases_are_kept(
    scheduler: SchedulerHarness,
) -> None:
    scheduler.ask("x", "a", 2)
    scheduler.hours = 101
    scheduler.service.end(ALICE, "x")
    assert scheduler.usage(102)["a"] == 0.5
    assert scheduler.usage(102.001)["a"] == 0.5, "too early for another measurement"
    assert scheduler.usage(104)["a"] == 0.25, "it still counts, though it was read before"


def test_a_wish_of_the_one_who_used_less_is_larger(scheduler: SchedulerHarness) -> None:
    """a used everything for hours; now both want two GPUs, and the surplus goes to b."""
    scheduler.ask("x", "a", 2)
    scheduler.hours = 105
    scheduler.service.end(ALICE, "x")
    scheduler.usage(105.1)
    scheduler.ask("y", "a", 2)
    scheduler.ask("z", "b", 2)
    fair = {
        share.queue: share.fair_share.gpu
        for share in scheduler.service.unit_of_work.decisions.queues
    }
    assert (fair["a"], fair["b"]) == (0, 2000)


def test_leases_outside_the_window_do_not_count() -> None:
    policy = parse_policy(POLICY).policy
    spans = [
        LeaseSpan("a", "default", 1000, 0, HOUR),
        LeaseSpan("a", "other", 1000, 0, 20 * HOUR),
        LeaseSpan("gone", "default", 1000, 19 * HOUR, 20 * HOUR),
    ]
    assert usage_facts(policy, spans, lambda pool: 2000, 20 * HOUR)[0] == UsageMeasured(
        "a", "default", (0, 0, 0)
    )
