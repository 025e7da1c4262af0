"""Reads the GPUs periodically in a thread, so that the event loop never waits for a driver, even
one that hangs.

Once a second normally, ten times a second while memory is moved or awaited, and at once when a
decision depends on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...policy.memory_accounting import ListedProcess, MemoryAccount, attribute_memory
from ..base.call_tracker import CALLS
from ..base.model import DeviceFault
from ..base.process_attribution import ProcessAttribution
from .health_monitor import HealthMonitor
from .nvml import Nvml
from .nvml_queries import NvmlQueries
from .nvml_types import NvmlMemory
from .unattributed_memory import UnattributedMemory

__all__ = ["GpuSample", "GpuSampler"]

log = logging.getLogger("gpushare.agent")

NORMAL_PERIOD_S: Final = 1.0
FAST_PERIOD_S: Final = 0.1
MIN_PERIOD_S: Final = 0.01
"""Between two readings, even with many refreshes."""
SILENT_MS: Final = 10_000
"""A driver that has not answered for this time makes its GPUs unhealthy."""
UTILIZATION_EVERY_MS: Final = 900
"""Utilization is read once a second, even when memory is read more often."""
INVISIBLE_PROCESS: Final = (
    "GPU %d: the driver lists process %d, which is not visible here; its memory counts as that of "
    "other processes. If this persists, the agent runs in a pid namespace of its own and cannot "
    "recognise kernels: use the host's (hostPID: true, `docker run --pid=host`)"
)
"""Logged once per device: it also happens when a process ends between two calls."""
ESTIMATED_MEMORY: Final = (
    "GPU %d: the driver does not report the memory of each process (WSL, some virtual GPUs); it is "
    "divided evenly among them, so that shares are enforced only approximately"
)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The GPUs at `taken` (monotonic ms). `memory` lacks devices that did not answer."""

    taken: int = -1
    memory: Mapping[int, NvmlMemory] = field(default_factory=dict)
    account: MemoryAccount = field(default_factory=MemoryAccount)
    busy_ms: Mapping[str, int] = field(default_factory=dict)
    utilization: Mapping[int, float] = field(default_factory=dict)
    temperature: Mapping[int, int] = field(default_factory=dict)
    power: Mapping[int, int] = field(default_factory=dict)
    untimed: frozenset[int] = frozenset()
    """Devices that do not report the utilization of each process."""

    def content(self) -> tuple[object, ...]:
        """All that decisions depend on: not the time, and not the sensors, which never rest."""
        return self.memory, self.account, self.busy_ms, self.utilization


def monotonic_ms() -> int:
    """The agent's clock."""
    return time.monotonic_ns() // 1_000_000


