"""The checkpoint calls of the CUDA driver, by ctypes on libcuda.so.1: names and numbers of the
driver, no decisions.

ctypes instead of cuda-core: there are six calls, they exist since driver 570, and the agent must
not depend on NumPy or a matching cuda-bindings for them; CRIU's plugin binds them in the same way.
Every call may block indefinitely: only the worker process makes them
(`node_agent.devices.nvidia.checkpoint_worker`). Names, numbers and structures: CUDA Driver API,
"CUDA Checkpointing".
"""

from __future__ import annotations

import ctypes
import enum
import uuid
from collections.abc import Sequence
from typing import Final

__all__ = ["REMAP_VERSION", "CudaDriver", "CudaError", "ProcessState", "raw_uuid"]

LIBRARY: Final = "libcuda.so.1"
CHECKPOINT_DRIVER: Final = 570
REMAP_VERSION: Final = 13_000
"""From this `cuDriverGetVersion` (driver 580) on, the arguments of restore are evaluated; CRIU
checks the same.
"""

INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
OPERATING_SYSTEM: Final = 304
ILLEGAL_STATE: Final = 401
NOT_READY: Final = 600
NOT_PERMITTED: Final = 800
NOT_SUPPORTED: Final = 801


class CudaError(Exception):
    """Raised with the driver's answer: the name of the `call`, the `code` and its `name`."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class ProcessState(enum.IntEnum):
    """CUprocessState. CHECKPOINTING and RESTORING exist only with custom storage (CUDA 13.4), which
    is not used here.
    """

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    RESTORING = 5


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("reserved", ctypes.c_uint64 * 7),
    )


class _GpuPair(ctypes.Structure):
    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class _RestoreArgs(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.POINTER(_GpuPair)),
        ("count", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("reserved", ctypes.c_uint64 * 6),
    )


class _ReservedArgs(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


def raw_uuid(text: str) -> bytes:
    """The sixteen bytes of `GPU-...` or `MIG-...`."""
    return uuid.UUID(text.partition("-")[2]).bytes


class CudaDriver:
    """The driver of this machine. Raises OSError without one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def init(self) -> None:
        """Initialise once per process, in 0.1 s to several seconds. Creates no context and uses no
        GPU memory.
        """
        self._call("cuInit", 0)

    def version(self) -> int:
        """CUDA version, such as 13000."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def can_checkpoint(self) -> bool:
        """Whether this driver has the calls (570 or later)."""
        return hasattr(self._library, "cuCheckpointProcessCheckpoint")

    def state(self, pid: int) -> ProcessState:
        """State of a process that uses CUDA; INVALID_VALUE for others."""
        state = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
        return ProcessState(state.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Block new work and wait for work in progress; NOT_READY after the timeout, with the
        process running.
        """
        args = _LockArgs(timeout_ms=timeout_ms)
        self._call("cuCheckpointProcessLock", pid, ctypes.byref(args))

    def checkpoint(self, pid: int) -> None:
        """Copy its GPU memory to its host memory, and free the GPU memory."""
        self._call("cuCheckpointProcessCheckpoint", pid, ctypes.byref(_ReservedArgs()))

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]] = ()) -> None:
        """Restore its GPU memory; the process stays locked. `pairs`: (old, new) UUID of every GPU
        of the machine; empty: no memory moves.
        """
        table = (_GpuPair * max(1, len(pairs)))()
        for entry, (old, new) in zip(table, pairs, strict=False):
            entry.old[:], entry.new[:] = raw_uuid(old), raw_uuid(new)
        args = _RestoreArgs(pairs=table if pairs else None, count=len(pairs))
        self._call("cuCheckpointProcessRestore", pid, ctypes.byref(args))

    def unlock(self, pid: int) -> None:
        """Let it run."""
        self._call("cuCheckpointProcessUnlock", pid, ctypes.byref(_ReservedArgs()))

    def _call(self, name: str, *args: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            problem = f"not supported by this driver (requires {CHECKPOINT_DRIVER})"
            raise CudaError(name, NOT_SUPPORTED, problem) from None
        code = int(function(*args))
        if code:
            raise CudaError(name, code, self._error_name(code))

    def _error_name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return text.value.decode() if text.value else "unnamed error"
