"""The cell gate: a cell asks "may I run?", waits where a person sees it, and can be interrupted; a
refused cell does not run.

Two hooks of IPython make it: `pre_run_cell` can block and show but not veto; an AST transformer can
veto but comes without the cell's text. A kernel that asked for no GPU never asks the agent
anything.
"""

from __future__ import annotations

import ast
import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

from IPython.core.error import InputRejected

from .connection import AgentConnection, Json

__all__ = ["CellNotRun", "CellGate", "GpuReclaimed", "GateProgress", "away_s", "is_exempt"]

SHOW_AFTER_S: Final = 0.25
"""A wait that is over before a person notices it leaves no trace."""
TICK_S: Final = 1.0
AWAY_S: Final = 10.0
"""How long cells wait for an agent that is away, from when its line broke (or, of one that has
never answered, from the question on): enough for its restart on a slow machine.
`GPUSHARE_AGENT_WAIT` in the kernel's environment says another number of seconds.
"""


LONGEST_AWAY_S: Final = 3600.0
HAS_LEASE: Final = ("attached", "reclaiming")


def away_s(environ: Mapping[str, str]) -> float:
    """How long this kernel waits for an agent that is away; what is no number of seconds counts as
    not said.
    """
    with contextlib.suppress(ValueError):
        return min(max(0.0, float(environ.get("GPUSHARE_AGENT_WAIT", AWAY_S))), LONGEST_AWAY_S)
    return AWAY_S


class _OneLine(Exception):
    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of a traceback: the frames are ours, not the person's."""
        return [f"{type(self).__name__}: {self}"]


class CellNotRun(_OneLine, InputRejected):
    """Raised in place of a cell that the gate did not let through."""


class GpuReclaimed(_OneLine):
    """Raised in the running cell when its kernel is about to be relaunched because its GPU was
    taken back.
    """


class GateProgress(Protocol):
    """Where a person sees that a cell waits."""

    def show(self, message: str, waited_s: float) -> None: ...
    def done(self, message: str) -> None: ...


class GateVerdict(
    NamedTuple
):  # a data class takes longer to make, and a kernel's start pays for it
    """`n`: the question that was answered with "go", to be ended when the work is done; None:
    nobody was asked.
    """

    go: bool
    message: str = ""
    n: int | None = None


def is_exempt(cell: str) -> bool:
    """A cell that begins with `%gpu` never waits: it is how a person asks why. `%%gpu` asks and
    waits by itself.
    """
    first = cell.lstrip().split(maxsplit=1)[:1]
    return first in (["%gpu"], ["%%gpu"])


