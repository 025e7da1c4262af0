"""Real GPUs as the reconciler sees them: offered, foreign, lagging and saved memory, and reports to
the scheduler.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager

import pytest

from jupyter_gpushare.kernel.simnode import start_of
from jupyter_gpushare.messages import AgentHello, LeaseBody, NodeChangedReport, Share
from node_agent.app import Agent, AgentConfig
from node_agent.devices.base.model import DevicesBusy, KernelProcesses
from node_agent.devices.nvidia.nvidia_devices import NvidiaDevices
from node_agent.devices.nvidia.nvml import Nvml
from node_agent.reconcile.tenants import placed_tenant, tenant
from node_agent.system.processes import ProcessId
from tests.agent.fake_driver_kernels import loaded
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Faults

CONTEXT = 256
SLACK = 16
"""One 512th of 8 GiB, in MiB."""


@contextmanager
def devices(tmp_path, **options):
    with FakeGpuMachine(**{"gpus": 2, "memory": 8 * GIB, **options}) as machine, loaded(machine):
        found = NvidiaDevices(Nvml(), tmp_path)
        kernels = {}

        def kernel(name, gib, ordinal=0):
            worker = machine.worker()
            worker.do("alloc", ordinal, int(gib * GIB))
            kernels[name] = KernelProcesses((worker.pid, start_of(worker.pid)), "")
            found.track_kernels(kernels)
            found.read_memory()
            return worker

        found.kernel = kernel
        try:
            yield machine, found
        finally:
            found.close()


def test_a_reading_contains_offered_memory_other_processes_and_kernels(tmp_path):
    with devices(tmp_path) as (machine, found):
        found.kernel("a", 2)
        other = machine.worker()
        other.do("alloc", 0, GIB)
        found.read_memory()
        reading = found.read()
        assert {name: dict(one.held) for name, one in reading.kernels.items()} == {
            "a": {0: 2048 + CONTEXT}
        }
        assert reading.used == {0: 2048 + CONTEXT, 1: 0}
        assert reading.foreign == {0: 1024 + CONTEXT - SLACK, 1: 0}
        [first, second] = found.reports()
        assert (first.total_mib, first.foreign_mib, first.foreign_processes) == (
            8192 - SLACK,
            1024 + CONTEXT,
            1,
        )
        assert (second.used_mib, second.healthy, second.health) == (0, True, "")


def test_small_amounts_of_driver_memory_do_not_reduce_the_offer(tmp_path):
    with devices(tmp_path, context=0) as (machine, found):
        other = machine.worker()
        other.do("alloc", 0, SLACK << 20)
        found.read_memory()
        assert found.read().foreign[0] == 0


def test_lagging_memory_is_in_use_and_belongs_to_no_kernel(tmp_path):
    with devices(tmp_path) as (machine, found):
        a = found.kernel("a", 2)
        machine.set("lag_ms", 60_000)
        a.kill()
        found.read_memory()
        reading = found.read()
        assert (reading.kernels, reading.foreign[0]) == ({}, 0)
        assert reading.used[0] == 2048 + CONTEXT - SLACK


def test_a_saved_kernel_is_reported_with_its_image_and_can_be_resumed(tmp_path):
    with devices(tmp_path) as (machine, found):
        a = found.kernel("a", 2)
        found.attach({"a": [(0, 8000)]})
        assert found.attached() == {"a"}
        assert found.suspend("a", lambda _mib: "") == 2048 + CONTEXT
        holding = found.read().kernels["a"]
        assert (dict(holding.held), holding.image, holding.suspended, holding.processes) == (
            {},
            (2048 + CONTEXT,),
            True,
            ((a.pid, start_of(a.pid)),),
        )
        assert machine.state(a.pid) == "checkpointed"
        assert found.resume("a", [0]) == 2048 + CONTEXT
        holding = found.read().kernels["a"]
        assert (dict(holding.held), holding.image, holding.suspended) == (
            {0: 2048 + CONTEXT},
            (),
            False,
        )


def test_a_restarted_agent_finds_saved_kernels_and_their_gpus(tmp_path):
    with devices(tmp_path) as (machine, found):
        a = found.kernel("a", 2)
        found.suspend(
            "a", lambda _mib: ""
        )  # not attached by this agent: its GPUs are those with its memory
        found.close()
        again = NvidiaDevices(Nvml(), tmp_path)
        try:
            again.track_kernels({"a": KernelProcesses((a.pid, start_of(a.pid)), "")})
            assert again.read().kernels["a"].half_done, "the state is uncertain until it is checked"
            again.recover("a")
            assert again.read().kernels["a"].suspended
            assert again.resume("a", [0]) == 2048 + CONTEXT
            assert machine.state(a.pid) == "running"
        finally:
            again.close()


def test_one_lost_gpu_does_not_stop_copies_on_the_others(tmp_path):
    with devices(tmp_path) as (machine, found):
        found.kernel("a", 1, 1)
        machine.set("healthy", 0, gpu=0)
        assert set(found.read_memory().free) == {1}
        assert [one.healthy for one in found.reports()] == [False, True]
        machine.set("healthy", 0, gpu=1)
        with pytest.raises(DevicesBusy):
            found.read_memory()


def test_copies_know_how_much_kernels_may_still_allocate(tmp_path):
    with devices(tmp_path) as (_, found):
        found.kernel("a", 2)
        found.attach({"a": [(0, 4096)]})
        reading = found.read_memory()
        assert (reading.growth, reading.foreign_gpus) == ({"a": 2048 - CONTEXT}, frozenset())
        found.attach({"a": []})
        assert found.attached() == set()


def test_a_kernel_sees_no_gpu_before_it_has_a_share(tmp_path):
    with devices(tmp_path) as (_, found):
        assert found.environment()["CUDA_VISIBLE_DEVICES"] == ""
        assert found.driver() == "580.65.06"


def test_a_node_with_mig_instances_only_cannot_suspend(tmp_path):
    with FakeGpuMachine(gpus=1) as machine:
        machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, mig_parent=0)
        with loaded(machine):
            found = NvidiaDevices(Nvml(), tmp_path)
            try:
                found.probe()
                tiers, problems = found.capabilities()
                assert "suspend" not in tiers
                assert "MIG" in problems["suspend"]
                assert [one.mig for one in found.reports()] == [True]
            finally:
                found.close()


def suspend_is(found, expected):
    """Wait until the tier is missing for this reason; "": until it is present."""
    deadline = time.monotonic() + 30
    while not found.capabilities()[1].get("suspend", "").startswith(expected) or (
        not expected and "suspend" not in found.capabilities()[0]
    ):
        assert time.monotonic() < deadline, found.capabilities()
        time.sleep(0.02)


def test_without_free_memory_the_test_is_repeated_until_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("node_agent.devices.nvidia.capability_probe.RETRY_S", 0.1)
    with devices(tmp_path, gpus=1) as (machine, found):
        other = machine.worker()
        other.do("alloc", 0, 7 * GIB + GIB // 2)
        found.start(lambda: None)
        suspend_is(found, "no GPU has 1 GiB of free memory")
        other.kill()
        suspend_is(found, "")


def test_a_restarted_agent_does_not_test_beside_kernels_and_uses_earlier_proofs(tmp_path):
    with devices(tmp_path, gpus=1) as (machine, found):
        found.probe()
        kernel = found.kernel("a", 5)
        fault = machine.fault("cuCheckpointProcessLock", Faults.FAIL, 999, times=-1)
        again = NvidiaDevices(Nvml(), tmp_path)
        try:
            again.track_kernels({"a": KernelProcesses((kernel.pid, start_of(kernel.pid)), "")})
            again.read_memory()
            again.start(lambda: None)
            suspend_is(again, "")
            again.probe()
            assert "suspend" in again.capabilities()[0]
            assert machine.hits(fault) == 0
        finally:
            again.close()


# ---- with the agent ------------------------------------------------------------------------------


def lease(name, gpu, mib=4000, whole=8000):
    return LeaseBody(
        id=f"l-{name}",
        workload=f"w-{name}",
        pod="kernel",
        kernel_id=name,
        project="p",
        node="n0",
        pool="default",
        planned_gpus=[gpu],
        request_mib=mib,
        limit_mib=whole,
        request=Share(gpu=0.5),
    )


def test_a_process_bound_to_a_gpu_is_not_moved_and_not_saved_to_be_moved(tmp_path):
    with devices(tmp_path) as (_, found):
        agent = Agent(AgentConfig("n0", tmp_path), found)
        assert agent.node.binds_processes(), "nothing has been tested yet"
        worker = found.kernel("a", 2)
        kernel = agent.node.open_kernel("a")
        kernel.assignment.lease, kernel.assignment.assigned_gpus, kernel.assignment.bound_gpus = (
            lease("a", 0),
            (0,),
            (0,),
        )
        kernel.process.main, kernel.memory.usage = (
            ProcessId(worker.pid, start_of(worker.pid)),
            found.read().kernels["a"],
        )
        assert not placed_tenant(kernel, 0).movable
        assert tenant(kernel, 0, 30_000, 5_000).suspendable
        kernel.assignment.assigned_gpus = (1,)
        assert kernel.is_stranded()
        assert not tenant(kernel, 0, 30_000, 5_000).suspendable


class RecordingLink:
    """A scheduler that records every message."""

    def __init__(self):
        self.heard = []

    async def send(self, body):
        self.heard.append(body)

    async def __aiter__(self):
        await asyncio.Event().wait()
        yield None


def test_health_is_reported_at_once_and_measurements_rarely(tmp_path):
    async def story():
        recorder = RecordingLink()

        class Opened:
            async def __aenter__(self):
                return recorder

            async def __aexit__(self, *_):
                return None

        with devices(tmp_path) as (machine, found):
            now = 1_000_000
            agent = Agent(AgentConfig("n0", tmp_path), found, Opened, clock=lambda: now)
            found.probe()
            link = asyncio.ensure_future(agent.session.run())
            await asyncio.wait_for(agent.session.connected.wait(), 60)
            hello = next(body for body in recorder.heard if isinstance(body, AgentHello))
            assert (hello.node.driver, [one.healthy for one in hello.node.devices]) == (
                "580.65.06",
                [True, True],
            )

            def told():
                return [body.node for body in recorder.heard if isinstance(body, NodeChangedReport)]

            async def settled(count):
                async with asyncio.timeout(60):
                    while len(told()) < count:
                        await asyncio.sleep(0.01)
                return told()

            machine.worker().do("alloc", 0, GIB)
            found.read_memory()
            agent.session.report_node()
            await asyncio.sleep(0.05)
            assert told() == [], "measurements alone are delayed"
            now += 5_000
            agent.session.report_node()
            assert (await settled(1))[0].devices[0].foreign_processes == 1
            agent.session.report_node()
            machine.event(1, 8, 79)
            found.read_memory()
            agent.session.report_node()
            assert "fallen off the bus" in (await settled(2))[1].devices[1].health
            link.cancel()
            await asyncio.gather(link, return_exceptions=True)

    asyncio.run(story())
