"""The whole agent with a fake driver: notebooks share a GPU, are saved, are restored at their next
cell, and survive the agent.
"""

from __future__ import annotations

import asyncio
import os
import signal

from jupyter_gpushare.messages import KernelActionRequest
from node_agent.system.host_memory import HostReading
from tests.agent.nvidia_node import FILL, READ, GpuNode, burst
from tests.agent.simulated_node import GIB, play


def test_a_bursting_kernel_is_saved_for_the_owner_and_restored_at_its_next_cell():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=60)
            assert world.state(a) == "checkpointed"
            assert world.record("a").memory.usage.image == (60 * GIB + 256,)
            world.scheduler.end("b")
            await b.end()
            assert (await a.run(READ, timeout=60))["result"] == "tensor of a"
            assert world.state(a) == "running"
            await world.until(
                lambda: {"suspended", "resumed"} <= set(world.server.kinds("a")), "both events"
            )

    play(story())


def test_a_saved_kernel_survives_a_restart_of_the_agent():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await a.ask("suspend")
            assert world.state(a) == "checkpointed"
            await world.agent.stop()
            await world.start_agent()
            await world.until(
                lambda: (
                    world.record("a").memory.suspended and world.record("a").memory.transit is None
                ),
                "found again",
            )
            assert world.record("a").memory.usage.image == (60 * GIB + 256,)
            assert (await a.run(READ, timeout=60))["result"] == "tensor of a"

    play(story())


def test_no_cell_starts_beside_a_kernel_that_is_not_connected_to_the_new_agent():
    """It may be running a cell with caps from the earlier agent, and could allocate the memory of
    the other one.
    """

    async def story():
        async with GpuNode() as world:
            a = await world.kernel("a", request=40 * GIB)
            b = await world.kernel("b", request=39 * GIB)
            stop = world.state_dir / "stop"
            mark = a.start(
                "import time, pathlib\n"
                f"while not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.01)"
            )
            await a.hear("running", mark)
            os.kill(a.pid, signal.SIGSTOP)  # it cannot connect again
            try:
                await world.agent.stop()
                await world.start_agent()
                asked = b.start("result = 1")
                await world.until(lambda: world.record("b").gate.waiting, "it asks")
                await world.until(
                    lambda: (
                        world.agent.node.has_plan
                        and not any(world.record(one).memory.transit for one in "ab")
                    ),
                    "settled",
                )
                for _ in range(5):
                    await asyncio.to_thread(world.devices._sampler.sample)
                    world.agent.reconciler.try_step()
                    assert world.record("b").gate.waiting, "the other kernel may still allocate"
                    assert not world.record("a").gate.connected
            finally:
                os.kill(a.pid, signal.SIGCONT)
            assert "error" not in await b.hear("done", asked)
            stop.touch()
            await a.hear("done", mark)

    play(story())


def test_a_restarted_agent_unlocks_a_kernel():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await world.agent.stop()
            world.machine.set_state(a.pid, "locked")
            (world.state_dir / "parked.json").unlink(missing_ok=True)
            await world.start_agent()
            await world.until(lambda: world.state(a) == "running", "unlocked")
            assert (await a.run(READ, timeout=60))["result"] == "tensor of a"

    play(story())


def test_a_saved_kernel_moves_to_its_newly_assigned_gpu():
    """Memory can move between GPUs: a kernel whose GPU is required as a whole is restored on the
    other one.
    """

    async def story():
        async with GpuNode(gpus=2) as world:
            await world.until(
                lambda: "relocate" in world.devices.capabilities()[0], "relocation tested", 30
            )
            a = await burst(world, 20)
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=10, name="b"))
            assert (
                world.record("a").assignment.current_gpus,
                world.record("b").assignment.current_gpus,
            ) == ((0,), (1,))
            c = await world.kernel("c", gpu=1, request=79 * GIB)
            assert "error" not in await c.run(FILL.format(gib=78, name="c"), timeout=60)
            assert world.used()[1] == 78 * GIB + 256
            assert (await b.run(READ, timeout=60))["result"] == "tensor of b"
            assert (await b.run("result = gpu.uuid()"))["result"] == world.machine.uuids[0]
            await world.until(lambda: "moved" in world.server.kinds("b"), "the event")
            assert (await a.run(READ))["result"] == "tensor of a"

    play(story())


