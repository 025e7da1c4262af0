"""A typed wrapper of NVML, and the only module that imports `pynvml`. Every failure is an
`NvmlFailed`, so that each capability can fail separately.

Only this module knows the differences between drivers 535 to 615. Amounts are bytes as NVML gives
them; only the size that a GPU offers is MiB. Handles belong to the process that created them: a
forked child needs an `Nvml` of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import pynvml

from jupyter_gpushare.core.model.errors import Unavailable

from ..base.call_tracker import CALLS
from .nvml_types import GpuEvent, GpuFound, NvmlMemory, ProcessUse, offered_mib

__all__ = ["Nvml", "NvmlFailed"]

NO_LIMIT: Final = 0xFFFFFFFFFFFFFFFF
BROKEN_LIST_DRIVERS: Final = ((535, 43), (535, 98))
"""From the first of these drivers to just before the second, version 3 of the process lists has
longer entries than callers expect: https://github.com/XuehaiPan/nvitop/pull/89. Some later drivers
lack it. Version 2 is correct in all of them.
"""
START_PROBLEMS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "no NVIDIA driver was found on this machine (libnvidia-ml.so.1 is missing); install it, or "
        "give the container access to the GPUs (`docker run --gpus all`, the NVIDIA runtime class)"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded (NVML: Driver Not Loaded); load it with "
        "`modprobe nvidia`, or restart the machine, until `nvidia-smi` works"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was updated while the old one still runs (NVML: driver/library version "
        "mismatch); restart the machine"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "this user may not use the NVIDIA driver (NVML: Insufficient Permissions); give it access "
        "to /dev/nvidiactl and /dev/nvidia*"
    ),
}
HEALTH_EVENTS: Final = {
    "xid": 0x8,
    "ecc": 0x2,
    "mig": 0x100,
    "unavailable": 0x4000,
    "recovery": 0x8000,
}
"""nvmlEventTypeXidCriticalError, DoubleBitEccError, MigConfigChange, GpuUnavailableError,
GpuRecoveryAction. As numbers: not every nvidia-ml-py defines all of them.
"""
RECOVERY_ACTION_FIELD: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""
MAX_PERCENT: Final = 100
"""Some drivers return samples with larger, meaningless numbers
(https://github.com/Syllo/nvtop/issues/110).
"""
MAX_EVENTS: Final = 64
"""Events read at once: a failing GPU sends many."""


class NvmlFailed(Exception):
    """Raised when a call of NVML failed: its name, error code and message."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.code, self.text = call, code, text

    @property
    def is_missing(self) -> bool:
        """This driver or GPU does not support the call."""
        return self.code in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)

    @property
    def is_refused(self) -> bool:
        """This user lacks the permission."""
        return bool(self.code == pynvml.NVML_ERROR_NO_PERMISSION)

    @property
    def is_not_found(self) -> bool:
        """The object does not exist: a sample, a cgroup."""
        return bool(self.code == pynvml.NVML_ERROR_NOT_FOUND)

    @property
    def is_os_error(self) -> bool:
        """The operating system failed: for instance, a cgroup was removed and cannot be opened."""
        return bool(self.code == pynvml.NVML_ERROR_OPERATING_SYSTEM)

    @property
    def is_lost(self) -> bool:
        """The GPU no longer answers."""
        return self.code in (
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_RESET_REQUIRED,
            pynvml.NVML_ERROR_GPU_NOT_FOUND,
        )


