"""The idle rule, carried out: watches who works, tells what comes, saves memory, gives leases back,
ends kernels. `idleness` decides when.

A kernel whose cells do not ask at the gate (another language) is left alone: an agent that cannot
see it work must not call it idle. A lease that was given back is asked for again by the kernel's
next cell; until then its workload is held at the scheduler, booking nothing.
"""

from __future__ import annotations

from typing import Final

from jupyter_gpushare.messages import LeaseRules, NoticeEnded, NoticeGiven, WorkloadRequeued, stamp

from ..policy.idleness import CancelWarning, IdleAction, IdleKernel, SendWarning, next_move
from ..state.kernel_record import IdleState, KernelRecord, wall_ms
from ..state.node import NodeRuntime
from .leases import LeaseAssignments
from .lifecycle import KernelLifecycle
from .memory_mover import MemoryMover

__all__ = ["IdleCuller", "ask_again", "reset"]

ASK_EVERY_MS: Final = 1_000
"""How often a cell that waits for a lease that was given back asks for it: a link that was down
misses the first time.
"""


class IdleCuller:
    """Runs the rule for one node; `check` is called at every step of the desk."""

    def __init__(
        self,
        node: NodeRuntime,
        mover: MemoryMover,
        leases: LeaseAssignments,
        lifecycle: KernelLifecycle,
    ) -> None:
        self._node, self._mover, self._leases, self._lifecycle = node, mover, leases, lifecycle

    def check(self, now: int) -> int | None:
        """One look at everybody; gives the next moment at which there may be something to do."""
        moments: list[int] = []
        notice = max(self._node.config.min_notice_ms, self._node.notice_ms())
        for book in list(self._node.books.values()):
            rest, rules = book.rest, _rules(book)
            if rules is None:
                self._forget(book)
                rest.since, rest.done, rest.giving_back = now, "", False
                continue
            self._look(book, now)
            if rest.giving_back:
                self._give_back(book)
                continue
            moments += _moments(rules, rest, notice)
            match next_move(rules, self._idle(book, now), now, notice):
                case SendWarning() as move:
                    self._tell(book, rules, move, now)
                case CancelWarning():
                    self._forget(book)
                case IdleAction(step="suspend"):
                    rest.done = "suspend"
                    self._forget(book)
                    self._mover.suspend(book, None, self._why(rules, "suspend"))
                case IdleAction(step="release"):
                    rest.done, rest.giving_back = "release", True
                    self._forget(book)
                    self._give_back(book)
                case IdleAction(step="end"):
                    rest.done = "end"
                    self._forget(book)
                    self._lifecycle.shut_down(
                        book, self._node.story.idle_ended(self._why(rules, "end"))
                    )
            moments += [] if rest.deadline is None else [rest.deadline]
        return min((moment for moment in moments if moment > now), default=None)

    # ---- what is true ----------------------------------------------------------------------------

    def _look(self, book: KernelRecord, now: int) -> None:
        """Anything that is work, or a new beginning, sets the clock back."""
        rest, holder = book.rest, book.lease.id if book.lease else rest_lease(book)
        begins = book.lease is not None and (
            rest.holder != holder or not (book.attached or book.holding.suspended)
        )
        if begins or _works(book, now) or book.holding.busy_ms > rest.busy_ms:
            rest.since, rest.done, rest.giving_back = now, "", False
        rest.holder, rest.busy_ms = holder, book.holding.busy_ms
        if rest.lease is not None and book.lease is None and book.question is not None:
            ask_again(self._node, book, now)

    def _idle(self, book: KernelRecord, now: int) -> IdleKernel:
        rest, spared = book.rest, set[str]()
        if book.pinned or not book.held():
            spared.add("suspend")
        if book.held() and now < book.no_suspend_until:
            spared |= {
                "suspend",
                "release",
            }  # what cannot be saved is not taken for being idle; `end` says what is lost
        if book.lease is None:
            spared |= {"suspend", "release"}
        return IdleKernel(
            rest.since, _works(book, now), rest.done, rest.told, rest.deadline, frozenset(spared)
        )

    # ---- moves -----------------------------------------------------------------------------------

    def _tell(self, book: KernelRecord, rules: LeaseRules, move: SendWarning, now: int) -> None:
        node, rest = self._node, book.rest
        self._forget(book)
        rest.told, rest.deadline = move.step, move.deadline
        left = None if move.deadline is None else move.deadline - now
        text = node.story.idle(
            move.step,
            now - rest.since,
            left,
            book.held() + book.image(),
            self._why(rules, move.step),
            book.pinned,
        )
        node.happened(book, "notice", text, tell=left is None)
        if left is not None:
            rest.stamp = stamp(wall_ms() + left)
            node.ports.to_kernel(
                book.kernel_id, NoticeGiven(message=text, deadline_ms=left, take_mib=book.held())
            )

    def _forget(self, book: KernelRecord) -> None:
        rest = book.rest
        if rest.deadline is not None:
            self._node.ports.to_kernel(book.kernel_id, NoticeEnded(message=""))
        rest.told, rest.deadline, rest.stamp = "", None, None

    def _give_back(self, book: KernelRecord) -> None:
        """Save first, then let go: what comes back at the next cell is all there."""
        rest, lease = book.rest, book.lease
        if lease is None or lease.wanted == "evict" or book.unwanted:
            rest.giving_back = False
        elif book.held() and self._node.clock() < book.no_suspend_until:
            rest.giving_back = False  # it turned out that it cannot be saved
        elif book.held():
            self._mover.suspend(book, None, self._why(lease.rules, "release"))
        elif book.transit is None:
            text = self._node.story.idle_released(book.image(), self._why(lease.rules, "release"))
            self._node.happened(book, "released", text, tell=True)
            self._node.let_go(lease.id, ended=False, message=text, held=True)
            rest.giving_back, rest.lease = False, lease
            self._leases.drop(book)
            self._node.dirty = True

    @staticmethod
    def _why(rules: LeaseRules, step: str) -> str:
        """`idle.suspend: 30m, at defaults.rules.idle.suspend`."""
        place = rules.places.get(f"idle.{step}", "")
        return f"rule {place}" if place else "the idle rule"