class CellGate:
    """One per kernel. `ask` blocks the caller; everything else returns at once."""

    def __init__(
        self,
        link: AgentConnection,
        progress: Callable[[], GateProgress],
        *,
        wants_gpu: bool = False,
        away_s: float = AWAY_S,
    ) -> None:
        self.link, self._away_s = link, away_s
        self.gave_up = False
        """A wait was interrupted: later cells run without a GPU until it arrives or somebody waits
        again.
        """
        self.ending: str | None = None
        self.running = False
        self._progress = progress
        self._wants_gpu = wants_gpu
        self._refused = threading.local()
        """Per thread: cells of subshells run in threads of their own."""
        self._speaks = False
        """The running cell begins with `%gpu`: it speaks of the GPU and needs none."""
        self._granted: set[int] = set()
        """Questions of the running cell that were answered with "go": the agent takes this kernel
        to be busy until they end.
        """
        self._asking = 0

    # ---- hooks of IPython

    def before_cell(self, info: Any) -> None:
        """`pre_run_cell`."""
        self._refused.message, self.ending, self.running = None, None, True
        self._speaks = is_exempt(info.raw_cell or "")
        _raise_own_error_on_interrupt(self)
        if not self.is_needed():
            return
        verdict = self.ask(exempt=self._speaks)
        if not verdict.go:
            self._refused.message = verdict.message

    def after_cell(self, *_: Any) -> None:
        """`post_run_cell`: also after a cell that failed or was refused."""
        self.running = False
        for n in sorted(self._granted):
            self.link.send({"type": "cell_end", "n": n})
        self._granted.clear()

    def visit(self, node: ast.AST) -> ast.AST:
        """The AST transformer: turns a refusal into the one error of the cell."""
        message = getattr(self._refused, "message", None)
        self._refused.message = None
        if message is not None:
            raise CellNotRun(message)
        return node

    # ---- the question

    def is_needed(self) -> bool:
        """Whether this kernel asked for a GPU, as far as it knows."""
        if self.link.address is None:
            return False
        if not self.link.ever_welcomed:
            return self._wants_gpu
        return bool(self.link.kernel["state"] not in ("detached", "lost"))

    def ask(
        self, *, exempt: bool = False, wait: bool = False, timeout: float | None = None
    ) -> GateVerdict:
        """Whether the cell may run; it is ended with the cell that runs (`after_cell`)."""
        verdict = self.ask_apart(exempt=exempt, wait=wait, timeout=timeout)
        if verdict.n is not None:
            self._granted.add(verdict.n)
        return verdict

    def end(self, verdict: GateVerdict) -> None:
        """What was asked apart is done."""
        if verdict.n is not None:
            self.link.send({"type": "cell_end", "n": verdict.n})

    def ask_apart(
        self, *, exempt: bool = False, wait: bool = False, timeout: float | None = None
    ) -> GateVerdict:
        """Whether it may run. Waits until the agent says so, the person interrupts, or `timeout`
        seconds are over; ended with `end`.

        An agent that is away holds up what has to wait for a GPU anyway, and for a short time after
        it went who has one: it may be on its way back, and nobody else can make a share free that
        others borrowed. Then a kernel that has its lease runs on.
        """
        if wait:
            self.gave_up = False
        if exempt and not wait:
            return GateVerdict(True)
        started, progress = time.monotonic(), self._progress()
        deadline = None if timeout is None else started + timeout
        try:
            with _interruptible():
                while True:
                    if not self._line_stands(progress, started, deadline, wait):
                        return GateVerdict(True)
                    verdict = self._ask_once(progress, started, deadline, wait)
                    if verdict is not None:
                        return verdict
        except KeyboardInterrupt:
            return self._interrupted(progress)

    def _line_stands(
        self, progress: GateProgress, started: float, deadline: float | None, wait: bool
    ) -> bool:
        """Wait for the agent where that makes sense; False: go on without asking."""
        while not self.link.welcomed.is_set():
            until, now = self._patience(started, wait), time.monotonic()
            if now >= until or _is_over(deadline):
                progress.done(_gone_on(self.link, now - started))
                return False
            self.link.welcomed.wait(min(SHOW_AFTER_S, until - now))
            waited = time.monotonic() - started
            if waited > SHOW_AFTER_S:
                progress.show(_away(until - time.monotonic(), self.link.problem()), waited)
        return True

    def _patience(self, started: float, wait: bool) -> float:
        """Until when (monotonic seconds) to wait for an agent that is away."""
        if wait or (
            not self.gave_up and self.link.kernel["state"] in ("pending", "granted", "suspended")
        ):
            return math.inf
        if self.gave_up:
            return 0.0
        return (self.link.lost_at if self.link.ever_welcomed else started) + self._away_s

    def _ask_once(
        self, progress: GateProgress, started: float, deadline: float | None, wait: bool
    ) -> GateVerdict | None:
        """One question over one connection; None when the line broke before the answer."""
        with self.link.asking() as (n, answers):
            self._asking += 1
            self.link.send(
                {"type": "cell_start", "n": n, "exempt": False, "wait": wait, "running": False}
            )
            try:
                return self._hear(n, answers, progress, started, deadline)
            except KeyboardInterrupt:
                self._withdraw(n)
                raise
            finally:
                self._asking -= 1

    def _interrupted(self, progress: GateProgress) -> GateVerdict:
        progress.done("Stopped waiting for the GPU.")
        if self.ending is not None:
            return GateVerdict(False, self.ending)
        self.gave_up = True
        if self.link.kernel["state"] in HAS_LEASE and not self.link.welcomed.is_set():
            return GateVerdict(
                False,
                "the wait for the node agent was interrupted, so this cell did not run; later cells do not wait for it",
            )
        return GateVerdict(
            False,
            "the wait for the GPU was interrupted, so this cell did not run; "
            "later cells run without a GPU until it arrives (`%gpu wait` waits again)",
        )

    def _hear(
        self,
        n: int,
        answers: queue.SimpleQueue[Json],
        progress: GateProgress,
        started: float,
        deadline: float | None,
    ) -> GateVerdict | None:
        sentence, shown = "", False
        while True:
            try:
                message = answers.get(timeout=TICK_S if shown else SHOW_AFTER_S)
            except queue.Empty:
                message = {"type": "tick"}
            waited, kind = time.monotonic() - started, message["type"]
            if kind == "cell_go":
                self.gave_up = self.gave_up and self.link.kernel["state"] == "pending"
                progress.done(
                    message.get("message")
                    or (_end_of_wait(self.link.kernel, waited) if shown else "")
                )
                return GateVerdict(True, n=n)
            if kind == "cell_refused":
                progress.done("")
                return GateVerdict(False, message["message"])
            if kind == "away":
                return None
            if _is_over(deadline):
                self._withdraw(n)
                progress.done("")
                return GateVerdict(
                    False, f"no GPU after {waited:.0f} s: {sentence or 'the agent gave no reason'}"
                )
            sentence = message.get("message", sentence)
            if sentence and waited >= SHOW_AFTER_S:
                shown = True
                progress.show(_with_position(sentence, message, self.link.kernel), waited)

    def _withdraw(self, n: int) -> None:
        self.link.send({"type": "cell_cancel", "n": n})

    # ---- what the agent has to know of a cell that runs (in the link's thread)

    def say_again(self) -> None:
        """The agent is a new one: what runs, runs."""
        for n in sorted(self._granted):
            self.link.send(
                {"type": "cell_start", "n": n, "exempt": False, "wait": False, "running": True}
            )

    def catch_up(self) -> None:
        """A cell runs that did not ask: the GPU came meanwhile (the sidebar asked for it), or the
        agent was away, and the memory with it. From now on this kernel is busy, and needs what it
        has saved (`wait`); but not for a cell that just said `%gpu suspend`.
        """
        if self._speaks and self.link.kernel["state"] != "attached":
            return
        if (
            not self.running
            or self._granted
            or self._asking
            or self.link.kernel["state"] not in ("attached", "suspended", "reclaiming")
        ):
            return
        with self.link.asking() as (n, _):
            self._granted.add(n)
            self.link.send(
                {
                    "type": "cell_start",
                    "n": n,
                    "exempt": False,
                    "wait": not self._speaks,
                    "running": True,
                }
            )

    # ---- the end of a cell that was not the person's wish

    def end_cell(self, message: str) -> None:
        """From the link's thread: interrupt the running cell; the interrupt becomes
        `GpuReclaimed(message)`.
        """
        if self.running:
            self.ending = message
            # A real signal, so that a sleep or a read in the main thread ends too.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _away(left: float, problem: str) -> str:
    if problem:
        return f"There is no GPU to share here: {problem}."
    away = "The node agent of this machine is away; waiting for it to come back"
    if left == math.inf:
        return f"{away}."
    return f"{away}: without it nobody makes the share free that this cell may need. At the latest in {max(1, round(left))} s the cell runs."


