"""Nodes that are cordoned, drained, cut off, ill or moved to another pool: nothing new, what runs
stays; said in the words of the field.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy, parse_policy
from jupyter_gpushare.scheduler.state.audit import entries
from jupyter_gpushare.scheduler.store import schema
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ADMIN, ALICE, SchedulerHarness


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    made = SchedulerHarness(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def row(scheduler: SchedulerHarness) -> m.NodeRow:
    (found,) = scheduler.service.queries.nodes(ADMIN).nodes
    return found


def state(scheduler: SchedulerHarness, workload: str) -> tuple[str, str | None]:
    view = scheduler.service.queries.workload(ALICE, workload)
    return view.state, view.reason.code if view.reason else None


def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new_even_after_a_restart(
    scheduler: SchedulerHarness,
):
    scheduler.ask("a")
    marked = scheduler.service.cordons.cordon("root", "n0")
    assert (marked.cordoned, marked.draining, marked.leases) == (True, False, 1)
    scheduler.ask("b")
    assert state(scheduler, "a") == ("running", None)
    assert state(scheduler, "b") == ("pending", "NodeNotReady")
    scheduler.start()
    scheduler.joined()
    assert (row(scheduler).status, row(scheduler).reasons, row(scheduler).cordoned) == (
        "Not ready",
        ["scheduling disabled"],
        True,
    )
    assert state(scheduler, "b") == ("pending", "NodeNotReady")
    scheduler.service.cordons.uncordon("root", "n0")
    scheduler.service.run_cycle()
    assert state(scheduler, "b") == ("running", None)
    assert row(scheduler).cordoned is False
    scheduler.start()
    assert row(scheduler).cordoned is False


def test_saying_it_twice_is_saying_it_once(scheduler: SchedulerHarness):
    for action in ("cordon", "cordon", "drain", "drain", "uncordon", "uncordon"):
        getattr(scheduler.service.cordons, action)("root", "n0")
    assert [(entry.actor, entry.action, entry.object) for entry in entries(scheduler.store)] == [
        ("root", "cordon", "node n0"),
        ("root", "drain", "node n0"),
        ("root", "uncordon", "node n0"),
    ]
    with pytest.raises(NotFound, match="n9"):
        scheduler.service.cordons.cordon("root", "n9")


def test_a_drain_asks_everything_to_leave_with_notice_and_says_how_far_it_is(
    scheduler: SchedulerHarness,
):
    a, b = scheduler.ask("a").pods[0].lease, scheduler.ask("b", 1, kernel_id="k").pods[0].lease
    marked = scheduler.service.cordons.drain("root", "n0")
    assert (marked.draining, marked.leases) == (True, 2)
    assert "wait for this node" in marked.message, (
        "a kernel cannot move to another machine, and that is said"
    )
    wanted = [
        order.lease
        for order in scheduler.listener.orders
        if isinstance(order, m.LeaseUpdated) and order.lease.wanted == "evict"
    ]
    assert {lease.id for lease in wanted} == {a.id, b.id}
    assert {lease.notice_ms for lease in wanted} == {10_000}
    assert "drained by root" in wanted[0].message
    scheduler.service.agent_report("n0", m.LeaseReleased(lease=a.id, ended=False))
    assert scheduler.service.cordons.drain("root", "n0").leases == 1
    scheduler.service.agent_report("n0", m.LeaseReleased(lease=b.id, ended=False))
    scheduler.service.run_cycle()
    assert "is drained" in scheduler.service.cordons.mark("n0").message
    assert state(scheduler, "a") == state(scheduler, "b") == ("pending", "NodeNotReady")
    scheduler.service.cordons.uncordon("root", "n0")
    scheduler.service.run_cycle()
    assert state(scheduler, "a") == state(scheduler, "b") == ("running", None)


def test_a_drain_goes_on_after_a_crash_between_its_mark_and_its_orders(scheduler: SchedulerHarness):
    scheduler.ask("a")
    with scheduler.store.transaction() as write:
        write.do(
            schema.node_marks.insert(),
            {"name": "n0", "cordoned": True, "draining": True, "actor": "root", "since_ms": 1},
        )
    scheduler.start()
    scheduler.joined()
    scheduler.service.tick(scheduler.time)
    assert [lease.wanted for lease in scheduler.leases()] == ["evict"]


def test_a_link_that_stays_broken_makes_the_node_not_ready_and_silence_has_the_last_word(
    scheduler: SchedulerHarness,
):
    scheduler.ask("a")
    scheduler.service.agent_disconnected("n0", scheduler.listener.send)
    scheduler.time += 19_000
    scheduler.service.tick(scheduler.time)
    assert row(scheduler).status == "Ready", "it may be on its way back"
    scheduler.time += 1_000
    scheduler.service.tick(scheduler.time)
    assert row(scheduler).reasons == ["network unavailable"]
    scheduler.ask("b")
    assert state(scheduler, "b") == ("pending", "NodeNotReady")
    assert state(scheduler, "a") == ("running", None)
    scheduler.time += 100_000
    scheduler.service.tick(scheduler.time)
    assert row(scheduler).reasons == ["agent silent"]
    scheduler.joined()
    assert row(scheduler).reasons == []
    assert state(scheduler, "b") == ("running", None)


def test_one_unhealthy_gpu_is_excluded_and_the_others_stay_in_use(scheduler: SchedulerHarness):
    healthy = scheduler.node()
    ill = replace(
        healthy,
        devices=[
            replace(healthy.devices[0], healthy=False, health="fell off the bus"),
            healthy.devices[1],
        ],
    )
    scheduler.service.agent_report("n0", m.NodeChangedReport(node=ill))
    scheduler.service.run_cycle()
    assert scheduler.ask("a").pods[0].lease.planned_gpus == [1]
    assert scheduler.ask("b").pods[0].lease.planned_gpus == [1]
    assert state_after(scheduler, "c", 1)[0] == "pending"
    assert row(scheduler).status == "Ready"
    assert [device.healthy for device in row(scheduler).devices] == [False, True]
    scheduler.service.agent_report(
        "n0",
        m.NodeChangedReport(
            node=replace(ill, devices=[replace(d, healthy=False) for d in ill.devices])
        ),
    )
    assert row(scheduler).reasons == ["GPU unhealthy"]
    scheduler.service.agent_report("n0", m.NodeChangedReport(node=healthy))
    scheduler.service.run_cycle()
    assert state(scheduler, "c") == ("running", None)


def state_after(scheduler: SchedulerHarness, workload: str, gpu: float) -> tuple[str, str | None]:
    scheduler.ask(workload, gpu)
    return state(scheduler, workload)


POOLS = default_demo_policy(2).replace(
    "node_pools:", "node_pools:\n  - {name: a100, label: {key: gpu, value: a100}}"
)


def test_a_node_that_moves_to_another_pool_takes_nothing_new_before_the_old_has_left(
    scheduler: SchedulerHarness,
):
    scheduler.service.use_policy(parse_policy(POOLS))
    scheduler.ask("a")
    moved = replace(scheduler.node(), labels={"gpu": "a100"})
    scheduler.service.agent_report("n0", m.NodeChangedReport(node=moved))
    scheduler.service.tick(scheduler.time)
    assert (row(scheduler).pool, row(scheduler).reasons) == ("a100", ["undrained migrated node"])
    assert state(scheduler, "a") == ("running", None)
    scheduler.service.end(ADMIN, "a")
    scheduler.service.tick(scheduler.time)
    assert row(scheduler).reasons == []


def test_pools_have_a_status_too(scheduler: SchedulerHarness):
    scheduler.service.use_policy(parse_policy(POOLS))
    pools = {pool.name: pool for pool in scheduler.service.queries.pools(ADMIN).pools}
    assert (pools["default"].status, pools["default"].nodes_ready, pools["default"].reasons) == (
        "Ready",
        1,
        [],
    )
    assert (pools["a100"].status, pools["a100"].reasons) == ("Not ready", ["no nodes"])
    scheduler.service.cordons.cordon("root", "n0")
    (pool,) = [
        pool for pool in scheduler.service.queries.pools(ADMIN).pools if pool.name == "default"
    ]
    assert (pool.status, pool.nodes_ready, pool.reasons) == (
        "Not ready",
        0,
        ["1 x scheduling disabled"],
    )
