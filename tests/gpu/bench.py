"""The experiments: each takes a hand in the driver and gives numbers and verdicts; nothing here
knows what a report looks like.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, OutcomeUnknown
from node_agent.devices.nvidia.cuda import CudaDriver, CudaError

__all__ = [
    "Bare",
    "Framework",
    "Hand",
    "Home",
    "Missing",
    "Round",
    "Worker",
    "capped",
    "framework",
    "host_memory",
    "neighbour_lock_ms",
    "out_of_room",
    "round_trip",
    "tried",
    "waited",
]

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 1 << 20
GIB: Final = 1 << 30
LOCK_MS: Final = 10_000
ANSWER_S: Final = 150.0
SHOWN_S: Final = 20.0
STILL_S: Final = 5.0
"""An interpreter that has not answered for so long stands still."""


class Missing(Exception):
    """A framework that is not installed."""


class Silent(Exception):
    """A worker that does not answer."""


class Hand(Protocol):
    """The calls: the product's (`CheckpointClient`, through its helper process) or the driver's
    alone (`Bare`).
    """

    def lock(self, pid: int, timeout_ms: int) -> None: ...
    def checkpoint(self, pid: int, mib: int = 0) -> None: ...
    def restore(self, pid: int, pairs: tuple[tuple[str, str], ...] = (), mib: int = 0) -> None: ...
    def unlock(self, pid: int) -> None: ...


class Bare:
    """The driver's own calls in this process and nothing of ours around them: the rest is our cost."""

    def __init__(self) -> None:
        self._driver = CudaDriver()
        self._driver.init()
        self.lock, self.unlock = self._driver.lock, self._driver.unlock

    def checkpoint(self, pid: int, mib: int = 0) -> None:
        """Into the process's own host memory."""
        self._driver.checkpoint(pid)

    def restore(self, pid: int, pairs: tuple[tuple[str, str], ...] = (), mib: int = 0) -> None:
        """Where it was."""
        self._driver.restore(pid, pairs)


@dataclass(frozen=True)
class Home:
    """Where a worker lives: which Python, in which copy of this tree, as which user (None: as
    everybody here).
    """

    python: str = sys.executable
    folder: Path = ROOT
    user: int | None = None


