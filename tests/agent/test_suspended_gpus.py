"""The whole agent on a played driver: notebooks share a GPU, are saved, come back at their next
cell, and survive the agent.
"""

from __future__ import annotations

import asyncio
import os
import signal

from jupyter_gpushare.messages import KernelActionRequest
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from node_agent.system.host_memory import HostReading
from tests.agent.nvidia_node import GpuNode
from tests.agent.simulated_node import GIB, play
from tests.fake_driver.fake_gpu_machine import Faults

FILL = "p = gpu.alloc({gib} << 30); gpu.write(p, b'tensor of {name}'); result = p"
READ = "result = gpu.read(p, 11).decode()"


async def burst(world: GpuNode, gib: int = 60):
    """A has half a GPU and holds more than that."""
    a = await world.kernel("a", request=40 * GIB)
    assert "error" not in await a.run(FILL.format(gib=gib, name="a"))
    return a


def test_a_burster_is_saved_when_the_owner_comes_and_is_back_at_its_next_cell():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=30)
            assert world.state(a) == "checkpointed"
            assert world.record("a").memory.usage.image == (60 * GIB + 256,)
            world.scheduler.end("b")
            await b.end()
            assert (await a.run(READ, timeout=30))["result"] == "tensor of a"
            assert world.state(a) == "running"
            assert {"suspended", "resumed"} <= set(world.server.kinds("a"))

    play(story())


def test_the_agent_is_restarted_while_a_kernel_is_saved():
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
            assert (await a.run(READ, timeout=30))["result"] == "tensor of a"

    play(story())


def test_nobody_is_let_in_beside_a_kernel_that_has_not_heard_from_the_new_agent():
    """It may be in a cell, and goes by the caps of the agent before: it could take what the other
    is let in for.
    """

    async def story():
        async with GpuNode() as world:
            a = await world.kernel("a", request=40 * GIB)
            b = await world.kernel("b", request=39 * GIB)
            stop = world.state_dir / "stop"
            mark = a.start(
                f"import time, pathlib\nwhile not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.01)"
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
                    assert world.record("b").gate.waiting, "let in beside one who may still grow"
                    assert not world.record("a").gate.connected
            finally:
                os.kill(a.pid, signal.SIGCONT)
            assert "error" not in await b.hear("done", asked)
            stop.touch()
            await a.hear("done", mark)

    play(story())


def test_an_agent_that_left_a_kernel_locked_lets_it_run_when_it_is_back():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await world.agent.stop()
            world.machine.set_state(a.pid, "locked")
            (world.state_dir / "parked.json").unlink(missing_ok=True)
            await world.start_agent()
            await world.until(lambda: world.state(a) == "running", "unlocked")
            assert (await a.run(READ, timeout=30))["result"] == "tensor of a"

    play(story())


def test_a_state_that_the_driver_gave_up_restarts_the_kernel_and_says_so():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await a.ask("suspend")
            world.machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 304, times=-1)
            a.start(READ)
            await world.until(lambda: world.server.relaunches, "relaunched", 20)
            assert {"lost", "killed"} <= set(world.server.kinds("a"))
            await world.until(
                lambda: world.devices._checkpoints.saved() == {},
                "nothing is booked for the old process",
            )
            await world.until(
                lambda: "reattached" in world.server.kinds("a"), "the new process has its GPU"
            )
            assert world.used() == {0: 0}

    play(story())


def test_a_kernel_that_cannot_be_saved_has_notice_and_is_killed_last():
    async def story():
        async with GpuNode(notice_ms=300) as world:
            a = await burst(world)
            world.machine.fault(
                "cuCheckpointProcessCheckpoint", Faults.FAIL, 801, times=-1, pid=a.pid
            )
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=30)
            kinds = world.server.kinds("a")
            assert kinds.index("notice") < kinds.index("killed")

    play(story())