def _key(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Nvml:
    """The initialised library and the devices that it found. Thread-safe."""

    def __init__(self) -> None:
        """Raises Unavailable with the problem and the remedy."""
        try:
            CALLS.track("nvmlInit", pynvml.nvmlInit)
        except pynvml.NVMLError as error:
            unknown = f"the NVIDIA driver does not start (NVML: {error})"
            raise Unavailable(START_PROBLEMS.get(error.value, unknown)) from None
        self._pid = os.getpid()
        self._handles: list[Any] = []
        self._boards: dict[int, tuple[int, ...]] = {}
        self._board_handles: list[Any] = []
        self.notes: list[str] = []
        """Devices that are not offered, with the reason."""
        try:
            self.driver = str(self._call("nvmlSystemGetDriverVersion"))
            self.gpus = tuple(self._find())
        except NvmlFailed as error:
            self.close()
            raise Unavailable(f"the NVIDIA driver does not answer ({error})") from None
        first_broken, first_fixed = BROKEN_LIST_DRIVERS
        self._suffix = "_v2" if first_broken <= self._version() < first_fixed else "_v3"

    def close(self) -> None:
        """Release the library."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def _call(self, name: str, *args: Any) -> Any:
        if os.getpid() != self._pid:
            raise RuntimeError("NVML handles belong to the process that created them")
        try:
            return CALLS.track(name, getattr(pynvml, name), *args)
        except pynvml.NVMLError as error:
            raise NvmlFailed(name, error.value, str(error)) from None
        except AttributeError:  # an older nvidia-ml-py
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            raise NvmlFailed(name, code, "Function Not Found") from None

    def _version(self) -> tuple[int, int]:
        major, _, rest = self.driver.partition(".")
        minor = rest.partition(".")[0]
        return int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0

    # ---- devices ---------------------------------------------------------------------------------

    def _find(self) -> list[GpuFound]:
        found: list[GpuFound] = []
        for board in range(self._call("nvmlDeviceGetCount")):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", board)
                parts = self._parts(board, handle)
                gpus = []
                for index, (part, mig) in enumerate(parts, len(found)):
                    gpus.append(self._describe(index, part, mig))
            except NvmlFailed as error:
                self.notes.append(f"GPU {board} is not offered: it does not answer ({error.text})")
                continue
            self._handles += [part for part, _ in parts]
            self._board_handles.append(handle)
            self._boards[_key(handle)] = tuple(gpu.index for gpu in gpus)
            found += gpus
        return found

    def _parts(self, board: int, handle: Any) -> list[tuple[Any, bool]]:
        """The GPU itself, or its MIG instances: a partitioned GPU cannot be used as a whole."""
        try:
            current, _ = self._call("nvmlDeviceGetMigMode", handle)
        except NvmlFailed as error:
            if error.is_lost:
                raise
            return [(handle, False)]
        if not current:
            return [(handle, False)]
        parts = []
        for number in range(self._call("nvmlDeviceGetMaxMigDeviceCount", handle)):
            with contextlib.suppress(NvmlFailed):  # numbers need not be consecutive
                part = self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
                parts.append((part, True))
        if not parts:
            self.notes.append(
                f"GPU {board} is not offered: MIG is on, but it has no instances; "
                "create some, or turn MIG off"
            )
        return parts

    def _describe(self, index: int, handle: Any, mig: bool) -> GpuFound:
        minor = -1
        with contextlib.suppress(NvmlFailed):
            minor = self._call("nvmlDeviceGetMinorNumber", handle)
        name = str(self._call("nvmlDeviceGetName", handle))
        uuid = str(self._call("nvmlDeviceGetUUID", handle))
        return GpuFound(index, uuid, name, offered_mib(self._memory(handle)), mig, minor)

    # ---- memory and processes --------------------------------------------------------------------

    def memory(self, gpu: int) -> NvmlMemory:
        """Memory of one device. Raises NvmlFailed."""
        return self._memory(self._handles[gpu])

    def _memory(self, handle: Any) -> NvmlMemory:
        try:
            info = self._call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        except NvmlFailed as error:
            if not error.is_missing:
                raise
            info = self._call("nvmlDeviceGetMemoryInfo", handle)
            return NvmlMemory(info.total, info.used, info.free)
        return NvmlMemory(info.total, info.used, info.free, info.reserved)

    def processes(self, gpu: int) -> list[ProcessUse]:
        """All processes with a compute or graphics context on the device, each once, with the
        larger amount of both lists. Raises NvmlFailed.
        """
        found: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            try:
                listed = self._list(kind, self._handles[gpu])
            except NvmlFailed as error:
                if kind == "Graphics" and not error.is_lost:  # some GPUs have no such list
                    continue
                raise
            for entry in listed:
                known, size = found.get(entry.pid), entry.usedGpuMemory
                found[entry.pid] = size if known is None else max(known, size or 0)
        return [ProcessUse(pid, size) for pid, size in sorted(found.items())]

    def _list(self, kind: str, handle: Any) -> Any:
        try:
            return self._call(f"nvmlDeviceGet{kind}RunningProcesses{self._suffix}", handle)
        except NvmlFailed as error:
            if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND or self._suffix == "_v2":
                raise
            self._suffix = "_v2"
            return self._list(kind, handle)

    def utilization(self, gpu: int) -> float:
        """Fraction of the last sample period in which the device was busy. Raises NvmlFailed."""
        rates = self._call("nvmlDeviceGetUtilizationRates", self._handles[gpu])
        return min(1.0, float(rates.gpu) / 100)

    def temperature(self, gpu: int) -> int:
        """Temperature of the board in °C. Raises NvmlFailed."""
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return int(self._call("nvmlDeviceGetTemperature", self._board_of(gpu), sensor))

    def power(self, gpu: int) -> int:
        """Power draw of the whole board in watts. Raises NvmlFailed."""
        return round(int(self._call("nvmlDeviceGetPowerUsage", self._board_of(gpu))) / 1000)

    def process_utilization(self, gpu: int, since_us: int) -> tuple[dict[int, float], int]:
        """Utilization per process since `since_us` (the time returned earlier; 0: as far as the
        driver remembers), and the latest time. Idle processes are missing. Raises NvmlFailed.
        """
        samples = self._utilization_samples(gpu, since_us)
        shares: dict[int, float] = {}
        for sample in samples:
            if sample.timeStamp > since_us and sample.pid and sample.smUtil <= MAX_PERCENT:
                share = sample.smUtil / MAX_PERCENT
                shares[sample.pid] = max(shares.get(sample.pid, 0.0), share)
        return shares, max((sample.timeStamp for sample in samples), default=since_us)

    def _utilization_samples(self, gpu: int, since_us: int) -> Sequence[Any]:
        for _ in range(3):  # a process may start between the two halves of the call
            try:
                samples: Sequence[Any] = self._call(
                    "nvmlDeviceGetProcessUtilization", self._handles[gpu], since_us
                )
                return samples
            except NvmlFailed as error:
                if error.code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                    continue
                if error.code in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):
                    break  # no process was busy
                raise
        return ()

    # ---- health ----------------------------------------------------------------------------------

    def subscribe(self) -> Callable[[], list[GpuEvent]]:
        """Register for health events of every GPU. The returned function reads the events since its
        last call, without waiting.

        Raises NvmlFailed when no GPU supports events; a single GPU without them is left out.
        """
        events = self._call("nvmlEventSetCreate")
        registered = False
        for handle in self._board_handles:
            with contextlib.suppress(NvmlFailed):
                supported = self._call("nvmlDeviceGetSupportedEventTypes", handle)
                wanted = supported & sum(HEALTH_EVENTS.values())
                self._call("nvmlDeviceRegisterEvents", handle, wanted, events)
                registered = True
        if not registered:
            with contextlib.suppress(NvmlFailed):
                self._call("nvmlEventSetFree", events)
            code = pynvml.NVML_ERROR_NOT_SUPPORTED
            raise NvmlFailed("nvmlDeviceRegisterEvents", code, "Not Supported")
        return lambda: self._read_events(events)

    def _read_events(self, events: Any) -> list[GpuEvent]:
        found: list[GpuEvent] = []
        while len(found) < MAX_EVENTS:
            try:
                event = self._call("nvmlEventSetWait_v2", events, 0)
            except NvmlFailed as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            kind = next((name for name, bit in HEALTH_EVENTS.items() if event.eventType & bit), "")
            gpus = self._boards.get(_key(event.device), ())
            found.append(GpuEvent(gpus, kind, int(event.eventData)))
        return found

    def recovery_action(self, gpu: int) -> int:
        """The action that the driver requests: 0 none, 1 reset, 2 restart of the machine, 3 and 4
        drain (and reset). Raises NvmlFailed.
        """
        name = "nvmlDeviceGetFieldValues"
        value = self._call(name, self._board_of(gpu), [RECOVERY_ACTION_FIELD])[0]
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            raise NvmlFailed(name, value.nvmlReturn, "the recovery action is not known")
        return int(value.value.uiVal)

    def is_unrepairable(self, gpu: int) -> bool:
        """Whether a broken row of its memory could not be replaced. Raises NvmlFailed."""
        return bool(self._call("nvmlDeviceGetRemappedRows", self._board_of(gpu))[3])

    def _board_of(self, gpu: int) -> Any:
        handle = self._handles[gpu]
        if not self.gpus[gpu].mig:
            return handle
        return self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)

    # ---- limits (driver 615 and later) -----------------------------------------------------------

    def supports_memory_limits(self) -> bool:
        """Whether the library has the calls, independent of this user's permission."""
        try:
            pynvml._nvmlGetFunctionPointer("nvmlDeviceSetMemoryLimits_v1")
        except pynvml.NVMLError:
            return False
        return hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1")

    def set_memory_limits(self, gpu: int, cgroup: str, soft: int | None, hard: int | None) -> None:
        """Bytes for everything below a cgroup; None: no limit. Raises NvmlFailed."""
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace = cgroup.encode()
        limits.softLimit = NO_LIMIT if soft is None else soft
        limits.hardLimit = NO_LIMIT if hard is None else hard
        self._call("nvmlDeviceSetMemoryLimits_v1", self._handles[gpu], limits)
