"""The experiments: each returns numbers and results, independent of the format of the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, OutcomeUnknown
from node_agent.devices.nvidia.cuda import CudaDriver, CudaError
from tests.gpu.worker_client import Worker

__all__ = [
    "DirectDriver",
    "Framework",
    "CheckpointCalls",
    "RoundTrip",
    "capped",
    "framework",
    "host_memory",
    "lock_times_ms",
    "restore_without_memory",
    "round_trip",
    "try_each_step",
    "wait_until",
]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
LOCK_MS: Final = 10_000
LISTED_S: Final = 20.0
BLOCKED_S: Final = 5.0
"""An interpreter that has not answered for this time is blocked."""


class CheckpointCalls(Protocol):
    """Checkpoint calls: those of the product (`CheckpointClient`, with its worker process), or the
    driver's alone (`DirectDriver`).
    """

    def lock(self, pid: int, timeout_ms: int) -> None: ...
    def checkpoint(self, pid: int, mib: int = 0) -> None: ...
    def restore(self, pid: int, pairs: tuple[tuple[str, str], ...] = (), mib: int = 0) -> None: ...
    def unlock(self, pid: int) -> None: ...


class DirectDriver:
    """The driver's calls in this process, for comparison."""

    def __init__(self) -> None:
        self._driver = CudaDriver()
        self._driver.init()
        self.lock, self.unlock = self._driver.lock, self._driver.unlock

    def checkpoint(self, pid: int, mib: int = 0) -> None:
        """To the host memory of the process."""
        self._driver.checkpoint(pid)

    def restore(self, pid: int, pairs: tuple[tuple[str, str], ...] = (), mib: int = 0) -> None:
        """On the same GPU."""
        self._driver.restore(pid, pairs)


@dataclass(frozen=True)
class RoundTrip:
    """Seconds of one suspend and resume of `size` bytes; `right`: all bytes were restored;
    `longest_pause_ms`: of its Python meanwhile.
    """

    size: int
    seconds: dict[str, float]
    right: bool
    longest_pause_ms: int


def _timed(seconds: dict[str, float], name: str, call: Callable[[], object]) -> None:
    begun = time.perf_counter()
    call()
    seconds[name] = round(time.perf_counter() - begun, 4)


