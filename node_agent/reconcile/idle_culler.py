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
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from ..state.notices import IdleState
from ..state.wall_clock import wall_ms
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
        for kernel in list(self._node.kernels.values()):
            rest, rules = kernel.idle, _rules(kernel)
            if rules is None:
                self._forget(kernel)
                rest.since, rest.done, rest.releasing = now, "", False
                continue
            self._look(kernel, now)
            if rest.releasing:
                self._give_back(kernel)
                continue
            moments += _moments(rules, rest, notice)
            match next_move(rules, self._idle(kernel, now), now, notice):
                case SendWarning() as move:
                    self._tell(kernel, rules, move, now)
                case CancelWarning():
                    self._forget(kernel)
                case IdleAction(step="suspend"):
                    rest.done = "suspend"
                    self._forget(kernel)
                    self._mover.suspend(kernel, None, self._why(rules, "suspend"))
                case IdleAction(step="release"):
                    rest.done, rest.releasing = "release", True
                    self._forget(kernel)
                    self._give_back(kernel)
                case IdleAction(step="end"):
                    rest.done = "end"
                    self._forget(kernel)
                    self._lifecycle.shut_down(
                        kernel, self._node.text.idle_ended(self._why(rules, "end"))
                    )
            moments += [] if rest.deadline is None else [rest.deadline]
        return min((moment for moment in moments if moment > now), default=None)

    # ---- what is true ----------------------------------------------------------------------------

    def _look(self, kernel: KernelRecord, now: int) -> None:
        """Anything that is work, or a new beginning, sets the clock back."""
        rest, holder = kernel.idle, kernel.lease.id if kernel.lease else rest_lease(kernel)
        begins = kernel.lease is not None and (
            rest.last_lease != holder or not (kernel.assignment.attached or kernel.memory.suspended)
        )
        if begins or _works(kernel, now) or kernel.memory.usage.busy_ms > rest.busy_ms:
            rest.since, rest.done, rest.releasing = now, "", False
        rest.last_lease, rest.busy_ms = holder, kernel.memory.usage.busy_ms
        if rest.released_lease is not None and kernel.lease is None and kernel.gate.waiting:
            ask_again(self._node, kernel, now)

    def _idle(self, kernel: KernelRecord, now: int) -> IdleKernel:
        rest, spared = kernel.idle, set[str]()
        if kernel.preferences.pinned or not kernel.memory.used_mib:
            spared.add("suspend")
        if kernel.memory.used_mib and now < kernel.memory.no_suspend_until:
            spared |= {
                "suspend",
                "release",
            }  # what cannot be saved is not taken for being idle; `end` says what is lost
        if kernel.lease is None:
            spared |= {"suspend", "release"}
        return IdleKernel(
            rest.since,
            _works(kernel, now),
            rest.done,
            rest.warned,
            rest.deadline,
            frozenset(spared),
        )

    # ---- moves -----------------------------------------------------------------------------------

    def _tell(self, kernel: KernelRecord, rules: LeaseRules, move: SendWarning, now: int) -> None:
        node, rest = self._node, kernel.idle
        self._forget(kernel)
        rest.warned, rest.deadline = move.step, move.deadline
        left = None if move.deadline is None else move.deadline - now
        text = node.text.idle(
            move.step,
            now - rest.since,
            left,
            kernel.memory.used_mib + kernel.memory.saved_mib,
            self._why(rules, move.step),
            kernel.preferences.pinned,
        )
        node.happened(kernel, "notice", text, tell=left is None)
        if left is not None:
            rest.stamp = stamp(wall_ms() + left)
            node.ports.to_kernel(
                kernel.kernel_id,
                NoticeGiven(message=text, deadline_ms=left, take_mib=kernel.memory.used_mib),
            )

    def _forget(self, kernel: KernelRecord) -> None:
        rest = kernel.idle
        if rest.deadline is not None:
            self._node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=""))
        rest.warned, rest.deadline, rest.stamp = "", None, None

    def _give_back(self, kernel: KernelRecord) -> None:
        """Save first, then let go: what comes back at the next cell is all there."""
        rest, lease = kernel.idle, kernel.lease
        if lease is None or lease.wanted == "evict" or kernel.assignment.lease_revoked:
            rest.releasing = False
        elif kernel.memory.used_mib and self._node.clock() < kernel.memory.no_suspend_until:
            rest.releasing = False  # it turned out that it cannot be saved
        elif kernel.memory.used_mib:
            self._mover.suspend(kernel, None, self._why(lease.rules, "release"))
        elif kernel.memory.transit is None:
            text = self._node.text.idle_released(
                kernel.memory.saved_mib, self._why(lease.rules, "release")
            )
            self._node.happened(kernel, "released", text, tell=True)
            self._node.let_go(lease.id, ended=False, message=text, held=True)
            rest.releasing, rest.released_lease = False, lease
            self._leases.drop(kernel)
            self._node.dirty = True

    @staticmethod
    def _why(rules: LeaseRules, step: str) -> str:
        """`idle.suspend: 30m, at defaults.rules.idle.suspend`."""
        place = rules.places.get(f"idle.{step}", "")
        return f"rule {place}" if place else "the idle rule"


def rest_lease(kernel: KernelRecord) -> str:
    """The lease that the idle rule gave back; "": none."""
    return kernel.idle.released_lease.id if kernel.idle.released_lease else ""


def ask_again(node: NodeRuntime, kernel: KernelRecord, now: int) -> None:
    """Its owner is back: the held workload asks for its GPU again. Said at most once a second."""
    rest = kernel.idle
    if rest.released_lease is not None and now - rest.asked_again_at >= ASK_EVERY_MS:
        rest.asked_again_at = now
        node.ports.to_scheduler(WorkloadRequeued(workload=rest.released_lease.workload))


def _rules(kernel: KernelRecord) -> LeaseRules | None:
    """The rules of the lease that it has, or had before the idle rule gave it back; None: it has no
    business with us.
    """
    if kernel.lease is not None or not kernel.wants_gpu():
        kernel.idle.released_lease = None  # it is held anew, or its owner does not want it any more
    if (
        kernel.process.main is None
        or kernel.process.killing
        or kernel.process.ending
        or kernel.memory.transit is not None
    ):
        return None if kernel.memory.transit is None else LeaseRules()
    lease = kernel.lease or kernel.idle.released_lease
    return (
        None
        if lease is None or kernel.assignment.lease_revoked or lease.wanted == "evict"
        else lease.rules
    )


def _moments(rules: LeaseRules, rest: IdleState, notice_ms: int) -> list[int]:
    """When something may have to be said or done."""
    acts = [
        time
        for time in (rules.idle_suspend_ms, rules.idle_release_ms, rules.idle_end_ms)
        if time is not None
    ]
    warn = [] if rules.idle_warn_ms is None else [rules.idle_warn_ms]
    return [rest.since + time for time in (*warn, *acts, *(time - notice_ms for time in acts))]


def _works(kernel: KernelRecord, now: int) -> bool:
    """A cell runs or waits at the gate, or may run for all we know."""
    return bool(kernel.gate.waiting) or kernel.is_running(now)


def reset(kernel: KernelRecord, now: int) -> None:
    """Its owner did something: the clock of the idle rule starts anew."""
    kernel.idle.since, kernel.idle.done = now, ""
