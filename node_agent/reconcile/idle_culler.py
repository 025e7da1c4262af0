"""Applies the idle rule: finds idle kernels, warns their users, saves memory, releases leases and
shuts kernels down. `policy.idleness` decides when.

A kernel whose cells do not ask at the gate (another language) is left alone: the agent cannot see
it work and must not call it idle. The next cell of a kernel whose lease was released requests it
again; until then its workload is held at the scheduler and counts no use.
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

__all__ = ["REQUEST_EVERY_MS", "IdleCuller", "request_again"]

REQUEST_EVERY_MS: Final = 1_000
"""How often a waiting cell requests a released lease: a message may be lost while the link is down.
"""


class IdleCuller:
    """Applies the rule on one node; `check` is called at every step of the reconciler."""

    def __init__(
        self,
        node: NodeRuntime,
        mover: MemoryMover,
        leases: LeaseAssignments,
        lifecycle: KernelLifecycle,
    ) -> None:
        self._node, self._mover, self._leases, self._lifecycle = node, mover, leases, lifecycle

    def check(self, now: int) -> int | None:
        """Check all kernels; returns the next time (monotonic ms) at which one may need a step."""
        notice_ms = max(self._node.config.min_notice_ms, self._node.notice_ms())
        moments: list[int] = []
        for kernel in list(self._node.kernels.values()):
            moments += self._check(kernel, now, notice_ms)
        return min((moment for moment in moments if moment > now), default=None)

    def _check(self, kernel: KernelRecord, now: int, notice_ms: int) -> list[int]:
        idle, rules = kernel.idle, _rules(kernel)
        if rules is None:
            self._cancel_warning(kernel)
            idle.restart(now)
            return []
        self._observe(kernel, now)
        if idle.releasing:
            self._release(kernel)
            return []
        moments = _moments(rules, idle, notice_ms)
        match next_move(rules, self._idle_kernel(kernel, now), now, notice_ms):
            case SendWarning() as move:
                self._warn(kernel, rules, move, now)
            case CancelWarning():
                self._cancel_warning(kernel)
            case IdleAction(step=step):
                self._act(kernel, rules, step)
        return moments if idle.deadline is None else [*moments, idle.deadline]

    # ---- observe ---------------------------------------------------------------------------------

    def _observe(self, kernel: KernelRecord, now: int) -> None:
        """Work, a new lease and a new attachment restart the idle time."""
        idle, usage = kernel.idle, kernel.memory.usage
        lease_id = kernel.lease.id if kernel.lease else idle.released_lease_id
        present = kernel.assignment.attached or kernel.memory.suspended
        begins = kernel.lease is not None and (idle.last_lease != lease_id or not present)
        if begins or _works(kernel, now) or usage.busy_ms > idle.busy_ms:
            idle.restart(now)
        idle.last_lease, idle.busy_ms = lease_id, usage.busy_ms
        if idle.released_lease is not None and kernel.lease is None and kernel.gate.waiting:
            request_again(self._node, kernel, now)

    @staticmethod
    def _idle_kernel(kernel: KernelRecord, now: int) -> IdleKernel:
        idle, memory, spared = kernel.idle, kernel.memory, set[str]()
        if kernel.preferences.pinned or not memory.used_mib:
            spared.add("suspend")
        if memory.used_mib and not memory.can_suspend(now):
            # memory that cannot be saved is not taken for being idle; `end` warns of the loss
            spared |= {"suspend", "release"}
        if kernel.lease is None:
            spared |= {"suspend", "release"}
        return IdleKernel(
            idle.since,
            _works(kernel, now),
            idle.done,
            idle.warned,
            idle.deadline,
            frozenset(spared),
        )

    # ---- act -------------------------------------------------------------------------------------

    def _act(self, kernel: KernelRecord, rules: LeaseRules, step: str) -> None:
        self._cancel_warning(kernel)
        rule = _rule_text(rules, step)
        if step == "suspend":
            kernel.idle.done = "suspend"
            self._mover.suspend(kernel, None, rule)
        elif step == "release":
            kernel.idle.done, kernel.idle.releasing = "release", True
            self._release(kernel)
        elif step == "end":
            kernel.idle.done = "end"
            self._lifecycle.shut_down(kernel, self._node.text.idle_ended(rule))

    def _warn(self, kernel: KernelRecord, rules: LeaseRules, move: SendWarning, now: int) -> None:
        node, idle, memory = self._node, kernel.idle, kernel.memory
        self._cancel_warning(kernel)
        idle.warn(move.step, move.deadline)
        left = None if move.deadline is None else move.deadline - now
        text = node.text.idle(
            move.step,
            now - idle.since,
            left,
            memory.used_mib + memory.saved_mib,
            _rule_text(rules, move.step),
            kernel.preferences.pinned,
        )
        node.record_event(kernel, "notice", text, notify=left is None)
        if left is not None:
            idle.stamp = stamp(wall_ms() + left)
            body = NoticeGiven(message=text, deadline_ms=left, take_mib=memory.used_mib)
            node.ports.to_kernel(kernel.kernel_id, body)

    def _cancel_warning(self, kernel: KernelRecord) -> None:
        if kernel.idle.deadline is not None:
            self._node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=""))
        kernel.idle.cancel_warning()

    def _release(self, kernel: KernelRecord) -> None:
        """Save the memory first, then release the lease: the next cell restores all of it."""
        memory, lease = kernel.memory, kernel.assignment.active_lease
        if lease is None or kernel.assignment.evicted:
            kernel.idle.releasing = False
            return
        rule = _rule_text(lease.rules, "release")
        if memory.used_mib and not memory.can_suspend(self._node.clock()):
            kernel.idle.releasing = False  # it turned out that it cannot be saved
        elif memory.used_mib:
            self._mover.suspend(kernel, None, rule)
        elif memory.transit is None:
            text = self._node.text.idle_released(memory.saved_mib, rule)
            self._node.record_event(kernel, "released", text, notify=True)
            self._node.release_lease(lease.id, ended=False, message=text, held=True)
            kernel.idle.releasing, kernel.idle.released_lease = False, lease
            self._leases.drop(kernel)


def request_again(node: NodeRuntime, kernel: KernelRecord, now: int) -> None:
    """Its user is back: the held workload requests its GPU again. Sent at most once a second."""
    idle = kernel.idle
    if idle.released_lease is not None and now - idle.asked_again_at >= REQUEST_EVERY_MS:
        idle.asked_again_at = now
        node.ports.to_scheduler(WorkloadRequeued(workload=idle.released_lease.workload))


def _rule_text(rules: LeaseRules, step: str) -> str:
    """`rule idle.suspend: 30m, at defaults.rules.idle.suspend`."""
    place = rules.places.get(f"idle.{step}", "")
    return f"rule {place}" if place else "the idle rule"


def _rules(kernel: KernelRecord) -> LeaseRules | None:
    """The rules of its lease, or of the lease that the idle rule released; None: the idle rule does
    not apply to it now.
    """
    if kernel.lease is not None or not kernel.wants_gpu():
        kernel.idle.released_lease = None  # it is granted again, or no longer wanted
    if kernel.memory.transit is not None:
        return LeaseRules()
    process = kernel.process
    if process.main is None or process.killing or process.ending:
        return None
    lease = kernel.lease or kernel.idle.released_lease
    if lease is None or kernel.assignment.lease_revoked or lease.wanted == "evict":
        return None
    return lease.rules


def _moments(rules: LeaseRules, idle: IdleState, notice_ms: int) -> list[int]:
    """When a warning or a step may be due."""
    delays = [] if rules.idle_warn_ms is None else [rules.idle_warn_ms]
    for delay in (rules.idle_suspend_ms, rules.idle_release_ms, rules.idle_end_ms):
        if delay is not None:
            delays += [delay, delay - notice_ms]
    return [idle.since + delay for delay in delays]


def _works(kernel: KernelRecord, now: int) -> bool:
    """A cell runs or waits at the gate, or may be running."""
    return bool(kernel.gate.waiting) or kernel.is_running(now)
