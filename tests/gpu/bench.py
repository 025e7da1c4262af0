"""The experiments: each takes a checkpointer and gives numbers and verdicts; nothing here knows what a report looks like."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from node_agent.checkpointer import Checkpointer
from node_agent.devices.cuda import CudaError

__all__ = ["Framework", "Round", "Worker", "frameworks", "host_memory", "neighbour_lock_ms", "out_of_room", "round_trip"]

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 1 << 20
LOCK_MS: Final = 10_000


class Missing(Exception):
    """A framework that is not installed."""


class Worker:
    """One process that holds GPU memory; see worker.py for its words."""

    def __init__(self, kind: str = "driver") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.worker", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.pid = self._process.pid
        hello = self._hear()
        if hello != "ready":
            self.end()
            raise Missing(hello)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def do(self, *words: object) -> str:
        """Its answer; raises RuntimeError with an error that it met."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        if answer.startswith("error"):
            raise RuntimeError(answer)
        return answer

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() or "gone"

    def end(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@dataclass(frozen=True)
class Round:
    """Seconds of one suspend and resume of `size` bytes; `right`: every byte came back; `longest_pause_ms`: of its Python meanwhile."""

    size: int
    seconds: dict[str, float]
    right: bool
    longest_pause_ms: int

    def rate(self, step: str) -> float:
        """GB/s of a copy."""
        return self.size / max(self.seconds[step], 1e-9) / 1e9


def _timed(seconds: dict[str, float], name: str) -> contextlib.AbstractContextManager[None]:
    @contextlib.contextmanager
    def timing() -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - begun

    return timing()


def round_trip(driver: Checkpointer, worker: Worker, size: int, *, stay_s: float = 0.2) -> Round:
    """Suspend and resume a worker that holds `size` bytes. Raises CudaError."""
    seconds: dict[str, float] = {}
    worker.do("beat")
    with _timed(seconds, "lock"):
        driver.lock(worker.pid, LOCK_MS)
    with _timed(seconds, "checkpoint"):
        driver.checkpoint(worker.pid, size // MIB)
    time.sleep(stay_s)
    pause = int(worker.do("beat"))  # answered while it is suspended: its Python lives
    with _timed(seconds, "restore"):
        driver.restore(worker.pid, (), size // MIB)
    with _timed(seconds, "unlock"):
        driver.unlock(worker.pid)
    return Round(size, seconds, worker.do("check") == "right", pause)


def host_memory(driver: Checkpointer, size: int) -> dict[str, int]:
    """By how many MiB each counter of the host grew while `size` bytes were saved."""
    with Worker() as worker:
        worker.do("hold", size)
        before = _counters(worker.pid)
        driver.lock(worker.pid, LOCK_MS)
        driver.checkpoint(worker.pid, size // MIB)
        after = _counters(worker.pid)
        driver.restore(worker.pid, (), size // MIB)
        driver.unlock(worker.pid)
    return {name: after[name] - before[name] for name in before if name in after}


def _counters(pid: int) -> dict[str, int]:
    """MiB: the process's own, its cgroup's, and what the machine has left (as used)."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmLck", "VmPin"):
            found[f"process {name}"] = int(rest.split()[0]) // 1024
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemAvailable", "Shmem", "AnonPages", "Unevictable", "Mlocked"):
            found[f"machine {name}"] = int(rest.split()[0]) // 1024
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        current = Path(f"/sys/fs/cgroup{line[3:]}/memory.current")
        if line.startswith("0::") and current.exists():
            found["cgroup memory.current"] = int(current.read_text()) // MIB
    return found


@dataclass(frozen=True)
class Framework:
    """Whether a framework's values survive, and its Python answers meanwhile; `problem` when it could not be tried or went wrong."""

    name: str
    right: bool = False
    longest_pause_ms: int = 0
    problem: str = ""
    rounds: list[Round] = field(default_factory=list)


def frameworks(driver: Checkpointer, size: int, names: tuple[str, ...] = ("torch", "torch-expandable", "jax", "cupy")) -> Iterator[Framework]:
    """Twice each: the second time shows whether the first left anything behind."""
    for name in names:
        try:
            with Worker(name) as worker:
                worker.do("hold", size)
                rounds = [round_trip(driver, worker, size) for _ in range(2)]
            yield Framework(name, all(one.right for one in rounds), max(one.longest_pause_ms for one in rounds), "", rounds)
        except Missing as error:
            yield Framework(name, problem=f"not installed ({error})")
        except (CudaError, RuntimeError) as error:
            yield Framework(name, problem=str(error))


def out_of_room(driver: Checkpointer, size: int, total: int) -> list[tuple[str, str]]:
    """What a restore into a GPU that is full says, and whether it can be tried again when there is room: (step, outcome)."""
    outcomes = []
    with Worker() as saved:
        saved.do("hold", size)
        driver.lock(saved.pid, LOCK_MS)
        driver.checkpoint(saved.pid, size // MIB)
        with Worker() as other:
            filled = _fill(other, total)
            outcomes.append(("GPU filled by another process", f"{filled / (1 << 30):.1f} GiB"))
            outcomes.append(("restore without room", _outcome(lambda: driver.restore(saved.pid, (), size // MIB))))
        time.sleep(0.5)
        outcomes.append(("restore with room again", _outcome(lambda: driver.restore(saved.pid, (), size // MIB))))
        outcomes.append(("unlock", _outcome(lambda: driver.unlock(saved.pid))))
        if outcomes[-1][1] == "done":
            outcomes.append(("its bytes", saved.do("check")))
    return outcomes


def _fill(worker: Worker, total: int) -> int:
    """As much as fits, in ever smaller pieces, to a thousandth of the GPU."""
    filled, piece = 0, total // 4
    while piece >= total // 1024:
        try:
            worker.do("hold", piece)
            filled += piece
        except RuntimeError:
            piece //= 2
    return filled


def _outcome(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except CudaError as error:
        return str(error)
    return "done"


def neighbour_lock_ms(driver: Checkpointer, *, busy: bool, times: int = 10) -> list[float]:
    """How long a neighbour that computes (or rests) takes to be locked, in ms; it is unlocked at once."""
    taken = []
    with Worker() as worker:
        worker.do("hold", 32 * MIB)
        if busy:
            worker.do("busy")
        for _ in range(times):
            begun = time.perf_counter()
            driver.lock(worker.pid, LOCK_MS)
            taken.append((time.perf_counter() - begun) * 1000)
            driver.unlock(worker.pid)
    return sorted(taken)
