"""Turns on a real agent with real child processes and simulated GPUs: idle kernels give way and
keep their memory until the room is needed; kernels in use do not.
"""

from __future__ import annotations

from jupyter_gpushare.messages import (
    ActivityReport,
    KernelActivity,
    KernelRequestState,
    LeaseKept,
    LeaseReleased,
    Share,
    WorkloadRequeued,
)
from tests.agent.simulated_node import GIB, Child, World, play

HALF = 40 * GIB
FILL = "bufs.append(simgpu.alloc('30GiB')); bufs[0].fill(7); result = 1"
INTACT = "result = bufs[0].sum() == 7 * bufs[0].nbytes"
WHY = "Idle, and a cell of project course waits for a GPU."
BUSY = "import time; time.sleep(3); result = 5"


class Classroom(World):
    """A node whose pool shares time."""

    async def __aenter__(self) -> Classroom:
        await super().__aenter__()
        self.scheduler.use(shares_time=True)
        return self

    async def working(self, name: str, gpu: int = 0) -> Child:
        child = await self.server.launch(name)
        self.scheduler.grant(name, gpu=gpu, request=HALF)
        assert (await child.run(FILL))["result"] == 1
        return child

    def asks_to_yield(self, name: str) -> None:
        for body in list(self.scheduler.leases.values()):
            if body.kernel_id == name:
                self.scheduler.grant_again(body, wanted="yield", message=WHY)

    async def gave_way(self, name: str) -> LeaseReleased:
        self.asks_to_yield(name)
        released = await self.until(lambda: self.heard(LeaseReleased), f"{name} gives way")
        # what a server reports about a workload that is held
        self.server.report_request(name, True, request=Share(gpu=0.5), workload=f"{name}.1")
        return released[-1]

    def heard(self, kind: type) -> list:
        return [body for body in self.scheduler.heard if isinstance(body, kind)]

    def activity(self, name: str) -> KernelActivity | None:
        rows = [row for report in self.heard(ActivityReport) for row in report.rows]
        return next((row for row in reversed(rows) if row.workload == f"{name}.1"), None)

    async def is_idle(self, name: str) -> None:
        await self.until(lambda: self.activity(name).idle_ms is not None, f"{name} is idle")


def test_an_idle_kernel_gives_way_without_a_copy_and_its_next_cell_asks_again():
    async def story():
        async with Classroom() as world:
            a = await world.working("a")
            await world.is_idle("a")
            released = await world.gave_way("a")
            assert released.held
            assert not released.ended
            assert "course waits" in released.message
            assert world.used()[0] == 30 * GIB, "nothing needs the room"
            mark = a.start(INTACT)
            await world.until(lambda: world.heard(WorkloadRequeued), "asked for again")
            await world.until(lambda: world.activity("a").waits_ms is not None, "its cell waits")
            world.scheduler.grant("a", gpu=1, request=HALF, lease="a.1@2")
            assert (await a.hear("done", mark))["result"] is True
            assert "suspended" not in world.server.kinds("a")
            assert world.record("a").assignment.assigned_gpus == (0,), "where its memory is"
            assert world.server.relaunches == []

    play(story())


def test_memory_that_is_in_the_way_is_saved_and_comes_back_whole():
    async def story():
        async with Classroom(gpus=1) as world:
            a, b = await world.working("a"), await world.working("b")
            await world.is_idle("a")
            await world.gave_way("a")
            c = await world.server.launch("c")
            world.scheduler.grant("c", gpu=0, request=HALF)
            assert (await c.run(FILL))["result"] == 1
            await world.until(lambda: "suspended" in world.server.kinds("a"), "saved")
            await world.is_idle("c")
            await world.gave_way("c")
            mark = a.start(INTACT)
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.1@2")
            assert (await a.hear("done", mark))["result"] is True
            assert (await b.run(INTACT))["result"] is True

    play(story())


