"""Real NVIDIA GPUs as the agent sees them: the last reading, saved memory, and attached kernels.

No driver call attaches a kernel: it receives its devices and caps and selects them itself
(`jupyter_gpushare/kernel/frameworks`); where the driver enforces limits, they are set here too. So
attaching returns at once, and slow driver calls run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from jupyter_gpushare.messages import DeviceReport

from ...system.cgroups import Cgroups
from ...system.processes import ProcessId
from ..base.model import (
    Capabilities,
    CopyAdmission,
    DeviceFault,
    DevicesBusy,
    DeviceTraits,
    KernelProcesses,
    NodeReading,
    TenantMemory,
)
from ..base.process_attribution import ProcessAttribution
from .capability_probe import CapabilityProbe
from .checkpoint_client import CheckpointClient
from .checkpoint_journal import SavedKernel
from .checkpoints import Checkpoints
from .memory_limits import MemoryLimits
from .nvml import Nvml
from .nvml_types import MIB, GpuFound
from .quiesce import MemoryReading
from .sampler import GpuSample, GpuSampler, monotonic_ms
from .selftest import MIG_PROBLEM, reason_and_remedy

__all__ = ["NvidiaDevices"]

NOT_SAVED: Final = SavedKernel()


class NvidiaDevices:
    """The GPUs of one machine."""

    traits = DeviceTraits()

    def __init__(
        self,
        nvml: Nvml,
        state_dir: Path,
        driver: CheckpointClient | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        """`driver`: makes checkpoint calls; `cgroups`: for kernels; None: the defaults."""
        self._nvml = nvml
        self.cgroups = cgroups or Cgroups.detect()
        self.checkpoint_client = driver or CheckpointClient()
        self._limits = MemoryLimits(
            nvml, state_dir / "limits.json", len(nvml.gpus), lambda: self.cgroups.problem
        )
        self._limit_thread = ThreadPoolExecutor(1, thread_name_prefix="gpushare-limits")
        self._limiting: dict[str, Future[bool]] = {}
        """Per kernel, the last limits that were handed to the thread."""
        self._attribution = ProcessAttribution()
        self._sampler = GpuSampler(nvml, self._attribution)
        self._attachments: dict[str, tuple[tuple[int, int], ...]] = {}
        self._kernels: Mapping[str, KernelProcesses] = {}
        self._wake: Callable[[], None] = lambda: None
        self._probe = CapabilityProbe(
            nvml,
            self._sampler,
            self.checkpoint_client,
            self._limits,
            self.cgroups,
            state_dir / "proven.json",
            self._capabilities_changed,
        )
        self._checkpoints = Checkpoints(
            self.checkpoint_client,
            self,
            state_dir / "parked.json",
            [gpu.uuid for gpu in nvml.gpus],
            [gpu.model for gpu in nvml.gpus],
            can_relocate=lambda: self._probe.has("relocate"),
            limits_enforced=lambda: self._probe.has("limit"),
        )
        self._sampler.sample()

    def close(self) -> None:
        """Stop reading and end the checkpoint worker; saved memory stays saved."""
        self._probe.close()
        stopped = self._sampler.stop()
        self._checkpoints.close()
        self._limit_thread.shutdown(wait=True, cancel_futures=True)
        if stopped:
            self._nvml.close()

    # ---- inventory and capabilities --------------------------------------------------------------

    def reports(self) -> list[DeviceReport]:
        """The devices by index, by the last reading."""
        now = monotonic_ms()
        return [self._report(gpu, self._sampler.last, now) for gpu in self._nvml.gpus]

    def _report(self, gpu: GpuFound, sample: GpuSample, now: int) -> DeviceReport:
        problem = self._sampler.health_problem(gpu.index, now)
        memory = sample.memory.get(gpu.index)
        return DeviceReport(
            index=gpu.index,
            uuid=gpu.uuid,
            model=gpu.model,
            total_mib=gpu.total_mib,
            mig=gpu.mig,
            healthy=not problem,
            health=problem,
            used_mib=-(-memory.used // MIB) if memory else 0,
            foreign_mib=sample.account.foreign_mib.get(gpu.index, 0),
            foreign_processes=sample.account.foreign_processes.get(gpu.index, 0),
            utilization=sample.utilization.get(gpu.index),
            temperature_c=sample.temperature.get(gpu.index),
            power_w=sample.power.get(gpu.index),
        )

    def sensors(self, gpu: int, utilization: float) -> tuple[int | None, int | None]:  # noqa: ARG002 - protocol
        """Of the last reading; also in `reports`."""
        last = self._sampler.last
        return last.temperature.get(gpu), last.power.get(gpu)

    def driver(self) -> str:
        """In NVIDIA's notation: `580.65.06`."""
        return self._nvml.driver

    def attribution_problem(self) -> str:
        """Why the driver lists the processes of no device; "": it does on some."""
        return self._sampler.attribution_problem(on_all=True)

    def environment(self) -> dict[str, str]:
        """Kernels number GPUs like NVML, and see none before they have a share: otherwise they
        would use memory that was not assigned to them.
        """
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "",
            "GPUSHARE_HIDES_GPUS": "1",
        }

    def capabilities(self) -> Capabilities:
        """As far as they have been tested. A tier that some devices lack is present, and also named
        as a problem of those devices.
        """
        return self._probe.capabilities()

    def suspend_problem(self, gpu: int) -> str:
        """MIG instances cannot be saved."""
        return MIG_PROBLEM.partition(";")[0] if self._nvml.gpus[gpu].mig else ""

    def probe(self) -> None:
        """Test what this node can do. Blocks while the CUDA driver starts."""
        self._probe.run()

    def advice(self, tier: str, problem: str) -> tuple[str, str]:
        """(reason, remedy)."""
        return reason_and_remedy(tier, problem)

    def _capabilities_changed(self) -> None:
        for name in self._kernels:
            self._limit(name)
        self._wake()

    # ---- reading ---------------------------------------------------------------------------------

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """Attribute processes to these kernels."""
        if kernels != self._kernels:
            changed = [name for name, one in kernels.items() if self._kernels.get(name) != one]
            self._kernels = dict(kernels)
            for name in changed:
                self._limit(name)
            self._attribution.track(kernels)
            self._sampler.refresh()

    def start(self, wake: Callable[[], None]) -> None:
        """Start reading, and testing what the node can do."""
        self._wake = wake
        self._sampler.start(wake)
        self._probe.start()

    def refresh(self) -> None:
        """Read now."""
        self._sampler.refresh()

    def sample_fast(self, enabled: bool) -> None:
        """Read ten times a second, or once."""
        self._sampler.sample_fast(enabled)

    def take_faults(self) -> list[DeviceFault]:
        """Errors that programs caused since the last call."""
        return self._sampler.take_faults()

    def version(self) -> int:
        """Of the last reading and the capabilities."""
        return self._sampler.version + self._probe.version

    def read(self) -> NodeReading:
        """The last reading, with saved memory."""
        sample, saved = self._sampler.last, self._checkpoints.saved()
        foreign, used = {}, {}
        for gpu in self._nvml.gpus:
            other = sample.account.foreign_mib.get(gpu.index, 0)
            lagging = sample.account.lagging.get(gpu.index, 0)
            slack = self._slack(sample, gpu)
            foreign[gpu.index] = max(0, other - slack)
            held = sum(sizes.get(gpu.index, 0) for sizes in sample.account.held.values())
            used[gpu.index] = held + max(0, lagging - max(0, slack - other))
        kernels = {}
        for name in {*sample.account.held, *saved}:
            kernels[name] = _tenant_memory(name, sample, saved.get(name, NOT_SAVED))
        return NodeReading(used, kernels, foreign, sample.taken)

    def _slack(self, sample: GpuSample, gpu: GpuFound) -> int:
        """MiB that are not offered, so that small amounts used by the driver block no kernel."""
        memory = sample.memory.get(gpu.index)
        return (memory.total - memory.reserved) // MIB - gpu.total_mib if memory else 0

    # ---- attaching -------------------------------------------------------------------------------

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Record which kernels may use how much of which GPU."""
        for name, places in kernels.items():
            if places:
                self._attachments[name] = tuple(places)
            else:
                self._attachments.pop(name, None)
            self._limit(name)

    def attached(self) -> set[str]:
        """Since this agent started: the driver stores no attachments."""
        return set(self._attachments)

    def _limit(self, name: str) -> None:
        """Let the driver enforce the share (soft) and the cap (hard), and zero on other GPUs."""
        kernel = self._kernels.get(name)
        if kernel is None or not kernel.leaf or not self._probe.has("limit"):
            self._limiting.pop(name, None)
            return
        wanted = {}
        for gpu, cap in self._attachments.get(name, ()):
            wanted[gpu] = kernel.guarantee_mib, cap
        with contextlib.suppress(RuntimeError):  # the agent is stopping
            self._limiting[name] = self._limit_thread.submit(
                self._limits.apply, kernel.leaf, wanted
            )

    def when_limits_are_set(self, kernel_id: str, action: Callable[[], None]) -> None:
        """A cell that starts earlier could not allocate its share."""
        limiting = self._limiting.pop(kernel_id, None)
        if limiting is None or limiting.done():
            action()
            return
        loop = asyncio.get_running_loop()
        self._limiting[kernel_id] = limiting

        def finish(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the agent has stopped
                loop.call_soon_threadsafe(action)

        limiting.add_done_callback(finish)

    def release_cgroup(self, leaf: str) -> None:
        """Reset its limits: the driver does not notice that a cgroup is removed."""
        with contextlib.suppress(RuntimeError, CancelledError):
            self._limit_thread.submit(self._limits.clear, leaf).result()

    def orphaned_cgroups(self, alive: set[str]) -> list[str]:
        """By the record of limits."""
        return self._limits.orphaned(alive)

    # ---- copies ----------------------------------------------------------------------------------

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:
        """Save all GPU memory of a kernel; returns MiB."""
        try:
            return self._checkpoints.suspend(kernel_id, self._gpus_of(kernel_id), admit)
        finally:
            self._sample_now()

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Restore its memory on these GPUs, after its limits are set; returns MiB."""
        try:
            self._limit_thread.submit(lambda: None).result()
            return self._checkpoints.resume(kernel_id, tuple(gpus))
        finally:
            self._sample_now()

    def recover(self, kernel_id: str) -> None:
        """Finish or undo an interrupted copy."""
        try:
            self._checkpoints.recover(kernel_id)
        finally:
            self._sample_now()

    def copy_timeout_s(self, mib: int) -> float:
        """Of the call that copies; other calls have deadlines of their own."""
        return self.checkpoint_client.copy_timeout_s(mib)

    def _sample_now(self) -> None:
        self._sampler.sample()
        self._wake()

    def _gpus_of(self, kernel_id: str) -> tuple[int, ...]:
        """Its GPU per ordinal; for a kernel attached by an earlier agent, those with its memory."""
        places = self._attachments.get(kernel_id)
        if places:
            return tuple(gpu for gpu, _ in places)
        return tuple(sorted(self._sampler.last.account.held.get(kernel_id, {})))

    # ---- memory view of copies -------------------------------------------------------------------

    def read_memory(self) -> MemoryReading:
        """A new reading, for copies in their threads; a GPU that does not answer has no free
        memory. Raises DevicesBusy when none answers.
        """
        sample = self._sampler.sample()
        if not sample.memory:
            raise DevicesBusy("no GPU answers")
        account, held = sample.account, {}
        for name, processes in account.processes.items():
            held[name] = {ProcessId(*one): account.per_process[one] for one in processes}
        return MemoryReading(
            held=held,
            free={gpu: memory.free // MIB for gpu, memory in sample.memory.items()},
            growth=self._growth(sample),
            foreign_gpus=frozenset(gpu for gpu, n in account.foreign_processes.items() if n),
        )

    def _growth(self, sample: GpuSample) -> dict[str, int]:
        """How much each attached kernel may still allocate."""
        growth = {}
        for name, places in self._attachments.items():
            held = sample.account.held.get(name, {})
            growth[name] = sum(max(0, cap - held.get(gpu, 0)) for gpu, cap in places)
        return growth

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """All living processes of a kernel."""
        return self._attribution.members(kernel_id)


def _tenant_memory(name: str, sample: GpuSample, saved: SavedKernel) -> TenantMemory:
    held = sample.account.held.get(name, {})
    processes = set(sample.account.processes.get(name, ()))
    processes.update((process.pid, process.start) for process in saved.processes)
    return TenantMemory(
        held=held,
        image=saved.image if saved.suspended or saved.half_done else (),
        suspended=saved.suspended,
        half_done=saved.half_done,
        processes=tuple(sorted(processes)),
        busy_ms=sample.busy_ms.get(name, 0),
        is_timed=not (sample.untimed & set(held)),
    )