class GpuSampler:
    """Readings of one node. `last` is replaced as a whole."""

    def __init__(self, nvml: Nvml, attribution: ProcessAttribution) -> None:
        self._nvml, self._attribution = nvml, attribution
        self._indexes = [gpu.index for gpu in nvml.gpus]
        self._sampling = threading.Lock()
        self._refresh = threading.Event()
        self._fast = False
        self._stopped = False
        self._wake: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._queries = NvmlQueries()
        self._health = HealthMonitor(nvml, self._queries)
        self._unattributed = UnattributedMemory(self._indexes)
        self._utilization_read = -UTILIZATION_EVERY_MS
        self._since: dict[int, int] = {}
        self._busy: dict[str, float] = {}
        self._listed: dict[int, list[ListedProcess]] = {}
        self._invisible_logged: set[int] = set()
        self._estimated_logged: set[int] = set()
        self._changed_samples = 0
        self.last = GpuSample()

    @property
    def version(self) -> int:
        """Changes when the last reading or the health of a device has changed."""
        return self._changed_samples + self._queries.changes + self._health.changes

    # ---- the thread ------------------------------------------------------------------------------

    def start(self, wake: Callable[[], None]) -> None:
        """Start reading; the thread calls `wake` after changes."""
        self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpushare-nvml", daemon=True)
            self._thread.start()

    def stop(self) -> bool:
        """False: a reading hangs in the driver, and its thread was abandoned after a second."""
        self._stopped = True
        self._refresh.set()
        if self._thread is None:
            return True
        self._thread.join(timeout=1.0)
        return not self._thread.is_alive()

    def refresh(self) -> None:
        """Read now, in the thread."""
        self._refresh.set()

    def sample_fast(self, enabled: bool) -> None:
        """Set the period."""
        if enabled and not self._fast:
            self._refresh.set()
        self._fast = enabled

    def _run(self) -> None:
        while True:
            requested = self._refresh.wait(FAST_PERIOD_S if self._fast else NORMAL_PERIOD_S)
            if self._stopped:
                return
            self._refresh.clear()
            before = self.version
            try:
                self.sample()
            except Exception:  # the thread must survive every error of a driver
                log.exception("reading the GPUs failed and is retried")
            if requested or self.version != before:
                self._wake()
            time.sleep(MIN_PERIOD_S)

    # ---- one reading -----------------------------------------------------------------------------

    def sample(self) -> GpuSample:
        """Read every device now. Thread-safe; concurrent calls wait for each other."""
        with self._sampling:
            now = monotonic_ms()
            memory = self._read_memory()
            account = self._attribute(now, memory)
            utilization, temperature, power = (
                self.last.utilization,
                self.last.temperature,
                self.last.power,
            )
            if now - self._utilization_read >= UTILIZATION_EVERY_MS:
                utilization = self._read_utilization(now, account)
                temperature = self._read_sensor("temperature", self._nvml.temperature)
                power = self._read_sensor("power", self._nvml.power)
            self._health.read_events(account, self._busy, self.last.busy_ms)
            self._health.check(now)
            sample = GpuSample(
                taken=now,
                memory=memory,
                account=account,
                busy_ms={name: int(ms) for name, ms in self._busy.items()},
                utilization=utilization,
                temperature=temperature,
                power=power,
                untimed=frozenset(self._queries.unsupported("process_utilization")),
            )
            if sample.content() != self.last.content():
                self._changed_samples += 1
            self.last = sample
            return sample

    def _read_memory(self) -> dict[int, NvmlMemory]:
        found = {}
        for gpu in self._indexes:
            memory = self._queries.query("memory", gpu, partial(self._nvml.memory, gpu))
            if memory is not None:
                found[gpu] = memory
        return found

    def _attribute(self, now: int, memory: Mapping[int, NvmlMemory]) -> MemoryAccount:
        listed: list[ListedProcess] = []
        for gpu in memory:
            self._listed[gpu] = self._list(gpu)
            listed += self._listed[gpu]
        used = {gpu: one.used for gpu, one in memory.items()}
        account = attribute_memory(used, listed, self._unattributed.persistent(now))
        self._unattributed.record(now, account.unattributed)
        if unknown := account.estimated - self._estimated_logged:
            self._estimated_logged |= unknown
            log.warning(ESTIMATED_MEMORY, min(unknown))
        return account

    def _list(self, gpu: int) -> list[ListedProcess]:
        """Its processes; the previous list when the driver does not answer this time."""
        processes = self._queries.query("processes", gpu, partial(self._nvml.processes, gpu))
        if processes is None:
            return self._listed.get(gpu, [])
        listed = []
        for process in processes:
            start, owner = self._attribution.owner_of(process.pid)
            listed.append(ListedProcess(gpu, process.pid, start, process.size, owner))
        invisible = [process.pid for process in listed if not process.start]
        if invisible and gpu not in self._invisible_logged:
            self._invisible_logged.add(gpu)
            log.warning(INVISIBLE_PROCESS, gpu, invisible[0])
        return listed

    def _read_sensor(self, name: str, read: Callable[[int], int]) -> dict[int, int]:
        found = {}
        for gpu in self._indexes:
            value = self._queries.query(name, gpu, partial(read, gpu))
            if value is not None:
                found[gpu] = value
        return found

    # ---- utilization -----------------------------------------------------------------------------

    def _read_utilization(self, now: int, account: MemoryAccount) -> dict[int, float]:
        elapsed = 0
        if self._utilization_read >= 0:
            elapsed = min(now - self._utilization_read, 2 * int(NORMAL_PERIOD_S * 1000))
        self._utilization_read = now
        owners = {}
        for name, processes in account.processes.items():
            owners.update({pid: name for pid, _ in processes})
        found = {}
        for gpu in self._indexes:
            total = self._queries.query("utilization", gpu, partial(self._nvml.utilization, gpu))
            if total is not None:
                found[gpu] = round(total, 2)
            self._add_busy_time(gpu, owners, elapsed)
        return found

    def _add_busy_time(self, gpu: int, owners: Mapping[int, str], elapsed: int) -> None:
        is_first = gpu not in self._since
        read = partial(self._nvml.process_utilization, gpu, self._since.get(gpu, 0))
        result = self._queries.query("process_utilization", gpu, read)
        if result is None:
            return
        shares, self._since[gpu] = result
        for pid, share in shares.items():
            if pid in owners and not is_first:  # the first result covers time before the agent
                name = owners[pid]
                self._busy[name] = self._busy.get(name, 0.0) + share * elapsed

    # ---- health ----------------------------------------------------------------------------------

    def health_problem(self, gpu: int, now: int) -> str:
        """Why a device is unhealthy, in one sentence; "": it is healthy."""
        silent_for = now - self.last.taken
        if self.last.taken >= 0 and silent_for > SILENT_MS:
            call = CALLS.longest()
            name = f" ({call.name})" if call else ""
            return f"The driver has not answered for {silent_for // 1000} s{name}."
        return self._health.problem(gpu)

    def take_faults(self) -> list[DeviceFault]:
        """Errors that programs caused since the last call."""
        return self._health.take_faults()

    def attribution_problem(self, *, on_all: bool = False) -> str:
        """Why the driver does not list the processes of some device (`on_all`: of any device); "":
        it does.
        """
        problems = self._queries.unsupported("processes")
        if on_all and len(problems) < len(self._indexes):
            return ""
        return next(iter(problems.values()), "")
