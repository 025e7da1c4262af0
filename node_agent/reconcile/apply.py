"""The third part of a step: carries out what the reclaim ladder decided."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jupyter_gpushare.messages import DropCaches, NoticeEnded, NoticeGiven, stamp

from ..policy.reclaim_steps import (
    AdmitStep,
    CancelNoticeStep,
    DropCachesStep,
    KillStep,
    NoticeStep,
    ReleaseStep,
    Step,
    SuspendStep,
    WaitStep,
)
from ..state.kernel_record import KernelRecord, have_same_user
from ..state.node import NodeRuntime
from ..state.notices import ReclaimNotice
from ..state.wall_clock import wall_ms
from .attachment import Attachment
from .cell_admission import CellAdmission
from .decide import AdmissionChecks
from .leases import LeaseAssignments
from .lifecycle import KernelLifecycle
from .memory_mover import MemoryMover
from .wait_text import wait_text

__all__ = ["Action", "StepApplier"]

Action = Callable[[], None]


class StepApplier:
    """Applies steps to one node."""

    def __init__(
        self,
        node: NodeRuntime,
        mover: MemoryMover,
        leases: LeaseAssignments,
        lifecycle: KernelLifecycle,
        checks: AdmissionChecks,
    ) -> None:
        self._node, self._mover, self._leases, self._lifecycle = node, mover, leases, lifecycle
        self._checks = checks
        self.attachment = Attachment(node)
        self.cells = CellAdmission(node)
        self.checking: set[str] = set()
        """Kernels whose cells run as soon as a newer reading, or a reconnected neighbour, confirms
        that their memory is free. They show no text at first.
        """

    def apply(self, step: Step, now: int) -> list[Action]:
        """Note the step in the records at once. Returns what must wait until the caps are set."""
        kernel = self._node.kernels[step.id]
        match step:
            case AdmitStep():
                return self._admit(kernel, now)
            case WaitStep():
                if kernel.gate.waiting:
                    self.cells.show_wait(kernel, wait_text(self._node, kernel, step, now))
            case DropCachesStep(deadline=deadline):
                kernel.memory.caches_deadline = deadline
                self._node.reclaims["caches"] += 1
                self._node.ports.to_kernel(kernel.kernel_id, DropCaches())
            case SuspendStep(asker=asker):
                return [partial(self._suspend, kernel, asker)]
            case NoticeStep():
                self._give_notice(kernel, step, now)
            case CancelNoticeStep():
                self._end_notice(kernel, self._node.text.notice_cancelled())
            case KillStep(asker=asker):
                self._kill(kernel, asker)
            case ReleaseStep():
                self._release(kernel)
        return []

    # ---- admission -------------------------------------------------------------------------------

    def _admit(self, kernel: KernelRecord, now: int) -> list[Action]:
        if kernel.process.unrestorable or self._is_checking(kernel):
            return []
        # Running, or being resumed, counts from here on: the caps that follow must know it.
        if kernel.memory.suspended:
            if now < kernel.memory.no_resume_until:
                return []
            kernel.memory.transit = "in"
            return [partial(self._mover.resume, kernel, kernel.assignment.assigned_gpus)]
        if not kernel.assignment.attached:
            self.attachment.attach(kernel)
        kernel.assignment.admitted()
        kernel.residence.begin(now)
        kernel.turn.begin(now)
        waiting = list(kernel.gate.waiting)
        kernel.gate.running.update(waiting)
        return [partial(self._admit_cell, kernel, n) for n in waiting]

    def _admit_cell(self, kernel: KernelRecord, n: int) -> None:
        admit = partial(self.cells.admit_if_waiting, kernel, n)
        self._node.devices.when_limits_are_set(kernel.kernel_id, admit)

    def _is_checking(self, kernel: KernelRecord) -> bool:
        """Whether its cells have to wait for a check. Those that wait for long show why."""
        obstacle, text = self._checks.obstacle(kernel), self._node.text
        is_late = self._checks.is_late(kernel)
        if obstacle == "neighbour":
            self.checking.add(kernel.kernel_id)
            if is_late:
                self.cells.show_wait(kernel, text.waits_for_reconnect())
        elif obstacle == "reading":
            if is_late:
                self.cells.show_wait(kernel, text.waits_for_driver())
            else:
                self.checking.add(kernel.kernel_id)
            self._node.devices.refresh()
        return bool(obstacle)

    # ---- reclaim ---------------------------------------------------------------------------------

    @staticmethod
    def _reason(kernel: KernelRecord) -> str:
        """Why the scheduler evicts it; "" when it does not."""
        return kernel.lease.message if kernel.lease and kernel.assignment.evicted else ""

    def _suspend(self, kernel: KernelRecord, asker: str) -> None:
        requested = kernel.assignment.lease_revoked or kernel.preferences.suspended_by_user
        is_move = asker == kernel.kernel_id
        if not requested and not is_move:
            self._node.reclaims["suspended"] += 1
        moves_away = is_move and not requested
        reason = "it is moved to another GPU" if moves_away else self._reason(kernel)
        other = None if is_move else self._node.kernels.get(asker)
        if other is not None and not requested:
            self._note_rotation(kernel, other)
        self._mover.suspend(kernel, other, reason, requested=requested)

    def _note_rotation(self, victim: KernelRecord, asker: KernelRecord) -> None:
        """A busy notebook makes room for another one of the same person."""
        now = self._node.clock()
        if victim.is_running(now) and have_same_user(victim, asker):
            assert asker.lease is not None
            asker.residence.granted_ms = self._node.rotations.evicted(asker.lease.user, now)
            victim.residence.until = 0

    def _kill(self, kernel: KernelRecord, asker: str) -> None:
        if not kernel.process.killing:
            self._node.reclaims["killed"] += 1
        self._lifecycle.kill(kernel, self._node.kernels.get(asker), self._reason(kernel))

    def _give_notice(self, kernel: KernelRecord, step: NoticeStep, now: int) -> None:
        node, left = self._node, step.deadline - now
        kernel.notice = ReclaimNotice(step.deadline, stamp(wall_ms() + left))
        text = self._notice_text(kernel, step, now)
        node.reclaims["notice"] += 1
        node.record_event(kernel, "notice", text)
        body = NoticeGiven(
            message=text, deadline_ms=left, take_mib=max(step.take, kernel.memory.used_mib)
        )
        node.ports.to_kernel(kernel.kernel_id, body)

    def _notice_text(self, kernel: KernelRecord, step: NoticeStep, now: int) -> str:
        node, seconds = self._node, (step.deadline - now) / 1000
        asker, reason = node.kernels.get(step.asker), self._reason(kernel)
        if kernel.is_command:
            return node.text.command_notice(seconds, kernel, asker, reason)
        can_save = not node.suspend_problem(kernel, now)
        take = max(step.take, kernel.memory.used_mib)
        return node.text.notice(take, step.take, seconds, kernel, asker, reason, can_save)

    def _end_notice(self, kernel: KernelRecord, text: str) -> None:
        kernel.notice = ReclaimNotice()
        self._node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=text))

    def _release(self, kernel: KernelRecord) -> None:
        """An evicted or revoked lease holds nothing any more."""
        lease = kernel.assignment.active_lease
        if lease is not None:
            text = self._node.text.evicted(lease.message, kernel.memory.saved_mib)
            self._node.release_lease(lease.id, ended=False, message=text)
            self._node.notify(kernel, text)
        if kernel.notice.deadline is not None:
            self._end_notice(kernel, "")
        self._leases.drop(kernel)
        self._node.wake()