def test_memory_is_granted_only_after_the_driver_has_freed_it():
    """A saved process leaves the list at once, but its memory is in use for a while, and an
    allocation would fail.
    """

    async def story():
        async with GpuNode() as world:
            await burst(world)
            b = await world.kernel("b", request=39 * GIB)
            world.machine.set("lag_ms", 700)
            done = await b.run(FILL.format(gib=30, name="b"), timeout=60)
            assert "error" not in done, done

    play(story())


def test_a_worker_in_another_session_is_saved_with_its_kernel():
    async def story():
        async with GpuNode() as world:
            a = await burst(world, 4)
            await a.run(
                "import subprocess, sys\n"
                "command = [sys.executable, '-m', 'tests.fake_driver.memory_holder']\n"
                "worker = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, "
                "start_new_session=True)\n"
                "def tell(*words):\n"
                "    print(*words, file=worker.stdin, flush=True)\n"
                "    return worker.stdout.readline().strip()\n"
                "q = tell('alloc', 0, 8 << 30); tell('write', q, 'batch'); result = worker.pid"
            )
            worker = (await a.run("result = worker.pid"))["result"]
            await world.until(
                lambda: world.record("a").memory.used_mib == 12 * GIB + 512, "both are counted"
            )
            await a.ask("suspend")
            assert [world.state(a), world.machine.state(worker)] == ["checkpointed", "checkpointed"]
            assert world.used() == {0: 0}
            assert (await a.run("result = tell('read', q, 5)", timeout=60))["result"] == "batch"

    play(story())


def test_a_kernel_that_ends_while_it_is_saved_leaves_nothing():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await a.ask("suspend")
            world.scheduler.end("a")
            await a.end()
            await world.until(lambda: not world.devices._checkpoints.saved(), "forgotten")
            await world.until(
                lambda: (
                    sum(kernel.memory.saved_mib for kernel in world.agent.node.kernels.values())
                    == 0
                ),
                "no image is booked",
            )
            b = await world.kernel("b", request=79 * GIB)
            assert "error" not in await b.run(FILL.format(gib=78, name="b"))

    play(story())


def test_a_machine_without_room_for_the_image_says_so_and_nobody_is_killed_for_nothing(monkeypatch):
    async def story():
        async with GpuNode() as world:
            monkeypatch.setattr(
                "node_agent.reconcile.memory_mover.read_host",
                lambda _: HostReading(64 * GIB, 30 * GIB),
            )
            a = await burst(world)
            assert "not enough free memory" in str(await a.ask("suspend"))
            assert world.state(a) == "running"
            assert world.record("a").memory.transit is None

    play(story())


def test_an_interrupt_resumes_a_kernel_that_its_owner_suspended_in_a_cell():
    """Python in a driver call handles no signal; the server notifies the agent, which resumes the
    kernel even if the user suspended it.
    """

    async def story():
        async with GpuNode() as world:
            a = await burst(world, 4)
            mark = a.start(
                "import time\n"
                "for turn in range(400):\n"
                "    gpu.read(p, 1)\n"
                "    time.sleep(0.05)\n"
                "result = turn"
            )
            await a.hear("running", mark)
            world.server.send(KernelActionRequest(n=76, kernel_id="a", action="suspend"))
            await world.until(
                lambda: (
                    world.state(a) == "checkpointed" and world.record("a").memory.transit is None
                ),
                "saved",
            )
            assert world.record("a").preferences.suspended_by_user
            world.server.send(KernelActionRequest(n=77, kernel_id="a", action="resume"))
            await world.until(lambda: world.state(a) == "running", "brought back")
            os.kill(a.pid, signal.SIGINT)
            assert "KeyboardInterrupt" in (await a.hear("error", mark))["error"]

    play(story())


def test_a_cell_that_started_without_the_agent_gets_its_memory_back():
    """It sent no request and is blocked in the driver."""

    async def story():
        async with GpuNode() as world:
            a = await burst(world, 4)
            await a.run(
                "import threading, __main__\n"
                "out, link = [], __main__.link\n"
                "def cell():\n"
                "    while link.kernel['state'] != 'suspended': time.sleep(0.01)\n"
                "    link.send({'type': 'cell_start', 'n': 999, 'running': True, 'wait': True})\n"
                "    out.append(gpu.read(p, 11).decode())\n"
                "threading.Thread(target=cell, daemon=True).start()"
            )
            await a.ask("suspend")
            await world.until(lambda: world.state(a) == "running", "brought back", 20)
            assert (await a.run("result = out"))["result"] == ["tensor of a"]

    play(story())