class Worker:
    """One process that holds GPU memory; see worker.py for its words."""

    def __init__(self, kind: str = "driver", home: Home = Home()) -> None:
        self._process = subprocess.Popen(
            [home.python, "-m", "tests.gpu.worker", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=home.folder,
            user=home.user,
        )
        self.pid = self._process.pid
        self._rest = b""
        hello = self._hear(ANSWER_S)
        if hello != "ready":
            self.end()
            raise (
                Missing(hello)
                if hello.startswith("missing")
                else Silent(f"a worker ({kind}) did not start: {hello}")
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def do(self, *words: object, within: float = ANSWER_S) -> str:
        """Its answer; raises RuntimeError with an error that it met, Silent when it says nothing in
        time.
        """
        self.tell(*words)
        answer = self._hear(within)
        if answer.startswith("error"):
            raise RuntimeError(answer.removeprefix("error "))
        return answer

    def tell(self, *words: object) -> None:
        """Its answer is for a later `hear`."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self._process.stdin.flush()

    def hear(self, within: float = ANSWER_S) -> str:
        """What it has not answered yet."""
        return self._hear(within)

    def heard(self, within: float) -> str:
        """The same; "" when it does not answer in time: it owes it then."""
        try:
            return self._hear(within)
        except Silent:
            return ""

    def _hear(self, within: float) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                raise Silent(f"no answer within {within:.0f} s")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                return "gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode().strip()

    def end(self) -> None:
        """SIGKILL."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process may be deep in the driver
            self._process.wait(20)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@dataclass(frozen=True)
class Round:
    """Seconds of one suspend and resume of `size` bytes; `right`: every byte came back;
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


def round_trip(hand: Hand, worker: Worker, size: int, *, stay_s: float = 0.2) -> Round:
    """Suspend and resume a worker that holds `size` bytes. Raises CudaError."""
    seconds: dict[str, float] = {}
    worker.do("beat")
    _timed(seconds, "lock", lambda: hand.lock(worker.pid, LOCK_MS))
    _timed(seconds, "checkpoint", lambda: hand.checkpoint(worker.pid, size // MIB))
    time.sleep(stay_s)
    worker.tell("beat")  # answered while it is suspended: its Python lives
    pause = worker.heard(STILL_S)
    _timed(seconds, "restore", lambda: hand.restore(worker.pid, (), size // MIB))
    _timed(seconds, "unlock", lambda: hand.unlock(worker.pid))
    pause = pause or worker.hear()
    return Round(size, seconds, worker.do("check") == "right", int(pause))


def host_memory(hand: Hand, size: int) -> Iterator[dict[str, object]]:
    """By how many MiB each counter of the host grew while `size` bytes were saved, and what was
    left of it when they were back.
    """
    with Worker() as worker:
        worker.do("hold", size)
        before = _counters(worker.pid)
        hand.lock(worker.pid, LOCK_MS)
        hand.checkpoint(worker.pid, size // MIB)
        saved = _counters(worker.pid)
        hand.restore(worker.pid, (), size // MIB)
        hand.unlock(worker.pid)
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
    """MiB: the process's own, its cgroup's, and what the machine has left (as used)."""
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
    """Whether a framework's values survive, and what its Python does meanwhile. `while_waiting`:
    "answers", or that it stands still, while one of its threads waits for the GPU that is away.
    """

    name: str
    right: bool
    longest_pause_ms: int
    while_waiting: str
    seconds: dict[str, float]


def framework(hand: Hand, size: int, name: str) -> Framework:
    """Twice: the second time shows whether the first left anything behind. Raises Missing,
    CudaError, RuntimeError, Silent.
    """
    with Worker(name) as worker:
        worker.do("hold", size)
        rounds = [round_trip(hand, worker, size) for _ in range(2)]
        waiting = _waits(hand, worker, size)
        right = worker.do("check") == "right"
    return Framework(
        name,
        right and all(one.right for one in rounds),
        max(one.longest_pause_ms for one in rounds),
        waiting,
        rounds[-1].seconds,
    )


def _waits(hand: Hand, worker: Worker, size: int) -> str:
    """A thread calls the GPU while it is away. If the call keeps the interpreter's lock, nobody in
    the process can answer.
    """
    hand.lock(worker.pid, LOCK_MS)
    hand.checkpoint(worker.pid, size // MIB)
    worker.do("beat")
    worker.tell("touch")
    answers = worker.heard(STILL_S)
    if answers:
        time.sleep(1.0)
        worker.tell("beat")
        answers = worker.heard(STILL_S)
    hand.restore(worker.pid, (), size // MIB)
    hand.unlock(worker.pid)
    if not answers:
        worker.hear()
    worker.do("touched")
    return (
        f"answers, longest pause {answers} ms"
        if answers
        else f"stands still (no answer within {STILL_S:.0f} s)"
    )


def capped(name: str, total: int) -> Iterator[dict[str, object]]:
    """The product's own caps on the real framework: (what was asked, outcome)."""
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
            ("cap lowered to 4 GiB, caches given back", ("cap", cap, total_mib)),
            ("caches", ("drop",)),
            ("6 GiB over it again", ("take", 6 * GIB)),
        ):
            yield {"framework": name, "what": what, "outcome": outcome(*words)}


def out_of_room(hand: Hand, size: int, total: int) -> Iterator[dict[str, object]]:
    """What a restore into a GPU that is full says, and whether it can be tried again when there is
    room.
    """
    with Worker() as saved:
        saved.do("hold", size)
        hand.lock(saved.pid, LOCK_MS)
        hand.checkpoint(saved.pid, size // MIB)
        with Worker() as other:
            yield {
                "step": "GPU filled by another process",
                "outcome": f"{_fill(other, total) / GIB:.1f} GiB",
            }
            yield {
                "step": "restore without room",
                "outcome": _outcome(lambda: hand.restore(saved.pid, (), size // MIB)),
            }
        time.sleep(2.0)
        yield {
            "step": "restore with room again",
            "outcome": _outcome(lambda: hand.restore(saved.pid, (), size // MIB)),
        }
        unlocked = _outcome(lambda: hand.unlock(saved.pid))
        yield {"step": "unlock", "outcome": unlocked}
        if unlocked == "done":
            yield {"step": "its bytes", "outcome": saved.do("check")}


def _fill(worker: Worker, total: int) -> int:
    """As much as fits, in ever smaller pieces, to a thousandth of the GPU."""
    filled, piece = 0, total // 4
    while piece >= total // 1024:
        try:
            worker.do("take", piece)
            filled += piece
        except RuntimeError:
            piece //= 2
    return filled


def _outcome(call: Callable[[], object]) -> str:
    """ "done", what the call gave, or the error."""
    try:
        return str(call() or "done")
    except (CudaError, OutcomeUnknown) as error:
        return str(error)


def tried(hand: CheckpointClient, pid: int) -> Iterator[tuple[str, str]]:
    """What the driver says to each step of a suspend and resume of any process, and in which state
    it leaves it; to the end of what it allows.
    """

    def state() -> str:
        return _outcome(lambda: hand.state(pid).name)

    yield "state", state()
    for step, call in (
        ("lock", lambda: hand.lock(pid, 5_000)),
        ("checkpoint", lambda: hand.checkpoint(pid, 64)),
        ("restore", lambda: hand.restore(pid, (), 64)),
        ("unlock", lambda: hand.unlock(pid)),
    ):
        said = _outcome(call)
        yield step, f"{said}; state {state()}"
        if said != "done" and step == "lock":
            return


def neighbour_lock_ms(hand: Hand, *, kernel_ms: int = 0, times: int = 20) -> list[float]:
    """How long a neighbour that computes in kernels of that length (0: that rests) takes to be
    locked, in ms; it is unlocked at once.
    """
    taken = []
    with Worker() as worker:
        worker.do("hold", 32 * MIB)
        if kernel_ms:
            worker.do("busy", kernel_ms)
        for turn in range(times):
            time.sleep(0.013 * (turn % 5))  # not always at the same moment of a kernel
            begun = time.perf_counter()
            hand.lock(worker.pid, LOCK_MS)
            taken.append((time.perf_counter() - begun) * 1000)
            hand.unlock(worker.pid)
    return sorted(taken)


def waited(question: Callable[[], bool]) -> None:
    """Until it is so, or for SHOWN_S."""
    deadline = time.perf_counter() + SHOWN_S
    while not question() and time.perf_counter() < deadline:
        time.sleep(0.002)
