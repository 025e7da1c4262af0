"""The checkpoint calls of the CUDA driver, by ctypes on libcuda.so.1. Knows the driver's words and
numbers, and decides nothing.

ctypes and not cuda-core: the calls are six, they exist since driver 570, and the agent must not
need NumPy or a matching cuda-bindings for them; CRIU's plugin binds them the same way. Every call
may block in the driver for as long as it likes: only the helper process (see
`node_agent.devices.nvidia.checkpoint_worker`) makes them. Names, numbers and structures: CUDA
Driver API, "CUDA Checkpointing".
"""

from __future__ import annotations

import ctypes
import enum
import uuid
from collections.abc import Sequence
from typing import Final

__all__ = ["CALLS", "REMAP_VERSION", "CudaError", "CudaDriver", "ProcessState", "raw_uuid"]

LIBRARY: Final = "libcuda.so.1"
CHECKPOINT_DRIVER: Final = 570
REMAP_VERSION: Final = 13_000
"""What `cuDriverGetVersion` must say before the arguments of restore mean anything (driver 580);
the gate that CRIU uses.
"""
CALLS: Final = ("state", "lock", "checkpoint", "restore", "unlock")

(
    OUT_OF_MEMORY,
    NOT_INITIALIZED,
    OPERATING_SYSTEM,
    ILLEGAL_STATE,
    NOT_READY,
    NOT_PERMITTED,
    NOT_SUPPORTED,
) = 2, 3, 304, 401, 600, 800, 801
INVALID_VALUE: Final = 1


class CudaError(Exception):
    """Raised with what the driver answered: `call` is the driver's name of it, `code` its number,
    `name` its word for the number.
    """

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
    """The sixteen bytes of `GPU-...` (or `MIG-...`) as the driver wants them."""
    return uuid.UUID(text.partition("-")[2]).bytes


class CudaDriver:
    """The driver of this machine. Raises OSError when there is none."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def init(self) -> None:
        """Once per process; takes from 0.1 s to seconds. No context is made and no GPU memory is
        taken.
        """
        self._call("cuInit", 0)

    def version(self) -> int:
        """Of CUDA, such as 13000; 0 when it cannot be read."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def can_checkpoint(self) -> bool:
        """Whether this driver has the calls at all (570 or later)."""
        return hasattr(self._library, "cuCheckpointProcessCheckpoint")

    def state(self, pid: int) -> ProcessState:
        """Of a process that uses CUDA; any other is INVALID_VALUE."""
        state = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
        return ProcessState(state.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Keep new work out and wait for the old; NOT_READY when the time is over, and the process
        runs on.
        """
        args = _LockArgs(timeout_ms=timeout_ms)
        self._call("cuCheckpointProcessLock", pid, ctypes.byref(args))

    def checkpoint(self, pid: int) -> None:
        """Copy its GPU memory into its own host memory, and give the GPU back."""
        self._call("cuCheckpointProcessCheckpoint", pid, ctypes.byref(_ReservedArgs()))

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]] = ()) -> None:
        """Bring it back, locked. `pairs`: (old, new) UUID of every GPU of the machine; none:
        everything where it was.
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
            raise CudaError(
                name,
                NOT_SUPPORTED,
                f"this driver does not have it (it came with {CHECKPOINT_DRIVER})",
            ) from None
        code = int(function(*args))
        if code:
            raise CudaError(name, code, self._name(code))

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        return text.value.decode() if text.value else "an error without a name"
