"""The idle rule on a real agent with real child processes and simulated GPUs, with times of a
second instead of half an hour.
"""

from __future__ import annotations

import asyncio
import textwrap

from jupyter_gpushare.messages import (
    EndKernel,
    KernelGone,
    KernelRequestState,
    LeaseReleased,
    LeaseRules,
    ReasonBody,
    Share,
    WorkloadRequeued,
    stamp,
    stamp_ms,
)
from node_agent.state.wall_clock import wall_ms
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB
FILL = "bufs.append(simgpu.alloc('6GiB')); bufs[0].fill(7); result = 1"
INTACT = "result = bufs[0].sum() == 7 * bufs[0].nbytes"
PLACES = {
    f"idle.{step}": f"projects.vision.rules.idle.{step}"
    for step in ("warn", "suspend", "release", "end")
}


def rules(**ms: int) -> LeaseRules:
    return LeaseRules(**{f"idle_{step}_ms": value for step, value in ms.items()}, places=PLACES)


async def working(world: World, name: str = "a", **ms: int):
    child = await world.server.launch(name)
    world.scheduler.grant(name, gpu=0, request=HALF, rules=rules(**ms))
    assert (await child.run(FILL))["result"] == 1
    return child


def messages(world: World, kind: str, name: str = "a") -> list[str]:
    return [
        message for kernel, one, message in world.server.events if (kernel, one) == (name, kind)
    ]


def test_idle_memory_is_saved_after_a_warning_with_its_rule_and_restored_by_the_next_cell():
    async def story():
        async with World(notice_ms=200) as world:
            a = await working(world, warn=300, suspend=3000)
            await world.until(lambda: messages(world, "notice"), "announced")
            assert world.server.reported["a"].state == "attached", "announced before it is done"
            assert world.server.reported["a"].notice_deadline is not None
            (notice,) = messages(world, "notice")
            assert "6 GiB" in notice
            assert "projects.vision.rules.idle.suspend" in notice
            assert (await a.hear("note"))["note"]["type"] == "notice"
            await world.until(lambda: world.server.reported["a"].state == "suspended", "suspended")
            assert "projects.vision.rules.idle.suspend" in messages(world, "suspended")[0]
            assert world.server.reported["a"].notice_deadline is None
            assert (await a.run(INTACT))["result"] is True
            assert [
                kind
                for kind in world.server.kinds("a")
                if kind in ("notice", "suspended", "resumed")
            ] == ["notice", "suspended", "resumed"]

    play(story())


def test_cells_and_pinning_keep_the_memory_where_it_is():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world, suspend=700)
            b = await working(world, "b", suspend=700)
            await b.ask("pin")
            worked = []
            for _ in range(4):
                await asyncio.sleep(0.4)  # time is the thing that is tested here
                await a.run("result = 0")
                worked.append(wall_ms())
            await world.until(
                lambda: messages(world, "suspended", "a"), "a is suspended once it stops"
            )
            for event in (
                world.record("a").published.events
            ):  # on a slow machine also between two cells; never sooner than the rule says
                if event.kind == "suspended":
                    at = stamp_ms(event.time)
                    assert not [end for end in worked if at - 600 < end < at], (at, worked)
            assert messages(world, "suspended", "b") == []
            assert messages(world, "notice", "b") == []

    play(story())


def test_the_gpu_is_given_back_and_asked_for_again_by_the_next_cell():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world, suspend=300, release=900)
            await world.until(lambda: messages(world, "released"), "given back")
            (gone,) = [body for body in world.scheduler.heard if isinstance(body, LeaseReleased)]
            assert gone.held
            assert not gone.ended
            assert "projects.vision.rules.idle.release" in gone.message
            assert any("will be released" in message for message in messages(world, "notice")), (
                "announced"
            )
            world.server.send(
                KernelRequestState(
                    kernel_id="a",
                    pending=True,
                    request=Share(gpu=0.5),
                    reason=ReasonBody(code="Held", message="Held."),
                )
            )
            assert not any(isinstance(body, WorkloadRequeued) for body in world.scheduler.heard), (
                "nobody works"
            )

            mark = a.start(INTACT)
            await world.until(
                lambda: any(isinstance(body, WorkloadRequeued) for body in world.scheduler.heard),
                "asked for again",
            )
            world.scheduler.grant("a", gpu=1, request=HALF, lease="a.1@2", rules=rules())
            assert (await a.hear("done", mark))["result"] is True
            assert world.server.relaunches == []

    play(story())


