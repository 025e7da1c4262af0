"""NVML, typed and thin: the only file that imports `pynvml`. Every failure is one `NvmlFailed`, so
that each ability can be lost alone.

What differs between drivers 535 and 615 is known here and nowhere else. Amounts are bytes as NVML
gives them; only the size that a GPU offers is MiB. Handles belong to the process that made them: a
forked child must make its own `Nvml`.
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

ALL_OF_IT: Final = 0xFFFFFFFFFFFFFFFF
ODD_LISTS: Final = ((535, 43), (535, 98))
"""From the first of these drivers to just before the second, the third version of the process lists
writes longer entries than callers know: https://github.com/XuehaiPan/nvitop/pull/89. Later ones
lacked it for a while. The second version is right in all of them.
"""
WORDS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver was found on this machine (libnvidia-ml.so.1 is not there); install it, or in a "
    "container give it the GPUs (`docker run --gpus all`, the NVIDIA runtime class)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not loaded (NVML: Driver Not Loaded); load it with `modprobe nvidia`, "
    "or restart the machine, until `nvidia-smi` works",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated while the old one still runs (NVML: driver/library version "
    "mismatch); restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver (NVML: Insufficient Permissions); give it access to "
    "/dev/nvidiactl and /dev/nvidia*",
}
HEALTH_EVENTS: Final = {
    "xid": 0x8,
    "ecc": 0x2,
    "mig": 0x100,
    "unavailable": 0x4000,
    "recovery": 0x8000,
}
"""nvmlEventTypeXidCriticalError, DoubleBitEccError, MigConfigChange, GpuUnavailableError,
GpuRecoveryAction. As numbers: not every nvidia-ml-py names all of them.
"""
RECOVERY_ACTION: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""
NONSENSE: Final = 100
"""Percent. Some drivers put samples between the others whose numbers mean nothing
(https://github.com/Syllo/nvtop/issues/110).
"""
LONGEST_STORY: Final = 64
"""Events taken in one go: a GPU that fails sends many."""


class NvmlFailed(Exception):
    """One call of NVML failed: which, its code and its words."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.code, self.text = call, code, text

    @property
    def is_missing(self) -> bool:
        """This driver or this GPU does not have it, now and later."""
        return self.code in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)

    @property
    def is_refused(self) -> bool:
        """This user may not."""
        return bool(self.code == pynvml.NVML_ERROR_NO_PERMISSION)

    @property
    def is_not_found(self) -> bool:
        """There is no such thing: no sample, no cgroup."""
        return bool(self.code == pynvml.NVML_ERROR_NOT_FOUND)

    @property
    def is_shut(self) -> bool:
        """The operating system refused it: a cgroup that cannot be opened, for instance because it
        is gone.
        """
        return bool(self.code == pynvml.NVML_ERROR_OPERATING_SYSTEM)

    @property
    def is_lost(self) -> bool:
        """The GPU does not answer any more."""
        return self.code in (
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_RESET_REQUIRED,
            pynvml.NVML_ERROR_GPU_NOT_FOUND,
        )


