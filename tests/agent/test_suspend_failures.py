"""The agent with a fake driver that fails: lost states, hanging copies, blocked interpreters, and
kernels that cannot be saved.
"""

from __future__ import annotations

import asyncio
import os
import signal

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from tests.agent.nvidia_node import FILL, READ, GpuNode, burst
from tests.agent.simulated_node import GIB, play
from tests.fake_driver.fake_gpu_machine import Faults


def test_a_lost_state_restarts_the_kernel_with_an_event():
    async def story():
        async with GpuNode() as world:
            a = await burst(world)
            await a.ask("suspend")
            world.machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 304, times=-1)
            a.start(READ)
            await world.until(lambda: world.server.relaunches, "relaunched", 20)
            await world.until(lambda: {"lost", "killed"} <= set(world.server.kinds("a")), "events")
            await world.until(
                lambda: world.devices._checkpoints.saved() == {},
                "the record of the old process is removed",
            )
            await world.until(
                lambda: "reattached" in world.server.kinds("a"), "the new process has its GPU"
            )
            assert world.used() == {0: 0}

    play(story())


def test_a_kernel_that_cannot_be_saved_gets_a_notice_and_is_killed_last():
    async def story():
        async with GpuNode(notice_ms=300) as world:
            a = await burst(world)
            world.machine.fault(
                "cuCheckpointProcessCheckpoint", Faults.FAIL, 801, times=-1, pid=a.pid
            )
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=60)
            kinds = world.server.kinds("a")
            assert kinds.index("notice") < kinds.index("killed")

    play(story())


def test_a_kernel_on_a_mig_instance_is_not_saved_and_its_notice_says_so():
    on_it = (
        "import os\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = {uuid!r}\n"
        "from tests.fake_driver.driver import Gpu\n"
        "gpu = Gpu(0)"
    )

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
                assert "error" not in await kernels[name].run(on_it.format(uuid=uuid), timeout=60)
                if name == "a":
                    assert "error" not in await kernels[name].run(FILL.format(gib=30, name="a"))
                    assert "instances" in str(await kernels["a"].ask("suspend")), (
                        "the owner's request is refused with the reason"
                    )
            assert "error" not in await kernels["b"].run(FILL.format(gib=10, name="b"), timeout=60)
            events = [(kind, text) for name, kind, text in world.server.events if name == "a"]
            kinds = [kind for kind, _ in events]
            assert kinds.index("notice") < kinds.index("killed")
            assert "suspended" not in kinds
            assert "cannot be saved here and will be lost" in dict(events)["notice"]
            assert "MIG instances" in dict(events)["killed"]

    play(story())


def test_a_checkpoint_worker_that_hangs_or_dies_only_costs_time():
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
            assert (await a.run(READ, timeout=60))["result"] == "tensor of a"

    play(story())


def test_a_cell_that_waits_for_a_hanging_copy_shows_size_duration_and_deadline(monkeypatch):
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
                "the copy is named",
            )
            assert "60.2 GiB" in world.record("b").gate.text
            await world.until(
                lambda: (
                    "busy for 2 s. If it does not respond, the copy is abandoned after 4 s"
                    in world.record("b").gate.text
                ),
                "the duration is named",
            )
            b = await coming
            assert "error" not in await b.run(FILL.format(gib=30, name="b"), timeout=60)
            assert world.state(a) == "checkpointed", "it was tried again"

    play(story())


def test_the_deadline_of_a_copy_depends_on_its_size():
    client = CheckpointClient()
    assert client.copy_timeout_s(512) < 25, "a small copy delays the owner little"
    assert client.copy_timeout_s(80 * GIB) > 10 * 80 / 4.6, "ten times the slowest published copy"


def test_a_blocked_interpreter_gets_its_gpu_memory_back(monkeypatch):
    """A library that keeps the GIL while it waits in the driver blocks everything in this kernel,
    including its heartbeat.
    """

    async def story():
        async with GpuNode() as world:
            monkeypatch.setattr("node_agent.reconcile.watchdog.FROZEN_MS", 2_500)
            a = await burst(world, 20)
            hold = (
                "import ctypes, threading; frozen = ctypes.PyDLL('libcuda.so.1'); "
                "frozen.cuCtxSetCurrent(gpu._context)"
            )
            await a.run(hold)
            await world.until(lambda: world.record("a").heartbeat.received_at, "heartbeat", 20)
            code = (
                "def wait(): gpu._use_context(); frozen.cuCtxSynchronize()\n"
                "threading.Timer(1.5, wait).start()"
            )
            await a.run(code)
            await a.ask("suspend")
            assert world.state(a) == "checkpointed"
            await world.until(lambda: world.state(a) == "running", "restored", 30)
            assert (await a.run(READ, timeout=60))["result"] == "tensor of a"
            assert "was blocked" in world.record("a").memory.no_suspend_reason

    play(story())
