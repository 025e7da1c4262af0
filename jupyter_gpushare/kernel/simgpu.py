"""A simulated GPU for user code: allocate, fill, sum, compute.

Memory is recorded in the file of the simulated node (`simnode`); nothing of that
size is allocated. A buffer holds one value, which is enough to show that contents survive a
suspension or a move. A call in a suspended kernel blocks until the kernel is resumed, as a CUDA
call does, and can be interrupted.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from .simnode import DeviceBlocked, DeviceDetached, DeviceExhausted, SimNode, start_of
from .sizes import MIB, memory_text, size_in_bytes

__all__ = [
    "Buffer",
    "NoGpuError",
    "OutOfMemoryError",
    "alloc",
    "busy",
    "device_count",
    "device_uuid",
    "memory_info",
]

T = TypeVar("T")
POLL_S: Final = 0.02
"""How often a blocked call checks whether it may continue."""
SLICE_S: Final = 0.05
"""One piece of simulated work; a suspension begins between two."""
BOOKING_S: Final = 0.2
"""Work is recorded after so much of it."""


class NoGpuError(RuntimeError):
    """Raised when this kernel has no GPU."""


class OutOfMemoryError(MemoryError):
    """Raised when an allocation exceeds this kernel's cap or the free memory of the GPU."""


class _Process:
    """This process at the simulated driver; created again after a fork."""

    def __init__(self) -> None:
        path = os.environ.get("GPUSHARE_SIMGPU", "")
        self.kernel = os.environ.get("GPUSHARE_KERNEL_ID", "")
        if not path or not self.kernel or not os.path.exists(path):
            raise NoGpuError(
                "no simulated GPU: this kernel was not started by the gpushare provisioner"
                " on a node with simulated GPUs"
            )
        self.pid = os.getpid()
        self.start = start_of(self.pid) or 0
        self.node = SimNode(path)
        self.number = self.node.number_of(self.pid)
        self.node.join(self.number, self.start, self.kernel)
        self.lock = threading.Lock()
        self.unreferenced: deque[int] = deque()

    def sweep(self) -> None:
        """Free the buffers that were garbage collected. Skipped during another call, which sweeps
        at its end.
        """
        while self.unreferenced and self.lock.acquire(blocking=False):
            try:
                self.node.free([self.unreferenced.popleft() for _ in range(len(self.unreferenced))])
            finally:
                self.lock.release()


_current: _Process | None = None
_making = threading.Lock()


def _process() -> _Process:
    global _current
    with _making:
        if _current is None or _current.pid != os.getpid():
            _current = _Process()
        return _current


def _call(action: Callable[[_Process], T]) -> T:
    """Run `action`; waits while the kernel is suspended."""
    process = _process()
    while True:
        try:
            with process.lock:
                return action(process)
        except DeviceBlocked:
            time.sleep(POLL_S)
        except DeviceDetached:
            raise NoGpuError("no GPU in this kernel: request one with `%gpu request 0.5`") from None
        finally:
            process.sweep()


def _size(amount: int | str) -> int:
    if isinstance(amount, bool) or not isinstance(amount, (int, str)):
        raise ValueError(f"a size must be bytes or text such as '6GiB', got {amount!r}")
    if isinstance(amount, str) and not amount.strip().isdecimal():
        size = size_in_bytes(amount)
    else:
        size = int(amount)
    if not 0 < size < 1 << 60:
        raise ValueError(f"a size must be between 1 byte and 1024 PiB, got {amount!r}")
    return size


def _text(size: int) -> str:
    return memory_text(size // MIB) if size >= MIB else f"{size} bytes"


def _out_of_memory(room: DeviceExhausted) -> OutOfMemoryError:
    if room.held + room.wanted > room.cap:
        bound = f"the cap of this kernel is {_text(room.cap)}"
    else:
        bound = f"{_text(max(room.free, 0))} of {_text(room.total)} is free"
    return OutOfMemoryError(
        f"simulated GPU out of memory: requested {_text(room.wanted)},"
        f" this kernel uses {_text(room.held)}, {bound}"
    )


class Buffer:
    """Memory on the simulated GPU. Freed by `free()`, at the end of a `with` block, or by the
    garbage collector.
    """

    def __init__(self, number: int, nbytes: int, device: int, owner: _Process) -> None:
        self.nbytes = nbytes
        self.device = device
        self._number = number
        self._finalizer = weakref.finalize(self, _forget, number, owner)

    def free(self) -> None:
        """Free the memory. A second call does nothing."""
        self._finalizer()

    def fill(self, value: float) -> None:
        """Write the same value into every byte."""
        self._check()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"a value must be a number, got {value!r}")
        _call(lambda p: p.node.fill(p.kernel, self.device, self._number, value))

    def sum(self) -> int | float:
        """The sum over all bytes: the value of `fill`, times `nbytes`."""
        self._check()
        value = _call(lambda p: p.node.read(p.kernel, self.device, self._number))
        if value is None:
            raise RuntimeError("the contents of this buffer were lost")
        return value * self.nbytes

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("this buffer was freed")

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def __repr__(self) -> str:
        freed = "" if self._finalizer.alive else ", freed"
        return f"<simulated GPU buffer of {_text(self.nbytes)}{freed}>"


def _forget(number: int, owner: _Process) -> None:
    # May run in the garbage collector, so it must not wait for a lock that its own thread may
    # hold. A forked child that drops its copy of a buffer must not free the parent's.
    if owner.pid == os.getpid():
        owner.unreferenced.append(number)
        owner.sweep()


def alloc(size: int | str, device: int = 0) -> Buffer:
    """Allocate memory: bytes as a number, or text with a unit (`"6GiB"`).

    Raises:
        OutOfMemoryError: it does not fit; the message has the numbers.
        NoGpuError: this kernel has no GPU.
    """
    nbytes = _size(size)
    try:
        number = _call(lambda p: p.node.allocate(p.number, p.start, p.kernel, device, nbytes))
    except DeviceExhausted as room:
        raise _out_of_memory(room) from None
    return Buffer(number, nbytes, device, _process())


def memory_info(device: int = 0) -> tuple[int, int]:
    """(free, total) in bytes: how much this kernel can allocate, and the size of its GPU."""
    room = _call(lambda p: p.node.room(p.kernel, device))
    return max(0, min(room.free, room.cap - room.held)), room.total


def device_uuid(device: int = 0) -> str:
    """UUID of the GPU that this kernel runs on."""
    return _call(lambda p: p.node.check(p.kernel, device))


def device_count() -> int:
    """How many GPUs this kernel has."""
    return len(_call(lambda p: p.node.attached(p.kernel)))


def busy(seconds: float, device: int = 0) -> None:
    """Compute for `seconds`. Can be interrupted; pauses while the kernel is suspended."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < math.inf
    ):
        raise ValueError(f"a time must be seconds, got {seconds!r}")
    left, booked = float(seconds), 0.0
    while left > 0:
        _call(lambda p: p.node.check(p.kernel, device))
        piece = min(SLICE_S, left)
        begun = time.monotonic()
        time.sleep(piece)
        left -= time.monotonic() - begun
        booked += piece
        if booked >= BOOKING_S or left <= 0:
            _book(booked)
            booked = 0.0


def _book(seconds: float) -> None:
    ms = round(seconds * 1000)

    def work(process: _Process) -> Any:
        process.node.worked(process.number, process.start, ms)

    _call(work)