def _key(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Nvml:
    """The library, initialised, with the devices it found. May be called from any thread."""

    def __init__(self) -> None:
        """Raises Unavailable, with what is wrong and what to do."""
        try:
            CALLS.track("nvmlInit", pynvml.nvmlInit)
        except pynvml.NVMLError as error:
            raise Unavailable(
                WORDS.get(error.value, f"the NVIDIA driver does not start (NVML: {error})")
            ) from None
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
        self._suffix = "_v2" if ODD_LISTS[0] <= self._version() < ODD_LISTS[1] else "_v3"

    def close(self) -> None:
        """Let go of the library."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def _call(self, name: str, *args: Any) -> Any:
        if os.getpid() != self._pid:
            raise RuntimeError("NVML's handles belong to the process that made them")
        try:
            return CALLS.track(name, getattr(pynvml, name), *args)
        except pynvml.NVMLError as error:
            raise NvmlFailed(name, error.value, str(error)) from None
        except AttributeError:  # an older nvidia-ml-py
            raise NvmlFailed(
                name, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"
            ) from None

    def _version(self) -> tuple[int, int]:
        major, _, rest = self.driver.partition(".")
        minor = rest.partition(".")[0]
        return int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0

    def driver_version(self) -> str:
        """As NVIDIA writes it: `580.65.06`."""
        return self.driver

    # ---- what is there ---------------------------------------------------------------------------

    def _find(self) -> list[GpuFound]:
        found: list[GpuFound] = []
        for board in range(self._call("nvmlDeviceGetCount")):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", board)
                parts = self._parts(board, handle)
                gpus = [
                    self._describe(len(found) + i, part, board, mig)
                    for i, (part, mig) in enumerate(parts)
                ]
            except NvmlFailed as error:
                self.notes.append(f"GPU {board} is not offered: it does not answer ({error.text})")
                continue
            self._handles += [part for part, _ in parts]
            self._board_handles.append(handle)
            self._boards[_key(handle)] = tuple(gpu.index for gpu in gpus)
            found += gpus
        return found

    def _parts(self, board: int, handle: Any) -> list[tuple[Any, bool]]:
        """The GPU itself, or its instances: a GPU that is cut up cannot be used as a whole."""
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
            with contextlib.suppress(NvmlFailed):  # numbers need not be dense
                parts.append(
                    (self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number), True)
                )
        if not parts:
            self.notes.append(
                f"GPU {board} is not offered: MIG is on, but it has no instances; "
                "create some, or turn MIG off"
            )
        return parts

    def _describe(self, index: int, handle: Any, board: int, mig: bool) -> GpuFound:
        minor = -1
        with contextlib.suppress(NvmlFailed):
            minor = self._call("nvmlDeviceGetMinorNumber", handle)
        name, uuid = (
            str(self._call("nvmlDeviceGetName", handle)),
            str(self._call("nvmlDeviceGetUUID", handle)),
        )
        return GpuFound(index, uuid, name, offered_mib(self._memory(handle)), mig, board, minor)

    # ---- memory and processes --------------------------------------------------------------------

    def memory(self, gpu: int) -> NvmlMemory:
        """Of one device. Raises NvmlFailed."""
        return self._memory(self._handles[gpu])

    def _memory(self, handle: Any) -> NvmlMemory:
        try:
            told = self._call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        except NvmlFailed as error:
            if not error.is_missing:
                raise
            told = self._call("nvmlDeviceGetMemoryInfo", handle)
            return NvmlMemory(told.total, told.used, told.free)
        return NvmlMemory(told.total, told.used, told.free, told.reserved)

    def processes(self, gpu: int) -> list[ProcessUse]:
        """Everyone with a context or a picture on the device, each once (in the larger of both
        lists' words). Raises NvmlFailed.
        """
        found: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            try:
                listed = self._list(kind, self._handles[gpu])
            except NvmlFailed as error:
                if kind == "Graphics" and not error.is_lost:  # some GPUs have none
                    continue
                raise
            for one in listed:
                known = found.get(one.pid)
                found[one.pid] = (
                    one.usedGpuMemory if known is None else max(known, one.usedGpuMemory or 0)
                )
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
        """Share of the last moment in which anything ran on the device, 0..1. Raises NvmlFailed."""
        return min(
            1.0, float(self._call("nvmlDeviceGetUtilizationRates", self._handles[gpu]).gpu) / 100
        )

    def process_utilization(self, gpu: int, since_us: int) -> tuple[dict[int, float], int]:
        """Share of the time per process since `since_us` (of an earlier answer; 0: what the driver
        remembers), and the latest time stamp. Who did nothing is not in it. Raises NvmlFailed.
        """
        samples: Sequence[Any] = ()
        for _ in range(3):  # somebody else may start to work between the two halves of the call
            try:
                samples = self._call(
                    "nvmlDeviceGetProcessUtilization", self._handles[gpu], since_us
                )
            except NvmlFailed as error:
                if error.code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                    continue
                if error.code not in (
                    pynvml.NVML_SUCCESS,
                    pynvml.NVML_ERROR_NOT_FOUND,
                ):  # nobody worked
                    raise
            break
        shares: dict[int, float] = {}
        for one in samples:
            if one.timeStamp > since_us and one.pid and one.smUtil <= NONSENSE:
                shares[one.pid] = max(shares.get(one.pid, 0.0), one.smUtil / NONSENSE)
        return shares, max((one.timeStamp for one in samples), default=since_us)

    # ---- health ----------------------------------------------------------------------------------

    def listen(self) -> Callable[[], list[GpuEvent]]:
        """Registers for what concerns the health of every GPU; the answer takes what has happened
        since, without waiting.

        Raises NvmlFailed when there are no events at all here; a GPU without them is left out.
        """
        events = self._call("nvmlEventSetCreate")
        registered = False
        for handle in self._board_handles:
            with contextlib.suppress(NvmlFailed):
                wanted = self._call("nvmlDeviceGetSupportedEventTypes", handle) & sum(
                    HEALTH_EVENTS.values()
                )
                self._call("nvmlDeviceRegisterEvents", handle, wanted, events)
                registered = True
        if not registered:
            with contextlib.suppress(NvmlFailed):
                self._call("nvmlEventSetFree", events)
            raise NvmlFailed(
                "nvmlDeviceRegisterEvents", pynvml.NVML_ERROR_NOT_SUPPORTED, "Not Supported"
            )
        return lambda: self._happened(events)

    def _happened(self, events: Any) -> list[GpuEvent]:
        found: list[GpuEvent] = []
        while len(found) < LONGEST_STORY:
            try:
                told = self._call("nvmlEventSetWait_v2", events, 0)
            except NvmlFailed as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            kind = next((name for name, bit in HEALTH_EVENTS.items() if told.eventType & bit), "")
            found.append(
                GpuEvent(self._boards.get(_key(told.device), ()), kind, int(told.eventData))
            )
        return found

    def recovery_action(self, gpu: int) -> int:
        """What the driver wants done: 0 nothing, 1 reset, 2 restart of the machine, 3 and 4 drain
        (and reset). Raises NvmlFailed.
        """
        board = self._handles[gpu] if not self.gpus[gpu].mig else self._board_of(gpu)
        value = self._call("nvmlDeviceGetFieldValues", board, [RECOVERY_ACTION])[0]
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            raise NvmlFailed(
                "nvmlDeviceGetFieldValues", value.nvmlReturn, "the recovery action is not known"
            )
        return int(value.value.uiVal)

    def is_unrepairable(self, gpu: int) -> bool:
        """Whether a broken row of its memory could not be replaced. Raises NvmlFailed."""
        board = self._handles[gpu] if not self.gpus[gpu].mig else self._board_of(gpu)
        return bool(self._call("nvmlDeviceGetRemappedRows", board)[3])

    def _board_of(self, gpu: int) -> Any:
        return self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._handles[gpu])

    # ---- limits (driver 615 and later) -----------------------------------------------------------

    def supports_memory_limits(self) -> bool:
        """Whether this library has the calls at all; whether this user may make them is another
        question.
        """
        try:
            pynvml._nvmlGetFunctionPointer("nvmlDeviceSetMemoryLimits_v1")
        except pynvml.NVMLError:
            return False
        return hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1")

    def set_memory_limits(self, gpu: int, cgroup: str, soft: int | None, hard: int | None) -> None:
        """Bytes for everything below a cgroup; None: all that the device has. Raises NvmlFailed."""
        wanted = pynvml.c_nvmlSetMemoryLimits_v1_t()
        wanted.nameSpace = cgroup.encode()
        wanted.softLimit = ALL_OF_IT if soft is None else soft
        wanted.hardLimit = ALL_OF_IT if hard is None else hard
        self._call("nvmlDeviceSetMemoryLimits_v1", self._handles[gpu], wanted)

    def memory_limits(self, gpu: int, cgroup: str) -> tuple[int | None, int | None, int]:
        """Soft limit, hard limit (None: all that the device has) and what is used below the cgroup,
        in bytes. Raises NvmlFailed.
        """
        told = pynvml.c_nvmlGetMemoryLimits_v1_t()
        told.nameSpace = cgroup.encode()
        self._call("nvmlDeviceGetMemoryLimits_v1", self._handles[gpu], told)
        soft, hard = (
            None if value == ALL_OF_IT else int(value) for value in (told.softLimit, told.hardLimit)
        )
        return soft, hard, int(told.currentUsed)