def test_on_an_instance_beside_whole_gpus_nobody_tries_to_save_and_whoever_has_to_leave_is_told_the_truth():
    on_it = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = {uuid!r}\nfrom tests.fake_driver.driver import Gpu\ngpu = Gpu(0)"

    async def story():
        world = GpuNode(gpus=2, notice_ms=300, per_gpu=None)
        world.machine.set("mig_mode", 1, gpu=0)
        world.machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 << 30, mig_parent=0)
        async with world:
            assert "MIG" in world.devices.capabilities()[1]["suspend on GPU 0"]
            uuid = world.devices.reports()[0].uuid
            kernels = {}
            for name, share in (("a", 20 * GIB), ("b", 19 * GIB)):
                world.scheduler.grant(name, gpu=0, request=share, limit=40 * GIB)
                kernels[name] = await world.server.launch(name)
                await world.attached(name)
                assert "error" not in await kernels[name].run(on_it.format(uuid=uuid), timeout=30)
                if name == "a":
                    assert "error" not in await kernels[name].run(FILL.format(gib=30, name="a"))
                    assert "instances" in str(await kernels["a"].ask("suspend")), (
                        "its owner's wish has the reason too"
                    )
            assert "error" not in await kernels["b"].run(FILL.format(gib=10, name="b"), timeout=30)
            events = [(kind, text) for name, kind, text in world.server.events if name == "a"]
            kinds = [kind for kind, _ in events]
            assert kinds.index("notice") < kinds.index("killed")
            assert "suspended" not in kinds
            assert "cannot be saved here and will be lost" in dict(events)["notice"]
            assert "MIG instances" in dict(events)["killed"]

    play(story())


def test_a_helper_that_hangs_or_dies_costs_time_and_nothing_else():
    async def story():
        async with GpuNode(
            deadlines=Deadlines(state=1, lock=1, copy=1, unlock=1, mib_per_s=1 << 20)
        ) as world:
            a = await burst(world)
            fault = world.machine.fault("cuCheckpointProcessCheckpoint", Faults.HANG)
            asking = asyncio.ensure_future(a.ask("suspend"))
            await world.until(lambda: world.machine.hits(fault), "it hangs")
            await world.until(lambda: world.record("a").memory.transit is None, "given up", 20)
            await asking
            assert world.state(a) == "running"
            pid = world.devices.checkpoint_client.worker_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            assert (await a.run(READ, timeout=30))["result"] == "tensor of a"

    play(story())


def test_whoever_waits_for_a_copy_that_hangs_is_told_of_what_for_how_long_and_until_when(
    monkeypatch,
):
    monkeypatch.setattr("node_agent.reconcile.wait_text.SLOW_MS", 1000)

    async def story():
        async with GpuNode(
            notice_ms=8_000, deadlines=Deadlines(copy=4, mib_per_s=1 << 20)
        ) as world:
            a = await burst(world)
            fault = world.machine.fault("cuCheckpointProcessCheckpoint", Faults.HANG)
            coming = asyncio.ensure_future(world.kernel("b", request=39 * GIB))
            await world.until(lambda: world.machine.hits(fault), "it hangs")
            await world.until(
                lambda: "of another notebook are being saved" in world.record("b").gate.text,
                "it says what it waits for",
            )
            assert "60.2 GiB" in world.record("b").gate.text
            await world.until(
                lambda: (
                    "busy for 2 s. If it does not respond, the copy is abandoned after 4 s"
                    in world.record("b").gate.text
                ),
                "and how long",
            )
            b = await coming
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=30)
            assert world.state(a) == "checkpointed", "it was tried again"

    play(story())


def test_a_copy_has_the_time_of_its_bytes():
    patient = CheckpointClient()
    assert patient.copy_timeout_s(512) < 25, "a small one does not keep an owner waiting"
    assert patient.copy_timeout_s(80 * GIB) > 10 * 80 / 4.6, (
        "ten times as long as the slowest that was ever published"
    )


