"""Kernels, servers, agents and schedulers die in every order; nothing stays booked, nothing alive
is harmed, nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from jupyter_gpushare.messages import KernelGone, KernelLaunched, LeaseReleased, Share
from node_agent.system.processes import ProcessId, kill_process, process_at, tree_of
from tests.agent.simulated_node import GIB, FakeServer, World, play

HALF = 40 * GIB
ORPHAN = """
import subprocess, sys
command = [sys.executable, "-c", "import time; time.sleep(600)"]
result = subprocess.Popen(command, start_new_session=True).pid
"""


def released(world: World) -> list[LeaseReleased]:
    return [body for body in world.scheduler.heard if isinstance(body, LeaseReleased)]


def is_gone(pid: int) -> bool:
    return process_at(pid) is None


def test_a_killed_kernel_is_released_with_everything_it_started():
    """Also children that made a session of their own, which Jupyter would leave behind."""

    async def story():
        async with World(grace_ms=300) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            orphan = (await a.run(ORPHAN))["result"]
            a.process.kill()
            await world.until(lambda: released(world), "released")
            assert (released(world)[0].lease, released(world)[0].ended) == ("a.1/kernel", True)
            await world.until(lambda: is_gone(orphan), "its children are gone")
            await world.until(lambda: "a" not in world.agent.node.kernels, "forgotten")

    play(story())


def test_a_restarted_kernel_keeps_its_lease_and_its_generation_grows():
    async def story():
        async with World(grace_ms=600) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB'))")
            before = world.record("a").assignment.generation
            await world.server.relaunch("a")
            await world.until(
                lambda: (
                    world.record("a").assignment.generation > before
                    and world.record("a").assignment.attached
                ),
                "attached again",
            )
            assert world.used() == {0: 0, 1: 0}
            assert released(world) == []
            assert "result" in await world.server.kernels["a"].run(
                "bufs.append(simgpu.alloc('10GiB'))"
            )

    play(story())


def test_shut_down_by_its_server_is_not_waited_for():
    async def story():
        async with World(grace_ms=60_000) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB'))")
            world.server.send(KernelGone(kernel_id="a", restarting=False))
            await world.until(lambda: released(world), "released")
            await asyncio.wait_for(a.process.wait(), 60)
            assert world.used() == {0: 0, 1: 0}

    play(story())


def test_a_lease_for_a_kernel_that_nobody_knows_is_ended_after_the_grace():
    async def story():
        async with World(grace_ms=200) as world:
            world.scheduler.grant("lost", gpu=0, request=HALF)
            await world.until(lambda: released(world), "released")
            assert released(world)[0].ended

    play(story())


def test_a_plan_without_a_lease_takes_it_back_and_keeps_what_was_on_the_gpu():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB')); bufs[0].fill(2)")
            world.scheduler.end("a")
            world.server.report_request("a", False)
            await world.until(
                lambda: world.used()[0] == 0 and world.record("a").lease is None, "taken back"
            )
            assert "%gpu request" in (await a.run("result = bufs[0].sum()"))["error"]
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.2/kernel")
            await world.until(lambda: world.record("a").lease is not None, "granted again")
            assert (await a.run("result = bufs[0].sum() == 2 * bufs[0].nbytes"))["result"] is True
            assert released(world) == []

    play(story())


def test_eviction_warns_who_runs_saves_and_lets_go_without_ending():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('10GiB')); bufs[0].fill(2)")
            mark = a.start("simgpu.busy(1); result = bufs[0].sum() / bufs[0].nbytes")
            await a.hear("running", mark)
            world.scheduler.evict("a", notice_ms=200)
            await world.until(lambda: released(world), "released")
            assert not released(world)[0].ended
            kinds = world.scheduler.kinds("a")
            assert kinds.index("notice") < kinds.index("suspended")
            await asyncio.sleep(0.2)
            assert not any("done" in body or "error" in body for body in a.said[mark:]), (
                "the cell stands still meanwhile"
            )
            world.scheduler.grant("a", gpu=0, request=HALF, lease="a.1/kernel#2")
            assert (await a.hear("done", mark))["result"] == 2

    play(story())


def test_a_share_that_is_changed_while_a_cell_runs_breaks_nothing_in_it():
    """The old lease goes before the new one comes; the cell keeps what it has, and computes on."""

    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            world.server.report_request("a", True, request=Share(gpu=1.0))
            turns, stop = world.state_dir / "turns", world.state_dir / "stop"
            mark = a.start(
                f"import pathlib\n"
                f"turns, stop = pathlib.Path({str(turns)!r}), pathlib.Path({str(stop)!r})\n"
                "while not stop.exists(): simgpu.busy(0.01); turns.open('ab').write(b'.')\n"
                "result = simgpu.device_uuid()"
            )
            await world.until(turns.exists, "it computes")
            world.scheduler.end("a")
            await world.until(lambda: world.record("a").lease is None, "between two leases")
            begun = turns.stat().st_size
            await world.until(
                lambda: turns.stat().st_size > begun + 5 or "error" in a.said[-1], "it computes on"
            )
            world.scheduler.grant("a", gpu=0, request=2 * HALF, lease="a.2/kernel")
            await world.attached("a")
            stop.touch()
            assert "SIM-GPU" in (await a.hear("done", mark)).get("result", ""), a.said[mark:]
            world.server.report_request("a", False)
            world.scheduler.end("a")
            await world.until(lambda: "a" not in world.devices.attached(), "given back")

    play(story())


def test_servers_come_and_go_and_kernels_stay():
    async def story():
        async with World(grace_ms=200) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            world.server.writer.close()
            second = FakeServer(world, "server-2")
            welcome = await second.connect()
            assert [kernel.kernel_id for kernel in welcome.kernels] == ["a"]
            await second.register("a", wants_gpu=True, pid=a.pid)
            await asyncio.sleep(0.4)
            assert world.record("a").assignment.attached
            assert (await a.run("result = 1"))["result"] == 1
            await second.close()
            await world.server.connect()

    play(story())


def test_only_the_launch_itself_is_in_its_tree():
    """Another process that took over the pid is never signalled; what is marked is found wherever
    it hides.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env=os.environ | {"GPUSHARE_LAUNCH": "k.1"},
    )
    try:
        ident = process_at(child.pid)
        assert ident is not None
        kill_process(ProcessId(child.pid, ident.start - 1))
        kill_process(ProcessId(child.pid, ident.start + 1))
        assert child.poll() is None
        deadline = time.monotonic() + 5
        while (
            not tree_of("k.1", None) and time.monotonic() < deadline
        ):  # its environment shows when it has become the new program
            time.sleep(0.01)
        assert ident in tree_of("k.1", None)
        assert ident not in tree_of("k.2", None)
        assert os.getpid() not in {one.pid for one in tree_of("", process_at(os.getppid()))}
        kill_process(ident)
        assert child.wait(5) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_a_pid_that_was_launched_and_is_already_gone_is_not_adopted():
    async def story():
        async with World(grace_ms=200) as world:
            await world.server.register("a")
            gone = await asyncio.create_subprocess_exec("true")
            await gone.wait()
            world.server.send(KernelLaunched(kernel_id="a", pid=gone.pid))
            await world.until(lambda: "a" not in world.agent.node.kernels, "forgotten")

    play(story())