def test_a_kernel_in_use_and_a_pinned_one_keep_their_shares():
    async def story():
        async with Classroom() as world:
            a, b = await world.working("a"), await world.working("b")
            await b.ask("pin")
            mark = a.start(BUSY)
            await world.until(lambda: world.record("a").gate.running, "runs")
            world.asks_to_yield("a")
            world.asks_to_yield("b")
            await world.until(lambda: len(world.heard(LeaseKept)) == 2, "both keep theirs")
            assert world.heard(LeaseReleased) == []
            assert (await a.hear("done", mark))["result"] == 5
            assert (await b.run(INTACT))["result"] is True
            await world.is_idle("a")
            assert world.activity("b").pinned

    play(story())


def test_a_running_cell_whose_turn_is_over_is_suspended_and_goes_on_later():
    async def story():
        async with Classroom() as world:
            a = await world.working("a")
            mark = a.start(
                "import time; time.sleep(1)\nresult = bufs[0].sum() == 7 * bufs[0].nbytes"
            )
            await world.until(lambda: world.record("a").gate.running, "runs")
            for body in list(world.scheduler.leases.values()):
                changes = {"wanted": "evict", "lossless": True, "notice_ms": 100, "message": WHY}
                world.scheduler.grant_again(body, **changes)
            await world.until(lambda: world.heard(LeaseReleased), "released")
            assert not world.heard(LeaseReleased)[0].held
            assert "notice" in world.server.kinds("a")
            world.server.report_request("a", True, request=Share(gpu=0.5), workload="a.1")
            await world.until(lambda: world.activity("a").waits_ms is not None, "it waits")
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.1@2")
            assert (await a.hear("done", mark))["result"] is True
            assert world.server.relaunches == []

    play(story())


def test_a_running_cell_is_never_killed_for_a_turn():
    async def story():
        async with Classroom() as world:
            a = await world.working("a")
            world.record("a").memory.forbid_suspend(1 << 62, "it cannot be saved")
            mark = a.start(BUSY)
            await world.until(lambda: world.record("a").gate.running, "runs")
            for body in list(world.scheduler.leases.values()):
                changes = {"wanted": "evict", "lossless": True, "notice_ms": 0, "message": WHY}
                world.scheduler.grant_again(body, **changes)
            await world.until(lambda: world.heard(LeaseKept), "kept")
            assert (await a.hear("done", mark))["result"] == 5
            assert world.server.relaunches == []
            assert world.heard(LeaseReleased) == []

    play(story())


def test_nothing_gives_way_when_the_host_has_no_room_for_its_memory():
    async def story():
        async with Classroom(host_memory_mib=10 * GIB) as world:
            a = await world.working("a")
            await world.is_idle("a")
            world.asks_to_yield("a")
            await world.until(lambda: world.heard(LeaseKept), "kept")
            await world.until(lambda: world.activity("a").host_full, "said")
            assert not world.activity("a").can_save
            assert "suspended" not in world.server.kinds("a")
            assert (await a.run(INTACT))["result"] is True

    play(story())


def test_memory_of_a_kernel_that_gave_way_stays_when_the_agent_starts_again():
    async def story():
        async with Classroom() as world:
            a = await world.working("a")
            await world.is_idle("a")
            await world.gave_way("a")
            await world.until(lambda: world.record("a").is_parked, "its server has said so")
            await world.agent.stop()
            await world.start_agent()
            await world.server.connect()
            world.server.send(
                KernelRequestState(
                    kernel_id="a", pending=True, request=Share(gpu=0.5), workload="a.1"
                )
            )
            mark = a.start(INTACT)
            await world.until(lambda: world.heard(WorkloadRequeued), "asked for again")
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.1@2")
            assert (await a.hear("done", mark))["result"] is True

    play(story())


def test_without_turns_nothing_is_reported():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run(FILL)
            await world.until(lambda: "attached" in world.scheduler.kinds("a"), "attached")
            assert not [one for one in world.scheduler.heard if isinstance(one, ActivityReport)]

    play(story())