def test_a_frozen_interpreter_gets_its_gpu_back(monkeypatch):
    """A library that keeps Python's lock while it waits in the driver: nothing of this kernel runs
    any more, also not its pulse.
    """

    async def story():
        async with GpuNode() as world:
            monkeypatch.setattr("node_agent.reconcile.watchdog.FROZEN_MS", 2_500)
            a = await burst(world, 20)
            hold = "import ctypes, threading; frozen = ctypes.PyDLL('libcuda.so.1'); frozen.cuCtxSetCurrent(gpu._context)"
            await a.run(hold)
            await world.until(lambda: world.record("a").heartbeat.received_at, "its pulse", 20)
            code = (
                "threading.Timer(1.5, lambda: (gpu._here(), frozen.cuCtxSynchronize()), ()).start()"
            )
            await a.run(code)
            await a.ask("suspend")
            assert world.state(a) == "checkpointed"
            await world.until(lambda: world.state(a) == "running", "brought back", 30)
            assert (await a.run(READ, timeout=30))["result"] == "tensor of a"
            assert "was blocked" in world.record("a").memory.no_suspend_reason

    play(story())


def test_two_gpus_a_saved_kernel_follows_its_home():
    """The self-test proves that memory can move: a kernel whose GPU is needed as a whole comes back
    on the other one.
    """

    async def story():
        async with GpuNode(gpus=2) as world:
            await world.until(
                lambda: "relocate" in world.devices.capabilities()[0], "relocation proved", 30
            )
            a = await burst(world, 20)
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=10, name="b"))
            assert (
                world.record("a").assignment.current_gpus,
                world.record("b").assignment.current_gpus,
            ) == ((0,), (1,))
            c = await world.kernel("c", gpu=1, request=79 * GIB)
            assert "error" not in await c.run(FILL.format(gib=78, name="c"), timeout=30)
            assert world.used()[1] == 78 * GIB + 256
            assert (await b.run(READ, timeout=30))["result"] == "tensor of b"
            assert (await b.run("result = gpu.uuid()"))["result"] == world.machine.uuids[0]
            assert "moved" in world.server.kinds("b")
            assert (await a.run(READ))["result"] == "tensor of a"

    play(story())


def test_memory_is_granted_only_when_the_driver_has_really_freed_it():
    """The saved process is out of the list at once; its memory is still counted for a while, and an
    allocation would fail.
    """

    async def story():
        async with GpuNode() as world:
            await burst(world)
            b = await world.kernel("b", request=39 * GIB)
            world.machine.set("lag_ms", 700)
            done = await b.run(FILL.format(gib=30, name="b"), timeout=30)
            assert "error" not in done, done

    play(story())


def test_a_worker_in_a_session_of_its_own_is_saved_with_its_kernel():
    async def story():
        async with GpuNode() as world:
            a = await burst(world, 4)
            await a.run(
                "import subprocess, sys\n"
                "worker = subprocess.Popen([sys.executable, '-m', 'tests.fake_driver.memory_holder'], stdin=-1, stdout=-1, text=True, start_new_session=True)\n"
                "def tell(*words):\n"
                "    print(*words, file=worker.stdin, flush=True)\n"
                "    return worker.stdout.readline().strip()\n"
                "q = tell('alloc', 0, 8 << 30); tell('write', q, 'batch'); result = worker.pid"
            )
            worker = (await a.run("result = worker.pid"))["result"]
            await world.until(
                lambda: world.record("a").memory.used_mib == 12 * GIB + 512, "both are seen"
            )
            await a.ask("suspend")
            assert [world.state(a), world.machine.state(worker)] == ["checkpointed", "checkpointed"]
            assert world.used() == {0: 0}
            assert (await a.run("result = tell('read', q, 5)", timeout=30))["result"] == "batch"

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


def test_an_interrupt_brings_back_a_kernel_that_its_owner_suspended_in_a_cell():
    """Python in a driver call hears no signal; the server tells the agent, which brings the kernel
    back, held back or not.
    """

    async def story():
        async with GpuNode() as world:
            a = await burst(world, 4)
            mark = a.start(
                "import time\nfor turn in range(400):\n    gpu.read(p, 1)\n    time.sleep(0.05)\nresult = turn"
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


def test_a_cell_that_began_while_the_agent_was_away_gets_its_memory_back():
    """It did not ask, stands still in the driver, and nobody would ever ask for it."""

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