def round_trip(
    client: CheckpointCalls, worker: Worker, size: int, *, stay_s: float = 0.2
) -> RoundTrip:
    """Suspend and resume a worker that holds `size` bytes. Raises CudaError."""
    seconds: dict[str, float] = {}
    worker.do("beat")
    _timed(seconds, "lock", lambda: client.lock(worker.pid, LOCK_MS))
    _timed(seconds, "checkpoint", lambda: client.checkpoint(worker.pid, size // MIB))
    time.sleep(stay_s)
    worker.send("beat")  # Python answers while suspended
    pause = worker.receive_or_nothing(BLOCKED_S)
    _timed(seconds, "restore", lambda: client.restore(worker.pid, (), size // MIB))
    _timed(seconds, "unlock", lambda: client.unlock(worker.pid))
    pause = pause or worker.receive()
    return RoundTrip(size, seconds, worker.do("check") == "right", int(pause))


def host_memory(client: CheckpointCalls, size: int) -> Iterator[dict[str, object]]:
    """Growth of each memory counter of the host while `size` bytes were saved, and after the
    resume.
    """
    with Worker() as worker:
        worker.do("hold", size)
        before = _counters(worker.pid)
        client.lock(worker.pid, LOCK_MS)
        client.checkpoint(worker.pid, size // MIB)
        saved = _counters(worker.pid)
        client.restore(worker.pid, (), size // MIB)
        client.unlock(worker.pid)
        after = _counters(worker.pid)
    for name in before:
        if name in saved and name in after:
            yield {
                "counter": name,
                "grew_mib": saved[name] - before[name],
                "left_mib": after[name] - before[name],
                "size": size,
            }


def _counters(pid: int) -> dict[str, int]:
    """MiB of the process, its cgroup and the machine."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmLck", "VmPin"):
            found[f"process {name}"] = int(rest.split()[0]) // 1024
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable", "Shmem", "AnonPages", "Unevictable", "Mlocked"):
            found[f"machine {name}"] = int(rest.split()[0]) // 1024
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        current = Path(f"/sys/fs/cgroup{line[3:]}/memory.current")
        if line.startswith("0::") and current.exists():
            found["cgroup memory.current"] = int(current.read_text()) // MIB
    return found


@dataclass(frozen=True)
class Framework:
    """Whether values of a framework survive, and its Python meanwhile. `while_waiting`: whether
    Python answers while one of its threads waits for the suspended GPU memory.
    """

    name: str
    right: bool
    longest_pause_ms: int
    while_waiting: str
    seconds: dict[str, float]


def framework(client: CheckpointCalls, size: int, name: str) -> Framework:
    """Suspend and resume twice, because the first time may have side effects. Raises Missing,
    CudaError, RuntimeError, NoAnswer.
    """
    with Worker(name) as worker:
        worker.do("hold", size)
        rounds = [round_trip(client, worker, size) for _ in range(2)]
        waiting = _waits(client, worker, size)
        right = worker.do("check") == "right"
    return Framework(
        name,
        right and all(one.right for one in rounds),
        max(one.longest_pause_ms for one in rounds),
        waiting,
        rounds[-1].seconds,
    )


def _waits(client: CheckpointCalls, worker: Worker, size: int) -> str:
    """A thread calls the GPU while its memory is saved. A call that keeps the GIL blocks all other
    threads.
    """
    client.lock(worker.pid, LOCK_MS)
    client.checkpoint(worker.pid, size // MIB)
    worker.do("beat")
    worker.send("touch")
    answers = worker.receive_or_nothing(BLOCKED_S)
    if answers:
        time.sleep(1.0)
        worker.send("beat")
        answers = worker.receive_or_nothing(BLOCKED_S)
    client.restore(worker.pid, (), size // MIB)
    client.unlock(worker.pid)
    if not answers:
        worker.receive()
    worker.do("touched")
    return (
        f"answers, longest pause {answers} ms"
        if answers
        else f"is blocked (no answer within {BLOCKED_S:.0f} s)"
    )


def capped(name: str, total: int) -> Iterator[dict[str, object]]:
    """The product's caps with the real framework."""
    cap, total_mib = 4096, total // MIB
    with Worker(name) as worker:

        def outcome(*words: object) -> str:
            try:
                return worker.do(*words)
            except RuntimeError as error:
                return str(error)[:160]

        for what, words in (
            ("cap at 4 GiB before CUDA starts", ("cap", cap, total_mib)),
            ("1 GiB", ("take", GIB)),
            ("cap at 4 GiB", ("cap", cap, total_mib)),
            ("6 GiB over it", ("take", 6 * GIB)),
            ("2 GiB below it", ("take", 2 * GIB)),
            ("cap raised to 8 GiB", ("cap", 2 * cap, total_mib)),
            ("6 GiB below it", ("take", 6 * GIB)),
            ("cap lowered to 4 GiB", ("cap", cap, total_mib)),
            ("caches released", ("drop",)),
            ("6 GiB over it again", ("take", 6 * GIB)),
        ):
            yield {"framework": name, "what": what, "outcome": outcome(*words)}


def restore_without_memory(
    client: CheckpointCalls, size: int, total: int
) -> Iterator[dict[str, object]]:
    """The result of a restore on a full GPU, and of a retry with free memory."""
    with Worker() as saved:
        saved.do("hold", size)
        client.lock(saved.pid, LOCK_MS)
        client.checkpoint(saved.pid, size // MIB)
        with Worker() as other:
            yield {
                "step": "GPU filled by another process",
                "outcome": f"{_fill(other, total) / GIB:.1f} GiB",
            }
            yield {
                "step": "restore without memory",
                "outcome": _outcome(lambda: client.restore(saved.pid, (), size // MIB)),
            }
        time.sleep(2.0)
        yield {
            "step": "restore with free memory",
            "outcome": _outcome(lambda: client.restore(saved.pid, (), size // MIB)),
        }
        unlocked = _outcome(lambda: client.unlock(saved.pid))
        yield {"step": "unlock", "outcome": unlocked}
        if unlocked == "done":
            yield {"step": "its bytes", "outcome": saved.do("check")}


def _fill(worker: Worker, total: int) -> int:
    """Allocate as much as possible, in pieces down to a thousandth of the GPU."""
    filled, piece = 0, total // 4
    while piece >= total // 1024:
        try:
            worker.do("take", piece)
            filled += piece
        except RuntimeError:
            piece //= 2
    return filled


def _outcome(call: Callable[[], object]) -> str:
    """ "done", the result of the call, or the error."""
    try:
        return str(call() or "done")
    except (CudaError, OutcomeUnknown) as error:
        return str(error)


def try_each_step(client: CheckpointClient, pid: int) -> Iterator[tuple[str, str]]:
    """The driver's answer to each step of a suspend and resume of any process, and the state
    afterwards.
    """

    def state() -> str:
        return _outcome(lambda: client.state(pid).name)

    yield "state", state()
    for step, call in (
        ("lock", lambda: client.lock(pid, 5_000)),
        ("checkpoint", lambda: client.checkpoint(pid, 64)),
        ("restore", lambda: client.restore(pid, (), 64)),
        ("unlock", lambda: client.unlock(pid)),
    ):
        said = _outcome(call)
        yield step, f"{said}; state {state()}"
        if said != "done" and step == "lock":
            return


def lock_times_ms(client: CheckpointCalls, *, kernel_ms: int = 0, times: int = 20) -> list[float]:
    """Sorted durations (ms) of locking a neighbour with kernels of that length (0: idle)."""
    taken = []
    with Worker() as worker:
        worker.do("hold", 32 * MIB)
        if kernel_ms:
            worker.do("busy", kernel_ms)
        for turn in range(times):
            time.sleep(0.013 * (turn % 5))  # at different times within a kernel
            begun = time.perf_counter()
            client.lock(worker.pid, LOCK_MS)
            taken.append((time.perf_counter() - begun) * 1000)
            client.unlock(worker.pid)
    return sorted(taken)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true, at most LISTED_S."""
    deadline = time.perf_counter() + LISTED_S
    while not condition() and time.perf_counter() < deadline:
        time.sleep(0.002)
