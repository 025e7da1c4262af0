"""Memory that does not come free: nobody is let in on hope, and somebody else makes room."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from node_agent.policy.reclaim_ladder import decide
from node_agent.policy.reclaim_steps import SuspendStep, WaitStep
from node_agent.policy.snapshot import NodeSnapshot, Tenant
from node_agent.state.draining import Draining
from node_agent.state.kernel_record import KernelRecord
from tests.agent.nvidia_node import GpuNode
from tests.agent.simulated_node import GIB, play

B = Tenant("b", 40, 80, (0,), wants_since=5)
IDLE = Tenant("i", 20, 80, (0,), {0: 40})


def test_what_lags_is_waited_for_what_is_stuck_is_made_up_for_by_others():
    assert list(decide(NodeSnapshot({0: 80}, (IDLE, B), {0: 30}), 0).steps) == [
        WaitStep("b", ("",), None)
    ]
    assert list(decide(NodeSnapshot({0: 80}, (IDLE, B), {0: 30}, {0: 30}), 0).steps) == [
        SuspendStep("i", "b"),
        WaitStep("b", ("i",), None),
    ]


def test_a_kernel_that_does_not_die_is_not_counted_on():
    dying = Tenant("d", 20, 80, (0,), {0: 30}, transit="out")
    assert list(decide(NodeSnapshot({0: 80}, (dying, IDLE, B)), 0).steps) == [
        WaitStep("b", ("d",), None)
    ]
    assert (
        SuspendStep("i", "b")
        in decide(NodeSnapshot({0: 80}, (replace(dying, stuck=True), IDLE, B)), 0).steps
    )


def test_never_let_in_on_memory_that_is_stuck_even_when_nobody_else_can_help():
    assert list(decide(NodeSnapshot({0: 80}, (B,), {0: 50}, {0: 50}), 0).steps) == [
        WaitStep("b", (), None)
    ]


def test_the_timeout_begins_again_while_the_driver_makes_progress():
    draining = Draining(1000)
    for now, lag in ((0, 100), (900, 80), (1800, 60)):
        draining.look({0: lag}, (), now)
        assert draining.stuck == {}
    draining.look({0: 59}, (), 2900)
    assert draining.stuck == {0: 59}
    assert "59 MiB" in draining.problem(0, ())
    draining.look({}, (), 3000)
    assert draining.stuck == {}
    assert draining.problem(0, ()) == ""


def test_a_killed_kernel_has_its_time_to_die():
    from node_agent.devices.base.model import TenantMemory

    draining, kernel = Draining(1000), KernelRecord("k")
    kernel.process.killing, kernel.memory.usage = True, TenantMemory({0: 5})
    draining.look({}, (kernel,), 0)
    assert draining.late == set()
    draining.look({}, (kernel,), 1001)
    assert draining.late == {"k"}
    assert "5 MiB" in draining.problem(0, (kernel,))


def test_a_gpu_whose_driver_does_not_give_memory_back_is_draining_and_the_owner_waits_for_facts():
    async def story():
        async with GpuNode(notice_ms=200, drain_ms=300) as world:
            world.machine.set("lag_ms", 3000)
            world.machine.fault("cuCheckpointProcessLock", 1, 801, times=-1)
            a = await world.kernel("a", request=40 * GIB)
            assert "error" not in await a.run("p = gpu.alloc(60 << 30)")
            entering = asyncio.ensure_future(world.kernel("b", request=39 * GIB))
            await world.until(lambda: world.server.relaunches, "a is killed", 20)
            await world.until(
                lambda: "Draining" in world.agent.session.node_report().devices[0].health,
                "said to be draining",
            )
            assert not entering.done(), "not let in on hope"
            b = await entering
            assert (await b.run("result = gpu.memory()[0] >> 30"))["result"] >= 39, (
                "what it was promised is really free"
            )
            await world.until(
                lambda: world.agent.session.node_report().devices[0].healthy, "well again"
            )

    play(story())