def test_an_interrupted_cell_of_a_suspended_kernel_does_not_come_back_for_nothing():
    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB'))")
            mark = a.start("simgpu.busy(30)")
            await a.hear("running", mark)
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            first = await b.run("bufs.append(simgpu.alloc('40GiB'))")
            assert "error" not in first, first
            busy = b.start("simgpu.busy(1.5)")
            await b.hear("running", busy)
            a.process.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in (await a.hear("done", mark))["error"]
            await b.hear("done", busy)
            await asyncio.sleep(0.3)
            assert world.record("a").memory.suspended
            assert world.used() == {0: 40 * GIB}

    play(story())


def test_a_notice_that_ends_in_a_suspension_is_not_called_off():
    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB'))")
            mark = a.start("simgpu.busy(0.8)")
            await a.hear("running", mark)
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            await b.run("bufs.append(simgpu.alloc('40GiB'))")
            await a.hear("done", mark)
            over = [
                body["note"]["message"]
                for body in a.said
                if body.get("note", {}).get("type") == "notice_over"
            ]
            assert over == [""]

    play(story())


def test_a_kernel_without_a_gate_gets_its_place_made_free_and_counts_as_running():
    """Another language: no hello, no cells; borrowers make room when its lease arrives, and its
    share is never lent after that.
    """

    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(1)")
            await world.server.register("r", language="R", wants_gpu=True)
            process = await asyncio.create_subprocess_exec("sleep", "60")
            world.server.send(KernelLaunched(kernel_id="r", pid=process.pid))
            world.scheduler.grant("r", gpu=0, request=HALF)
            await world.attached("r")
            assert world.used() == {0: 0}
            said = await a.hear("waits", a.start("result = 1"))
            assert "a running notebook uses its guaranteed memory" in said["waits"]
            process.kill()
            await process.wait()

    play(story())