def rest_lease(book: KernelRecord) -> str:
    """The lease that the idle rule gave back; "": none."""
    return book.rest.lease.id if book.rest.lease else ""


def ask_again(node: NodeRuntime, book: KernelRecord, now: int) -> None:
    """Its owner is back: the held workload asks for its GPU again. Said at most once a second."""
    rest = book.rest
    if rest.lease is not None and now - rest.asked >= ASK_EVERY_MS:
        rest.asked = now
        node.ports.to_scheduler(WorkloadRequeued(workload=rest.lease.workload))


def _rules(book: KernelRecord) -> LeaseRules | None:
    """The rules of the lease that it has, or had before the idle rule gave it back; None: it has no
    business with us.
    """
    if book.lease is not None or not book.asks():
        book.rest.lease = None  # it is held anew, or its owner does not want it any more
    if book.main is None or book.killing or book.ending or book.transit is not None:
        return None if book.transit is None else LeaseRules()
    lease = book.lease or book.rest.lease
    return None if lease is None or book.unwanted or lease.wanted == "evict" else lease.rules


def _moments(rules: LeaseRules, rest: IdleState, notice_ms: int) -> list[int]:
    """When something may have to be said or done."""
    acts = [
        time
        for time in (rules.idle_suspend_ms, rules.idle_release_ms, rules.idle_end_ms)
        if time is not None
    ]
    warn = [] if rules.idle_warn_ms is None else [rules.idle_warn_ms]
    return [rest.since + time for time in (*warn, *acts, *(time - notice_ms for time in acts))]


def _works(book: KernelRecord, now: int) -> bool:
    """A cell runs or waits at the gate, or may run for all we know."""
    return book.question is not None or book.is_running(now)


def reset(book: KernelRecord, now: int) -> None:
    """Its owner did something: the clock of the idle rule starts anew."""
    book.rest.since, book.rest.done = now, ""
