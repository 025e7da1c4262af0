"""Brings one node to the state that its leases ask for: observe, decide, apply.

A step is synchronous and never blocks. Copies and kills are started and wake the reconciler when
they end; deadlines wake it too. The order inside a step is:

1. observe: read the devices, so that everything that follows is decided on what is true;
2. lifecycle, idle rule and turns: remove kernels that are over, release idle ones;
3. assign GPUs to leases and attach kernels whose GPUs are free;
4. decide: the reclaim ladder, on a snapshot of the node;
5. note its steps in the records, and set the caps that follow from them, so that memory that was
   just promised cannot be taken;
6. only then start copies and admit cells;
7. publish what changed.
"""

from __future__ import annotations

import asyncio
import contextlib

from ..devices.base.model import DevicesBusy
from ..policy.reclaim_ladder import decide
from ..policy.reclaim_steps import AdmitStep, ReclaimDecision, ReleaseStep
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..state.publisher import StatePublisher
from .apply import Action, StepApplier
from .apply_caps import CapsApplier
from .cell_admission import CellAdmission
from .decide import AdmissionChecks, take_snapshot
from .gpu_assigner import GpuAssigner
from .idle_culler import IdleCuller
from .leases import LeaseAssignments
from .lifecycle import KernelLifecycle
from .memory_mover import MemoryMover
from .observe import Observer
from .start_preview import StartPreview
from .turns import Turns

__all__ = ["Reconciler"]

IDLE_POLL_S = 0.25
"""How often the devices are asked whether anything changed."""
WAITING_POLL_S = 0.02
"""The same while a cell waits: memory may be freed at any moment without a message."""
FULL_STEP_MS = 1000
BUSY_RETRY_MS, ERROR_RETRY_MS = 50, 1000


class Reconciler:
    """Reconciles one node."""

    def __init__(
        self,
        node: NodeRuntime,
        mover: MemoryMover,
        leases: LeaseAssignments,
        lifecycle: KernelLifecycle,
    ) -> None:
        self._node, self._leases, self._lifecycle = node, leases, lifecycle
        self._observer = Observer(node, mover)
        self._idle_culler = IdleCuller(node, mover, leases, lifecycle)
        checks = AdmissionChecks(node, self._observer)
        self._applier = StepApplier(node, mover, leases, lifecycle, checks)
        self._assigner = GpuAssigner(node, mover)
        self.start_preview = StartPreview(node, self._observer, self._assigner)
        self._caps = CapsApplier(node)
        self._turns = Turns(node, mover)
        self._publisher = StatePublisher(node)
        self._changed = asyncio.Event()
        self._deadline: int | None = None
        self._version = -1
        self._stepped_at = 0
        self._deferred: list[Action] = []
        """Kept when setting the caps fails, for the next step."""
        node.wake = self._changed.set

    @property
    def cells(self) -> CellAdmission:
        """Admits and refuses cells."""
        return self._applier.cells

    # ---- when to step ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Step when woken, at deadlines, when the devices changed, and at least once a second."""
        self._caps.start()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._changed.wait()
            if self._changed.is_set() or self._is_due():
                self._changed.clear()
                self.try_step()

    def _pause_s(self) -> float:
        kernels = self._node.kernels.values()
        waits = any(kernel.gate.waiting and kernel.lease is not None for kernel in kernels)
        pause = WAITING_POLL_S if waits else IDLE_POLL_S
        if self._deadline is None:
            return pause
        return min(pause, max(0.0, (self._deadline - self._node.clock()) / 1000))

    def _is_due(self) -> bool:
        now = self._node.clock()
        if self._deadline is not None and now >= self._deadline:
            return True
        if now - self._stepped_at >= FULL_STEP_MS:
            return True
        try:
            return self._node.devices.version() != self._version
        except DevicesBusy:
            return False

    def try_step(self) -> None:
        """A step. When the devices do not answer, or the step fails, it is repeated soon."""
        try:
            self.step()
        except DevicesBusy as error:
            log.warning("the devices do not answer: %s", error)
            self._deadline = self._node.clock() + BUSY_RETRY_MS
        except Exception:  # an error here must not leave all kernels of the node without an agent
            log.exception("a step of the agent failed; it is repeated")
            self._deadline = self._node.clock() + ERROR_RETRY_MS

    # ---- one step --------------------------------------------------------------------------------

    def step(self) -> None:
        """One step, in the order that this module describes."""
        node, now = self._node, self._node.clock()
        self._version, self._stepped_at = node.devices.version(), now
        self._observer.observe(now)
        self._lifecycle.check(now)
        idle_deadline = self._idle_culler.check(now)
        self._leases.check_owners(now)
        turn_deadline = self._turns.check(now)
        self._assigner.arrange(now)
        for kernel in node.kernels.values():
            self._applier.attachment.settle(kernel, now)
        decision = decide(take_snapshot(node, self._observer), now)
        self._apply(decision, now)
        deadlines = (decision.deadline, idle_deadline, turn_deadline)
        self._deadline = min((time for time in deadlines if time is not None), default=None)
        node.devices.sample_fast(self._is_moving(decision))
        self._publisher.publish()

    def _apply(self, decision: ReclaimDecision, now: int) -> None:
        self._applier.checking.clear()
        for step in decision.steps:
            self._deferred += self._applier.apply(step, now)
        if self._caps.apply(take_snapshot(self._node, self._observer), decision):
            self._version = self._node.devices.version()
        self._publisher.publish_caps()
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()

    def _is_moving(self, decision: ReclaimDecision) -> bool:
        """Whether memory is being moved, or a kernel waits for that."""
        if any(not isinstance(step, AdmitStep | ReleaseStep) for step in decision.steps):
            return True
        kernels = self._node.kernels.values()
        return bool(self._observer.lagging) or any(one.memory.transit for one in kernels)

    def is_checking(self, kernel: KernelRecord) -> bool:
        """Whether its cells only wait for a check that takes a moment: no text is shown for it."""
        return kernel.kernel_id in self._applier.checking
