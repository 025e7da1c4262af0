"""Faults of the simulated node, each through the whole agent; and twenty kernels at once."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.simnode import DriverError, SimGpu, SimNode, start_of
from tests.agent.simulated_node import GIB, World, play

HALF, WHOLE = 40 * GIB, 80 * GIB


async def pressed(world: World, fault: str) -> None:
    """A is over its share and idle on the only GPU; B arrives and runs a cell in its own share."""
    a = await world.server.launch("a")
    world.scheduler.grant("a", gpu=0, request=HALF)
    await a.run("bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(6)")
    world.fault(fault, "a")
    b = await world.server.launch("b")
    world.scheduler.grant("b", gpu=0, request=HALF)
    assert "result" in await b.run("bufs.append(simgpu.alloc('40GiB'))")


@pytest.mark.parametrize("fault", ["unsupported", "lock", "checkpoint"])
def test_what_cannot_be_saved_is_warned_and_then_killed(fault):
    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            await pressed(world, fault)
            kinds = world.scheduler.kinds("a")
            assert kinds.index("notice") < kinds.index("killed")
            assert "suspended" not in kinds
            assert "killed" not in world.scheduler.kinds("b")

    play(story())


def test_a_lock_that_fails_once_is_tried_again_at_the_deadline():
    async def story():
        async with World(gpus=1, notice_ms=6000) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(6)")
            world.fault("lock", "a")
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            mark = b.start("bufs.append(simgpu.alloc('40GiB'))")
            await world.until(lambda: "notice" in world.scheduler.kinds("a"), "notice")
            world.fault("lock", "a", on=False)
            await b.hear("done", mark)
            assert "killed" not in world.scheduler.kinds("a")
            await b.end()
            assert (await a.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 6

    play(story())


def test_an_image_that_cannot_come_back_means_a_restart_with_a_clear_word():
    async def story():
        async with World(gpus=1) as world:
            await pressed(world, "restore")
            a = world.server.kernels["a"]
            a.start("result = 1")
            await world.until(lambda: world.server.relaunches, "relaunched")
            assert "cannot be restored" in " ".join(
                message for _, kind, message in world.scheduler.events if kind == "lost"
            )
            await world.until(lambda: "reattached" in world.scheduler.kinds("a"), "reattached")

    play(story())


def test_accounting_that_lags_is_waited_for():
    """Memory counts as free when the driver says so, not when it was given back."""

    async def story():
        async with World(gpus=1) as world:
            world.fault("lag", "600")
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('40GiB')); bufs.append(simgpu.alloc('30GiB'))")
            await a.run("bufs.pop().free()")
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            done = await b.run("bufs.append(simgpu.alloc('40GiB'))")
            assert "result" in done
            assert "suspended" not in world.scheduler.kinds("a")

    play(story())


def test_memory_that_lingers_after_death_is_not_given_to_others():
    async def story():
        async with World(gpus=1, grace_ms=100) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB'))")
            world.fault("lingers", "a")
            await a.end()
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            mark = b.start("bufs.append(simgpu.alloc('40GiB'))")
            await b.hear("waits", mark)
            await asyncio.sleep(0.3)
            assert not any("done" in body for body in b.said[mark:])
            world.fault("lingers", "a", on=False)
            assert "result" in await b.hear("done", mark)

    play(story())


def test_a_broken_restore_is_broken_for_ever():
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        node = SimNode.create(f"{folder}/n.sqlite", [SimGpu(0, "SIM-0", "Simulated", 100)])
        pid, start = os.getpid(), start_of(os.getpid())
        node.join(pid, start, "k")
        node.attach("k", [("SIM-0", 100)])
        node.allocate(pid, start, "k", 0, 80)
        node.lock(pid, start)
        assert node.checkpoint(pid, start) == 80
        other = os.getppid()
        node.join(other, start_of(other), "other")
        node.attach("other", [("SIM-0", 100)])
        taken = node.allocate(other, start_of(other), "other", 0, 30)
        for code in (2, 304, 304):
            with pytest.raises(DriverError) as error:
                node.restore(pid, start, ["SIM-0"])
            assert error.value.code == code
            node.free([taken])
        with pytest.raises(DriverError, match="401"):
            node.unlock(pid, start)
        node.close()


def test_the_host_memory_budget_is_kept():
    async def story():
        async with World(gpus=1, notice_ms=200, host_memory_mib=60 * GIB) as world:
            await pressed(world, "none")
            await world.until(lambda: "killed" in world.scheduler.kinds("a"), "the event")
            assert "host memory" in next(
                message for _, kind, message in world.scheduler.events if kind == "killed"
            )

    play(story())


def test_twenty_kernels_ask_at_once_and_nothing_is_over_committed():
    async def story():
        async with World(gpus=2) as world:
            names = [f"k{number}" for number in range(20)]
            for name in names:
                world.scheduler.grant(name, gpu=int(name[1:]) // 10, request=8 * GIB)
            children = await asyncio.gather(*(world.server.launch(name) for name in names))
            code = "bufs.append(simgpu.alloc('8GiB')); result = simgpu.device_uuid()"
            results = await asyncio.gather(*(child.run(code) for child in children))
            assert [body for body in results if "error" in body] == []
            homes = [body["result"] for body in results]
            assert sorted(homes.count(uuid) for uuid in set(homes)) == [10, 10]
            assert world.used() == {0: 80 * GIB, 1: 80 * GIB}

    play(story())


def test_over_the_limit_is_an_error_in_the_cell_and_the_kernel_lives():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF, limit=HALF)
            assert (
                "OutOfMemoryError: simulated GPU out of memory: requested 41 GiB"
                in (await a.run("simgpu.alloc('41GiB')"))["error"]
            )
            assert (await a.run("result = 5"))["result"] == 5

    play(story())


def test_two_whole_gpus_for_one_kernel():
    async def story():
        async with World() as world:
            half = await world.server.launch("half")
            world.scheduler.grant("half", gpu=0, request=HALF)
            await half.run("bufs.append(simgpu.alloc('20GiB')); bufs[0].fill(1)")
            world.scheduler.end("half")
            world.server.report_request("half", False)
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=(0, 1), request=WHOLE)
            code = (
                "bufs += [simgpu.alloc('80GiB', device=d) for d in (0, 1)]\n"
                "[b.fill(i) for i, b in enumerate(bufs)]"
            )
            assert (await a.run(code + "; result = simgpu.device_count()"))["result"] == 2
            assert (await a.ask("suspend"))["body"]["state"] == "suspended"
            assert (await a.run("result = bufs[1].sum() == bufs[1].nbytes"))["result"] is True
            assert world.used() == {0: 80 * GIB, 1: 80 * GIB}

    play(story())


def test_without_node_level_scheduling_the_same_gate_keeps_the_promise():
    async def story():
        async with World(per_gpu=None, notice_ms=200) as world:
            a = await world.server.launch("a")
            b = await world.server.launch("b")
            world.scheduler.grant("a", gpu=1, request=HALF)
            world.scheduler.grant("b", gpu=1, request=HALF)
            assert (
                await a.run("bufs.append(simgpu.alloc('70GiB')); result = simgpu.device_uuid()")
            )["result"] == "SIM-GPU-n0-1"
            assert (
                await b.run("bufs.append(simgpu.alloc('40GiB')); result = simgpu.device_uuid()")
            )["result"] == "SIM-GPU-n0-1"
            assert world.scheduler.kinds("a").count("suspended") == 1

    play(story())


def test_a_pinned_kernel_has_a_notice_although_it_is_idle():
    async def story():
        async with World(gpus=1, notice_ms=300) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('70GiB'))")
            await a.ask("pin")
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            await b.run("bufs.append(simgpu.alloc('40GiB'))")
            kinds = world.scheduler.kinds("a")
            assert kinds.index("pinned") < kinds.index("notice") < kinds.index("suspended")

    play(story())


def test_memory_given_back_during_the_notice_ends_it(tmp_path: Path):
    async def story():
        async with World(gpus=1, notice_ms=20_000) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs += [simgpu.alloc('30GiB'), simgpu.alloc('40GiB')]")
            noticed = tmp_path / "noticed"
            mark = a.start(
                f"import os\nwhile not os.path.exists({str(noticed)!r}): simgpu.busy(0.05)\n"
                "bufs.pop().free(); simgpu.busy(1)"
            )
            await a.hear("running", mark)
            b = await world.server.launch("b")
            world.scheduler.grant("b", gpu=0, request=HALF)
            asked = b.start("bufs.append(simgpu.alloc('40GiB'))")
            await world.until(lambda: "notice" in world.scheduler.kinds("a"), "notice")
            noticed.touch()
            assert "result" in await b.hear("done", asked)
            await world.until(
                lambda: any(body.get("note", {}).get("type") == "notice_over" for body in a.said),
                "told that it is over",
            )
            assert "suspended" not in world.scheduler.kinds("a")

    play(story())


def test_a_driver_that_does_not_answer_for_a_while_delays_and_breaks_nothing():
    """Somebody holds the node's file: the loop goes on, what was begun is finished when the file is
    free.
    """

    async def story():
        async with World(gpus=1) as world:
            a = await world.server.launch("a")
            b = await world.server.launch("b")
            holder = sqlite3.connect(world.state_dir / "simgpu.sqlite", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            for name in "ab":
                world.scheduler.grant(name, gpu=0, request=HALF)
            mark = a.start("bufs.append(simgpu.alloc('40GiB')); result = 'ran'")
            other = b.start("result = 'too'")
            await asyncio.sleep(0.3)
            assert not any("done" in body for body in a.said[mark:] + b.said[other:])
            holder.execute("ROLLBACK")
            holder.close()
            assert (await a.hear("done", mark))["result"] == "ran"
            assert (await b.hear("done", other))["result"] == "too"
            await world.until(
                lambda: not world.record("a").gate.running and not world.record("b").gate.running,
                "both idle",
            )

    play(story())
