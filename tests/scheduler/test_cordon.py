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
from tests.scheduler.test_service import ADMIN, ALICE, House


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    made = House(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def row(house: House) -> m.NodeRow:
    (found,) = house.service.shown.nodes(ADMIN).nodes
    return found


def state(house: House, workload: str) -> tuple[str, str | None]:
    view = house.service.shown.workload(ALICE, workload)
    return view.state, view.reason.code if view.reason else None


def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new_even_after_a_restart(house: House):
    house.ask("a")
    marked = house.service.marks.cordon("root", "n0")
    assert (marked.cordoned, marked.draining, marked.leases) == (True, False, 1)
    house.ask("b")
    assert state(house, "a") == ("running", None)
    assert state(house, "b") == ("pending", "NodeNotReady")
    house.start()
    house.joined()
    assert (row(house).status, row(house).reasons, row(house).cordoned) == (
        "Not ready",
        ["scheduling disabled"],
        True,
    )
    assert state(house, "b") == ("pending", "NodeNotReady")
    house.service.marks.uncordon("root", "n0")
    house.service.run_cycle()
    assert state(house, "b") == ("running", None)
    assert row(house).cordoned is False
    house.start()
    assert row(house).cordoned is False


def test_saying_it_twice_is_saying_it_once(house: House):
    for action in ("cordon", "cordon", "drain", "drain", "uncordon", "uncordon"):
        getattr(house.service.marks, action)("root", "n0")
    assert [(entry.actor, entry.action, entry.object) for entry in entries(house.store)] == [
        ("root", "cordon", "node n0"),
        ("root", "drain", "node n0"),
        ("root", "uncordon", "node n0"),
    ]
    with pytest.raises(NotFound, match="n9"):
        house.service.marks.cordon("root", "n9")


def test_a_drain_asks_everything_to_leave_with_notice_and_says_how_far_it_is(house: House):
    a, b = house.ask("a").pods[0].lease, house.ask("b", 1, kernel_id="k").pods[0].lease
    marked = house.service.marks.drain("root", "n0")
    assert (marked.draining, marked.leases) == (True, 2)
    assert "wait for it" in marked.message, (
        "a kernel cannot move to another machine, and that is said"
    )
    wanted = [
        order.lease
        for order in house.listener.orders
        if isinstance(order, m.LeaseUpdated) and order.lease.wanted == "evict"
    ]
    assert {lease.id for lease in wanted} == {a.id, b.id}
    assert {lease.notice_ms for lease in wanted} == {10_000}
    assert "drained by root" in wanted[0].message
    house.service.agent_said("n0", m.LeaseReleased(lease=a.id, ended=False))
    assert house.service.marks.drain("root", "n0").leases == 1
    house.service.agent_said("n0", m.LeaseReleased(lease=b.id, ended=False))
    house.service.run_cycle()
    assert "is drained" in house.service.marks.mark("n0").message
    assert state(house, "a") == state(house, "b") == ("pending", "NodeNotReady")
    house.service.marks.uncordon("root", "n0")
    house.service.run_cycle()
    assert state(house, "a") == state(house, "b") == ("running", None)


def test_a_drain_goes_on_after_a_crash_between_its_mark_and_its_orders(house: House):
    house.ask("a")
    with house.store.transaction() as write:
        write.do(
            schema.node_marks.insert(),
            {"name": "n0", "cordoned": True, "draining": True, "actor": "root", "since_ms": 1},
        )
    house.start()
    house.joined()
    house.service.tick(house.time)
    assert [lease.wanted for lease in house.leases()] == ["evict"]


def test_a_link_that_stays_broken_makes_the_node_not_ready_and_silence_has_the_last_word(
    house: House,
):
    house.ask("a")
    house.service.agent_gone("n0", house.listener.send)
    house.time += 19_000
    house.service.tick(house.time)
    assert row(house).status == "Ready", "it may be on its way back"
    house.time += 1_000
    house.service.tick(house.time)
    assert row(house).reasons == ["network unavailable"]
    house.ask("b")
    assert state(house, "b") == ("pending", "NodeNotReady")
    assert state(house, "a") == ("running", None)
    house.time += 100_000
    house.service.tick(house.time)
    assert row(house).reasons == ["agent silent"]
    house.joined()
    assert row(house).reasons == []
    assert state(house, "b") == ("running", None)


def test_one_ill_gpu_is_left_out_and_the_others_go_on(house: House):
    healthy = house.node()
    ill = replace(
        healthy,
        devices=[
            replace(healthy.devices[0], healthy=False, health="fell off the bus"),
            healthy.devices[1],
        ],
    )
    house.service.agent_said("n0", m.NodeChangedReport(node=ill))
    house.service.run_cycle()
    assert house.ask("a").pods[0].lease.planned_gpus == [1]
    assert house.ask("b").pods[0].lease.planned_gpus == [1]
    assert state_after(house, "c", 1)[0] == "pending"
    assert row(house).status == "Ready"
    assert [device.healthy for device in row(house).devices] == [False, True]
    house.service.agent_said(
        "n0",
        m.NodeChangedReport(
            node=replace(ill, devices=[replace(d, healthy=False) for d in ill.devices])
        ),
    )
    assert row(house).reasons == ["GPU unhealthy"]
    house.service.agent_said("n0", m.NodeChangedReport(node=healthy))
    house.service.run_cycle()
    assert state(house, "c") == ("running", None)


def state_after(house: House, workload: str, gpu: float) -> tuple[str, str | None]:
    house.ask(workload, gpu)
    return state(house, workload)


POOLS = default_demo_policy(2).replace(
    "node_pools:", "node_pools:\n  - {name: a100, label: {key: gpu, value: a100}}"
)


def test_a_node_that_moves_to_another_pool_takes_nothing_new_before_the_old_has_left(house: House):
    house.service.use_policy(parse_policy(POOLS))
    house.ask("a")
    moved = replace(house.node(), labels={"gpu": "a100"})
    house.service.agent_said("n0", m.NodeChangedReport(node=moved))
    house.service.tick(house.time)
    assert (row(house).pool, row(house).reasons) == ("a100", ["undrained migrated node"])
    assert state(house, "a") == ("running", None)
    house.service.end(ADMIN, "a")
    house.service.tick(house.time)
    assert row(house).reasons == []


def test_pools_have_a_status_too(house: House):
    house.service.use_policy(parse_policy(POOLS))
    pools = {pool.name: pool for pool in house.service.shown.pools(ADMIN).pools}
    assert (pools["default"].status, pools["default"].nodes_ready, pools["default"].reasons) == (
        "Ready",
        1,
        [],
    )
    assert (pools["a100"].status, pools["a100"].reasons) == ("Not ready", ["no nodes"])
    house.service.marks.cordon("root", "n0")
    (pool,) = [pool for pool in house.service.shown.pools(ADMIN).pools if pool.name == "default"]
    assert (pool.status, pool.nodes_ready, pool.reasons) == (
        "Not ready",
        0,
        ["1 x scheduling disabled"],
    )
