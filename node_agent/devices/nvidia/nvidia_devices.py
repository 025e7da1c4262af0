"""Real NVIDIA GPUs as the agent sees them: what the sampler saw, what is parked in host memory, and
who was attached where.

A kernel is not attached by any call of the driver: it is told its devices and its caps and chooses
them itself (`kernel/frameworks.py`); where the driver enforces limits they are set here too. So
attaching returns at once, and what the driver needs time for happens in threads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from jupyter_gpushare.messages import DeviceReport

from ...system.cgroups import Cgroups
from ...system.processes import ProcessId
from ..base.model import (
    TIERS,
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
from .checkpoint_client import CheckpointClient
from .checkpoint_journal import CheckpointJournal
from .checkpoints import Checkpoints, MemoryReading
from .memory_limits import MemoryLimits
from .nvml import Nvml, NvmlFailed
from .nvml_types import MIB
from .sampler import GpuSample, GpuSampler, monotonic_ms
from .selftest import INSTANCES, SelfTest, advised, tested, waits_for_room
from .selftest_cache import SelfTestCache

__all__ = ["NvidiaDevices"]

log = logging.getLogger("gpushare.agent")

UNTESTED: Final = "it is being tested"
NOTHING: Final = CheckpointJournal()
TRY_AGAIN_S: Final = 5.0
"""Between two looks for room to test in."""


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
        """`driver`: the hand in the CUDA driver; `cgroups`: where kernels get theirs; None: the
        usual ones.
        """
        self._nvml = nvml
        self.cgroups = cgroups or Cgroups.here()
        self._limits = MemoryLimits(
            nvml, state_dir / "limits.json", len(nvml.gpus), lambda: self.cgroups.problem
        )
        self._limiter = ThreadPoolExecutor(1, thread_name_prefix="gpushare-limits")
        self._owners = ProcessAttribution()
        self._sampler = GpuSampler(nvml, self._owners)
        self._places: dict[str, tuple[tuple[int, int], ...]] = {}
        self._kernels: Mapping[str, KernelProcesses] = {}
        self._tiers: dict[str, str] = dict.fromkeys(TIERS, UNTESTED) | {
            "observe": "",
            "cooperate": "",
        }
        self._tiers_version = 0
        self._closed = threading.Event()
        self._proof = SelfTestCache(
            state_dir / "proven.json", nvml.driver_version(), [gpu.uuid for gpu in nvml.gpus]
        )
        self.checkpointer = driver or CheckpointClient()
        self._copies = Checkpoints(
            self.checkpointer,
            self,
            state_dir / "parked.json",
            [gpu.uuid for gpu in nvml.gpus],
            [gpu.model for gpu in nvml.gpus],
            relocates=lambda: not self._tiers["relocate"],
            limited=lambda: not self._tiers["limit"],
        )
        self._wake: Callable[[], None] = lambda: None
        self._sampler.look()

    def close(self) -> None:
        """Stop looking, end the helper; what is saved stays saved."""
        self._closed.set()
        stopped = self._sampler.stop()
        self._copies.close()
        self._limiter.shutdown(wait=True, cancel_futures=True)
        if stopped:
            self._nvml.close()

    # ---- what is here ----------------------------------------------------------------------------

    def reports(self) -> list[DeviceReport]:
        """The devices by index, as they were seen last."""
        sample, now = self._sampler.last, monotonic_ms()
        found = []
        for gpu in self._nvml.gpus:
            health, memory = self._sampler.health(gpu.index, now), sample.memory.get(gpu.index)
            found.append(
                DeviceReport(
                    index=gpu.index,
                    uuid=gpu.uuid,
                    model=gpu.model,
                    total_mib=gpu.total_mib,
                    mig=gpu.mig,
                    healthy=not health,
                    health=health,
                    used_mib=-(-memory.used // MIB) if memory else 0,
                    foreign_mib=sample.account.foreign_mib.get(gpu.index, 0),
                    foreign_processes=sample.account.foreign_processes.get(gpu.index, 0),
                    utilization=sample.utilization.get(gpu.index),
                )
            )
        return found

    def driver(self) -> str:
        """As NVIDIA writes it."""
        return self._nvml.driver_version()

    def attribution_problem(self) -> str:
        """Why the driver names the processes of no device; "": it does on some."""
        return self._sampler.unlisted(everywhere=True)

    def environment(self) -> dict[str, str]:
        """GPUs are counted as NVML counts them; and a kernel sees none before it has a share: it
        would take what is nobody's to give.
        """
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "",
            "GPUSHARE_HIDES_GPUS": "1",
        }

    def capabilities(self) -> Capabilities:
        """As far as they have been tested. A tier that not all devices have is there, and named
        again with those that lack it.
        """
        problems = {tier: why for tier, why in self._tiers.items() if why}
        cut = [str(gpu.index) for gpu in self._nvml.gpus if gpu.mig]
        if cut and not self._tiers["suspend"]:
            problems[f"suspend on GPU {', '.join(cut)}"] = INSTANCES
        return Capabilities([tier for tier in TIERS if not self._tiers[tier]], problems)

    def suspend_problem(self, gpu: int) -> str:
        """Instances (MIG)."""
        return INSTANCES.partition(";")[0] if self._nvml.gpus[gpu].mig else ""

    def found(self, tiers: Mapping[str, str]) -> None:
        """What the self-test found: for each tier "" or why it is missing."""
        if tiers.items() <= self._tiers.items():
            return
        self._tiers = {**self._tiers, **tiers}
        self._tiers_version += 1
        self._wake()

    def probe(self) -> None:
        """Find out what this node can do. Blocks for as long as the CUDA driver needs to start."""
        sample, proven = self._sampler.last, self._proof.read()
        free = {gpu: told.free // MIB for gpu, told in sample.memory.items()}
        unlisted, in_use = self._sampler.unlisted(), any(sample.account.held.values())
        bench = SelfTest(
            self._nvml.gpus,
            self.checkpointer,
            self._limits,
            self.cgroups,
            unlisted,
            free,
            proven,
            in_use,
            self._pids,
        )
        self.found(tested(bench))
        self._proof.write(tier for tier in ("suspend", "relocate") if not self._tiers[tier])
        for name in self._kernels:
            self._limit(name)

    def advice(self, tier: str, problem: str) -> tuple[str, str]:
        """(reason, remedy)."""
        return advised(tier, problem)

    def _pids(self, gpu: int) -> list[int] | None:
        with contextlib.suppress(NvmlFailed):
            return [one.pid for one in self._nvml.processes(gpu)]
        return None

    # ---- looking ---------------------------------------------------------------------------------

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """Whose processes are looked for from now on."""
        if kernels != self._kernels:
            changed = [name for name, kin in kernels.items() if self._kernels.get(name) != kin]
            self._kernels = dict(kernels)
            for name in changed:
                self._limit(name)
            self._owners.follow(kernels)
            self._sampler.hurry()

    def start(self, wake: Callable[[], None]) -> None:
        """Look from now on, and find out what the node can do."""
        self._wake = wake
        self._sampler.start(wake)
        threading.Thread(target=self._probe, name="gpushare-probe", daemon=True).start()

    def _probe(self) -> None:
        """An agent that comes back in the middle of things goes on saving memory from its first
        moment on.
        """
        self.found(dict.fromkeys(self._proof.read(), ""))
        self._probe_once()
        while waits_for_room(self._tiers.values()) and not self._closed.wait(TRY_AGAIN_S):
            self._probe_once()

    def _probe_once(self) -> None:
        try:
            self.probe()
        except Exception:  # a test that fails in a new way must leave the agent running
            log.exception("the self-test failed")
            self.found(
                {
                    tier: "its test failed; the agent's log says how"
                    for tier, why in self._tiers.items()
                    if why == UNTESTED
                }
            )

    def refresh(self) -> None:
        """Look at once."""
        self._sampler.hurry()

    def sample_fast(self, closely: bool) -> None:
        """Ten times a second, or once."""
        self._sampler.pace(closely)

    def take_faults(self) -> list[DeviceFault]:
        """What programs did to the GPUs since this was last asked."""
        return self._sampler.take_faults()

    def version(self) -> int:
        """Of the last look."""
        return self._sampler.version + self._tiers_version

    def read(self) -> NodeReading:
        """What was seen last, with what is parked."""
        sample, parked = self._sampler.last, self._copies.parked()
        foreign, used = {}, {}
        for gpu in self._nvml.gpus:
            slack = self._slack(sample, gpu.index)
            stranger, lag = (
                sample.account.foreign_mib.get(gpu.index, 0),
                sample.account.lagging.get(gpu.index, 0),
            )
            foreign[gpu.index] = max(0, stranger - slack)
            held = sum(of.get(gpu.index, 0) for of in sample.account.held.values())
            used[gpu.index] = held + max(0, lag - max(0, slack - stranger))
        kernels = {
            name: self._holding(name, sample, parked.get(name, NOTHING))
            for name in {*sample.account.held, *parked}
        }
        return NodeReading(used, kernels, foreign, sample.taken)

    def _slack(self, sample: GpuSample, gpu: int) -> int:
        """What is offered to nobody, so that a little of the driver's own does not stand in
        anybody's way.
        """
        memory = sample.memory.get(gpu)
        return (
            (memory.total - memory.reserved) // MIB - self._nvml.gpus[gpu].total_mib
            if memory
            else 0
        )

    def _holding(self, name: str, sample: GpuSample, parked: CheckpointJournal) -> TenantMemory:
        held = sample.account.held.get(name, {})
        processes = set(sample.account.processes.get(name, ())) | {
            (one.pid, one.start) for one in parked.processes
        }
        timed = not (sample.untimed & set(held))
        return TenantMemory(
            held,
            parked.image if parked.suspended or parked.half_done else (),
            parked.suspended,
            parked.half_done,
            tuple(sorted(processes)),
            sample.busy_ms.get(name, 0),
            timed,
        )

    # ---- attaching -------------------------------------------------------------------------------

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Remember who may hold how much where."""
        for name, places in kernels.items():
            if places:
                self._places[name] = tuple(places)
            else:
                self._places.pop(name, None)
            self._limit(name)

    def _limit(self, name: str) -> None:
        """Let the driver enforce it: soft is the share, hard the cap, and nothing on GPUs that are
        not its own.
        """
        kin = self._kernels.get(name)
        if kin is None or not kin.leaf or "limit" not in self.capabilities()[0]:
            return
        wanted = {gpu: (kin.guarantee_mib, cap) for gpu, cap in self._places.get(name, ())}
        with contextlib.suppress(RuntimeError):  # the agent stops
            self._limiter.submit(self._limits.apply, kin.leaf, wanted)

    def release_cgroup(self, leaf: str) -> None:
        """Zero its limits: the driver does not see that a cgroup goes."""
        with contextlib.suppress(RuntimeError, CancelledError):
            self._limiter.submit(self._limits.clear, leaf).result()

    def orphaned_cgroups(self, alive: set[str]) -> list[str]:
        """From the record of what was set."""
        return self._limits.left_behind(alive)

    def attached(self) -> set[str]:
        """Since this agent started: the driver remembers nobody."""
        return set(self._places)

    # ---- copying ---------------------------------------------------------------------------------

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:
        """Save all memory of a kernel; returns MiB."""
        try:
            return self._copies.suspend(kernel_id, self._where(kernel_id), admit)
        finally:
            self._look_again()

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Bring it back onto these GPUs; returns MiB. Its limits stand before its memory comes."""
        try:
            self._limiter.submit(lambda: None).result()
            return self._copies.resume(kernel_id, tuple(gpus))
        finally:
            self._look_again()

    def recover(self, kernel_id: str) -> None:
        """Set right what was cut off."""
        try:
            self._copies.settle(kernel_id)
        finally:
            self._look_again()

    def copy_timeout_s(self, mib: int) -> float:
        """Of the call that copies; looking and locking have deadlines of their own."""
        return self.checkpointer.copy_s(mib)

    def _look_again(self) -> None:
        """What was copied is seen at once, not a second later."""
        self._sampler.look()
        self._wake()

    def _where(self, kernel_id: str) -> tuple[int, ...]:
        """Its GPU per ordinal; of one that was attached before this agent started, where it holds
        memory.
        """
        places = self._places.get(kernel_id)
        held = self._sampler.last.account.held.get(kernel_id, {})
        return tuple(gpu for gpu, _ in places) if places else tuple(sorted(held))

    def look(self) -> MemoryReading:
        """For copies, in their threads: read anew; a GPU that does not answer has nothing free.
        Raises DevicesBusy when none does.
        """
        sample = self._sampler.look()
        if not sample.memory:
            raise DevicesBusy("no GPU answers")
        account = sample.account
        held = {
            name: {ProcessId(*process): account.each[process] for process in processes}
            for name, processes in account.processes.items()
        }
        free = {gpu: told.free // MIB for gpu, told in sample.memory.items()}
        strangers = frozenset(gpu for gpu, count in account.foreign_processes.items() if count)
        return MemoryReading(held, free, self._growth(sample), strangers)

    def _growth(self, sample: GpuSample) -> dict[str, int]:
        """How much each attached kernel may still take."""
        grown = {}
        for name, places in self._places.items():
            held = sample.account.held.get(name, {})
            grown[name] = sum(max(0, cap - held.get(gpu, 0)) for gpu, cap in places)
        return grown

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """All living processes of a kernel."""
        return self._owners.members(kernel_id)