def test_what_was_given_back_survives_the_agent():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world, release=400)
            await world.until(lambda: messages(world, "released"), "given back")
            await world.server.disconnect()
            await world.agent.stop()
            await world.start_agent()
            await world.server.connect()
            world.server.send(
                KernelRequestState(kernel_id="a", pending=True, request=Share(gpu=0.5))
            )
            await world.until(lambda: world.record("a").gate.connected, "the kernel is back")
            mark = a.start(INTACT)
            await world.until(
                lambda: any(isinstance(body, WorkloadRequeued) for body in world.scheduler.heard),
                "asked for again",
            )
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.1@2")
            assert (await a.hear("done", mark))["result"] is True

    play(story())


def test_what_cannot_be_saved_is_not_taken_for_being_idle():
    async def story():
        async with World(notice_ms=100) as world:
            world.fault("unsupported", "a")
            a = await working(world, suspend=300, release=600)
            await world.until(
                lambda: world.record("a").memory.no_suspend_reason,
                "found out that it cannot be saved",
            )
            await asyncio.sleep(1.2)  # long after both steps
            assert messages(world, "released") == []
            assert (await a.run(INTACT))["result"] is True

    play(story())


def test_the_kernel_goes_last_and_by_its_server():
    async def story():
        async with World(notice_ms=200) as world:
            a = await working(world, suspend=300, end=900)
            asked = await world.server.answers.get()
            assert isinstance(asked, EndKernel)
            assert any("shut down" in message for message in messages(world, "notice")), (
                "announced before"
            )
            world.server.send(KernelGone(kernel_id="a", restarting=False))
            await world.until(lambda: "a" not in world.agent.node.kernels, "forgotten")
            await world.until(
                lambda: (
                    [b.ended for b in world.scheduler.heard if isinstance(b, LeaseReleased)]
                    == [True]
                ),
                "its lease ended",
            )
            await a.process.wait()

    play(story())


def test_a_server_that_does_not_end_it_does_not_keep_it_either():
    async def story():
        async with World(notice_ms=100, grace_ms=300) as world:
            a = await working(world, end=300)
            await asyncio.wait_for(a.process.wait(), 60)
            await world.until(lambda: "a" not in world.agent.node.kernels, "forgotten")

    play(story())


def test_gpu_work_without_a_cell_is_work():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world, suspend=3000)
            code = """
                import threading
                stop = threading.Event()
                def work():
                    while not stop.is_set():
                        simgpu.busy(0.05)
                threading.Thread(target=work, daemon=True).start()
            """
            await a.run(textwrap.dedent(code))
            await asyncio.sleep(4)  # longer than the rule
            assert messages(world, "suspended") == []
            await a.run("stop.set()")
            await world.until(
                lambda: messages(world, "suspended"), "suspended when the work is over"
            )

    play(story())


def test_the_end_of_the_running_time_is_announced_and_withdrawn():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world)
            (lease,) = world.scheduler.leases.values()
            end = stamp(wall_ms() + 60_000)
            world.scheduler.grant_again(
                lease,
                ends_at=end,
                message="In 60 s the GPU is taken back: projects.vision.rules.max_running.",
            )
            heard = (await a.hear("note"))["note"]
            assert (heard["type"], heard["message"][:7]) == ("notice", "In 60 s")
            assert 50_000 < heard["deadline_ms"] <= 60_000
            await world.until(
                lambda: world.server.reported["a"].notice_deadline == end, "shown with its moment"
            )
            mark = len(a.said)
            world.scheduler.grant_again(world.scheduler.leases[lease.id], ends_at=None, message="")
            assert (await a.hear("note", mark))["note"]["type"] == "notice_over"
            await world.until(
                lambda: world.server.reported["a"].notice_deadline is None, "not shown any more"
            )
            assert messages(world, "notice") == [
                "In 60 s the GPU is taken back: projects.vision.rules.max_running."
            ]

    play(story())