def _gone_on(link: AgentConnection, waited: float) -> str:
    """What a cell that waited in vain is told."""
    if link.problem():
        return f"The cell runs without a GPU: {link.problem()}."
    if link.kernel["state"] not in HAS_LEASE:
        return "The node agent did not answer: the cell runs without a GPU."
    return f"The node agent did not come back within {waited:.0f} s: the cell runs with what is free on the GPU."


def _with_position(sentence: str, message: Json, kernel: Json) -> str:
    position = message.get("position") or kernel.get("queue_position")
    return (
        f"{sentence} Place in the queue: {position}."
        if position and "osition" not in sentence
        else sentence
    )


def _end_of_wait(kernel: Json, waited: float) -> str:
    """A cell that waited goes on: with its GPU, or because the request was taken back meanwhile."""
    if kernel["state"] == "detached":
        return "Stopped waiting: the request was taken back. The cell runs without a GPU."
    return f"GPU ready after {waited:.1f} s."


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While we wait, an interrupt raises here: cells with a top-level `await` have a handler that
    would only note it for later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_own_error_on_interrupt(gate: CellGate) -> None:
    """For the length of this cell: ipykernel puts its own handler back after every message."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return

    def handler(number: int, frame: FrameType | None) -> None:
        message, gate.ending = gate.ending, None
        if message is not None:
            raise GpuReclaimed(message)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handler)
