"""The desk: reads the node, asks the ladder what to do, does it. One synchronous step, called
whenever something may have changed.

A step never waits. Copies and kills are started and report back by waking the desk; deadlines wake
it too. The order inside a step matters: first what is true (reading), then who lives where, then
the ladder, then the caps (so that nobody can take what was just promised), then the copies, then
the telling.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from jupyter_gpushare.messages import (
    CellAllowed,
    CellWait,
    DropCaches,
    NoticeEnded,
    NoticeGiven,
    stamp,
)

from ..devices.base.model import DevicesBusy, KernelProcesses, TenantMemory
from ..policy.caps import caps
from ..policy.reclaim_ladder import (
    AdmitStep,
    CancelNoticeStep,
    KillStep,
    NoticeStep,
    ReclaimDecision,
    ReleaseStep,
    Step,
    SuspendStep,
    WaitStep,
    decide,
)
from ..policy.reclaim_ladder import DropCachesStep as Drop
from ..policy.snapshot import NodeSnapshot
from ..state.cell_requests import GateRequest
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..state.notices import ReclaimNotice
from ..state.wall_clock import wall_ms
from ..system.processes import ProcessId
from .idle_culler import IdleCuller
from .leases import LeaseAssignments
from .lifecycle import KernelLifecycle
from .memory_mover import MemoryMover
from .tenants import tenant
from .wait_text import why
from .watchdog import watch

__all__ = ["Reconciler"]

Action = Callable[[], None]
NOTHING = TenantMemory()
STEADY_S = 0.25
"""How often a quiet desk asks the devices whether anything changed."""
WAITING_S = 0.02
"""The same while a cell waits: the one who holds the memory may free it at any moment, and tells
nobody.
"""
FULL_S = 1.0
BUSY_MS, FAILED_MS = 50, 1000
STAYS_MS = 5_000
"""What is true of a GPU is noted again at every look, and holds so long for who has left it."""
LOOK_MS = 2_000
"""A driver that does not answer for so long keeps nobody's cell any longer: it will meet the driver
itself.
"""


class Reconciler:
    """Runs one node."""

    def __init__(
        self,
        node: NodeRuntime,
        mover: MemoryMover,
        leases: LeaseAssignments,
        lifecycle: KernelLifecycle,
    ) -> None:
        self._node, self._mover, self._leases, self._lifecycle = node, mover, leases, lifecycle
        self._idle_culler = IdleCuller(node, mover, leases, lifecycle)
        self._changed = asyncio.Event()
        self._deadline: int | None = None
        self._attached: set[str] = set()
        self._version = -1
        self._stepped = 0
        self._after: list[Action] = []
        """What is to be done once the caps stand."""
        self._taken: int | None = None
        self._looking: set[str] = set()
        """Cells that may run as soon as a newer reading says the same."""
        node.wake = self._changed.set

    async def run(self) -> None:
        """Step when woken, when a deadline comes, when the devices changed, and once a second in
        any case.
        """
        self._attached = self._node.devices.attached()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()
            if self._changed.is_set() or self._is_due():
                self._changed.clear()
                self.try_step()

    def _pause(self) -> float:
        waits = any(
            kernel.gate.waiting and kernel.lease is not None
            for kernel in self._node.kernels.values()
        )
        pause = WAITING_S if waits else STEADY_S
        if self._deadline is not None:
            pause = min(pause, max(0.0, (self._deadline - self._node.clock()) / 1000))
        return pause

    def _is_due(self) -> bool:
        now = self._node.clock()
        if (
            self._deadline is not None
            and now >= self._deadline
            or now - self._stepped >= FULL_S * 1000
        ):
            return True
        try:
            return self._node.devices.version() != self._version
        except DevicesBusy:
            return False

    def try_step(self) -> None:
        """A step; when the devices do not answer now, the next one comes soon and goes on with what
        is left to do.
        """
        try:
            self.step()
        except DevicesBusy as error:
            log.warning("the devices do not answer: %s", error)
            self._deadline = self._node.clock() + BUSY_MS
        except (
            Exception
        ):  # a mistake of ours must not leave every kernel of the machine without an agent
            log.exception("a step of the agent failed; it is tried again")
            self._deadline = self._node.clock() + FAILED_MS

    def step(self) -> None:
        """Look, decide, do, tell."""
        node, now = self._node, self._node.clock()
        self._version, self._stepped = node.devices.version(), now
        self._observe(now)
        self._lifecycle.check(now)
        resting = self._idle_culler.check(now)
        self._leases.arrange(now)
        for kernel in node.kernels.values():
            self._settle_in(kernel, now)
        situation = self._situation(now)
        decision = decide(situation, now)
        self._looking.clear()
        self._after += [action for step in decision.steps for action in self._do(step, now)]
        self._set_caps(self._situation(now), decision)
        node.push_caps()
        after, self._after = self._after, []
        for action in after:
            action()
        self._deadline = min(
            (moment for moment in (decision.deadline, resting) if moment is not None), default=None
        )
        node.devices.sample_fast(self._is_moving(decision))
        node.publish()

    def _is_moving(self, decision: ReclaimDecision) -> bool:
        """Whether memory changes hands, or somebody waits for that."""
        steps = any(not isinstance(step, AdmitStep | ReleaseStep) for step in decision.steps)
        return (
            steps
            or bool(self._lagging)
            or any(kernel.memory.transit is not None for kernel in self._node.kernels.values())
        )

    # ---- what is true ----------------------------------------------------------------------------

    def _observe(self, now: int) -> None:
        node = self._node
        node.devices.track_kernels(
            {kernel.kernel_id: _kin(kernel) for kernel in node.kernels.values()}
        )
        reading = node.devices.read()
        self._taken = reading.taken
        for name, holding in reading.kernels.items():
            if name not in node.kernels and any(
                ProcessId(*process).is_alive() for process in holding.processes
            ):
                node.open_kernel(
                    name
                ).process.gone_at = now  # memory of a kernel that nobody told us about (yet)
        for kernel in node.kernels.values():
            holding = reading.kernels.get(kernel.kernel_id, NOTHING)
            if kernel.process.main is None and not any(
                ProcessId(*process).is_alive() for process in holding.processes
            ):
                # what the dead hold is nobody's: free as soon as the driver says so, and until then
                # it only lags
                holding = NOTHING
            self._take_in(kernel, holding, now)
        held = dict.fromkeys(node.totals, 0)
        for kernel in node.kernels.values():
            for gpu, mib in kernel.memory.usage.held.items():
                held[gpu] = held.get(gpu, 0) + mib
        node.used, node.foreign = held, dict(reading.foreign)
        self._blame()
        self._lagging = {
            gpu: lag for gpu in node.totals if (lag := reading.used.get(gpu, 0) - held[gpu]) > 0
        }
        node.draining.look(self._lagging, node.kernels.values(), now)

    def _blame(self) -> None:
        """Errors that programs made on the GPUs are their kernels' to know."""
        for fault in self._node.devices.take_faults():
            kernel = self._node.kernels.get(fault.kernel_id)
            if kernel is not None:
                self._node.happened(kernel, "fault", fault.message, tell=True)

    def _take_in(self, kernel: KernelRecord, holding: TenantMemory, now: int) -> None:
        kernel.memory.usage = holding
        if kernel.memory.transit is None:
            kernel.memory.reserved_mib = 0
        if holding.half_done and kernel.memory.transit is None:
            self._mover.recover(kernel)
        if why_not := self._unsavable_there(kernel):
            kernel.memory.no_suspend_until, kernel.memory.no_suspend_reason = (
                now + STAYS_MS,
                why_not,
            )
        if kernel.lease is not None:
            borrowed = kernel.memory.used_mib - kernel.lease.request_mib * max(
                1, len(kernel.assignment.assigned_gpus)
            )
            if borrowed > 0 and not kernel.memory.bursting and kernel.assignment.attached:
                self._node.happened(kernel, "burst", self._node.text.burst(kernel, borrowed))
            kernel.memory.bursting = borrowed > 0
        if not (holding.suspended or kernel.memory.transit) or not kernel.computes(now):
            kernel.memory.stalled_since = None
        if watch(kernel, now):
            log.warning(
                "kernel %s stands still while its GPU memory is away: it is brought back",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )

    def _unsavable_there(self, kernel: KernelRecord) -> str:
        """Why its memory cannot be saved where it is or belongs: known before anybody tries, so
        that its owner is told the truth.
        """
        return next(
            filter(
                None,
                map(
                    self._node.devices.suspend_problem,
                    kernel.memory.usage.held or kernel.assignment.assigned_gpus,
                ),
            ),
            "",
        )

    def _settle_in(self, kernel: KernelRecord, now: int) -> None:
        """Attach a lease whose kernel is here: at once, unless somebody still holds memory in its
        place. A command is started after that.
        """
        node = self._node
        if (
            not kernel.memory.used_mib
            and kernel.memory.transit is None
            and kernel.assignment.assigned_gpus
        ):
            kernel.assignment.current_gpus = kernel.assignment.assigned_gpus
        if (
            kernel.lease is None
            or kernel.assignment.lease_revoked
            or not kernel.assignment.assigned_gpus
            or kernel.lease.wanted == "evict"
            or not kernel.can_attach
        ):
            return
        if not kernel.assignment.attached and kernel.assignment.entering_since is None:
            foreign = any(
                set(one.memory.usage.held)
                & set(kernel.assignment.assigned_gpus) - set(one.assignment.assigned_gpus)
                for one in node.kernels.values()
                if one is not kernel
            )
            if foreign or not kernel.has_gate(now):
                kernel.assignment.entering_since = now
            else:
                self._attach(kernel)
        if (
            kernel.assignment.attached
            and not kernel.has_gate(now)
            and not kernel.assignment.entered
            and kernel.assignment.entering_since is None
        ):
            kernel.assignment.entering_since = now
        if (
            kernel.memory.suspended
            and kernel.computes(now)
            and kernel.memory.stalled_since is None
            and not kernel.preferences.suspended_by_user
            and kernel.memory.transit is None
        ):
            kernel.memory.stalled_since = now

    def _attach(self, kernel: KernelRecord) -> None:
        (
            kernel.assignment.attached,
            kernel.assignment.entering_since,
            kernel.assignment.current_gpus,
        ) = True, None, kernel.assignment.assigned_gpus
        kernel.assignment.generation += 1
        kernel.gate.gave_up = False
        self._node.dirty = True
        self._bind(kernel)
        if kernel.process.relaunched:
            kernel.process.relaunched = False
            self._node.happened(
                kernel,
                "reattached",
                self._node.text.reattached(kernel.assignment.assigned_gpus),
                tell=True,
            )
        else:
            self._node.happened(
                kernel,
                "attached",
                self._node.text.attached(kernel, kernel.assignment.assigned_gpus),
            )

    def _bind(self, kernel: KernelRecord) -> None:
        """From here on its process may have chosen its GPUs, and cannot choose again."""
        if not self._node.binds():
            return
        if kernel.assignment.bound_gpus and set(kernel.assignment.bound_gpus) != set(
            kernel.assignment.assigned_gpus
        ):
            self._node.tell(
                kernel,
                self._node.text.stays_behind(
                    kernel.assignment.bound_gpus, kernel.assignment.assigned_gpus
                ),
            )
        kernel.assignment.bound_gpus = (
            kernel.assignment.bound_gpus or kernel.assignment.assigned_gpus
        )

    def _situation(self, now: int) -> NodeSnapshot:
        notice, least = self._node.notice_ms(), self._node.config.min_notice_ms
        found = []
        for kernel in self._node.kernels.values():
            one = tenant(kernel, now, notice, least)
            if kernel.lease is None and not self._node.planned:
                one = replace(
                    one, gives_up=False
                )  # its lease may be in the plan that is still to come
            one = replace(one, stuck=True) if one.id in self._node.draining.late else one
            if one.home or one.held or one.evict or one.gives_up:
                found.append(one)
        return NodeSnapshot(
            self._node.offered(), tuple(found), self._lagging, dict(self._node.draining.stuck)
        )

    # ---- what to do ------------------------------------------------------------------------------

    def _do(self, step: Step, now: int) -> list[Action]:
        """Note the step in the books at once; what must come after the caps is handed back."""
        kernel = self._node.kernels[step.id]
        match step:
            case AdmitStep():
                return self._admit(kernel)
            case WaitStep():
                self._wait(kernel, step, now)
            case Drop(deadline=deadline):
                kernel.memory.caches_deadline = deadline
                self._node.rungs["caches"] += 1
                self._node.ports.to_kernel(kernel.kernel_id, DropCaches())
            case SuspendStep(asker=asker):
                return [lambda: self._suspend(kernel, asker)]
            case NoticeStep():
                self._notice(kernel, step, now)
            case CancelNoticeStep():
                self._end_notice(kernel, self._node.text.recalled())
            case KillStep(asker=asker):
                if not kernel.process.killing:
                    self._node.rungs["killed"] += 1
                self._lifecycle.kill(kernel, self._node.kernels.get(asker), self._reason(kernel))
            case ReleaseStep():
                self._let_go(kernel)
        return []

    @staticmethod
    def _reason(kernel: KernelRecord) -> str:
        return kernel.lease.message if kernel.lease and kernel.lease.wanted == "evict" else ""

    def _suspend(self, kernel: KernelRecord, asker: str) -> None:
        own = kernel.assignment.lease_revoked or kernel.preferences.suspended_by_user
        mover = None if asker == kernel.kernel_id else self._node.kernels.get(asker)
        if not own and asker != kernel.kernel_id:
            self._node.rungs["suspended"] += 1
        self._mover.suspend(
            kernel,
            mover,
            "it moves to another GPU"
            if asker == kernel.kernel_id and not own
            else self._reason(kernel),
            own=own,
        )

    def _must_look(self, kernel: KernelRecord) -> bool:
        """Whether what was seen last is older than the question, and somebody beside it has run
        since then: it may have taken memory.
        """
        asked, taken, now = kernel.gate.asked_at, self._taken, self._node.clock()
        if asked is None or taken is None or taken >= asked:
            return False
        beside = [
            one
            for one in self._beside(kernel)
            if one.is_running(now) or one.gate.idle_since >= taken
        ]
        return bool(beside) and (not self._is_late(kernel) or self._may_starve(kernel, beside))

    def _must_hear(self, kernel: KernelRecord) -> bool:
        """Whether somebody beside it may still go by the caps of an agent before us, because its
        line is not back yet: it may run, and grow into what this one is about to be let in for.
        After an agent's start, for as long as kernels have to come back.
        """
        if not kernel.gate.waiting or not self._node.caps_are_advice():
            return False
        unheard = [
            one
            for one in self._beside(kernel)
            if not one.gate.connected and self._node.clock() < one.gate.unsure_until
        ]
        return bool(unheard) and self._may_starve(kernel, unheard)

    def _beside(self, kernel: KernelRecord) -> list[KernelRecord]:
        """Who is, or belongs, on its GPUs."""
        return [
            one
            for one in self._node.kernels.values()
            if one is not kernel
            and set(one.assignment.current_gpus or one.assignment.assigned_gpus)
            & set(kernel.assignment.assigned_gpus)
        ]

    def _is_late(self, kernel: KernelRecord) -> bool:
        """Whether the driver has been silent for so long that its person is told."""
        since = kernel.gate.waits_since
        return since is not None and self._node.clock() - since > LOOK_MS

    def _may_starve(self, kernel: KernelRecord, beside: Sequence[KernelRecord]) -> bool:
        """Whether it has not all of its share yet, and the others may by their limits have taken of
        it since the last reading (their caps of that time are not known any more).
        """
        if kernel.lease is None or kernel.memory.used_mib >= kernel.lease.request_mib:
            return False
        taken: Counter[int] = Counter()
        for one in beside:
            taken.update(
                dict.fromkeys(
                    one.assignment.current_gpus or one.assignment.assigned_gpus,
                    one.lease.limit_mib if one.lease is not None else one.memory.used_mib,
                )
            )
        totals = self._node.totals
        return any(
            totals[gpu] - taken[gpu] < kernel.lease.request_mib
            for gpu in kernel.assignment.assigned_gpus
            if gpu in taken
        )

    def is_looking(self, kernel: KernelRecord) -> bool:
        """Whether its cell only waits for a newer reading, or for a neighbour's line: nobody has to
        be told of that at once.
        """
        return kernel.kernel_id in self._looking

    def _admit(self, kernel: KernelRecord) -> list[Action]:
        if kernel.process.unrestorable:
            return []
        if self._must_hear(kernel):
            if self._is_late(kernel):
                self.say_wait(kernel, self._node.text.waits_for_neighbours())
            self._looking.add(kernel.kernel_id)
            return []
        if self._must_look(kernel):
            if self._is_late(kernel):
                self.say_wait(kernel, self._node.text.waits_for_driver())
            else:
                self._looking.add(kernel.kernel_id)
            self._node.devices.refresh()
            return []
        # Running, or coming back, counts from here on: the caps that follow must already know it.
        if kernel.memory.suspended:
            if self._node.clock() < kernel.memory.no_resume_until:
                return []
            kernel.memory.transit = "in"
            return [lambda: self._mover.resume(kernel, kernel.assignment.assigned_gpus)]
        if not kernel.assignment.attached:
            self._attach(kernel)
        kernel.assignment.entering_since, kernel.assignment.entered = None, True
        waiting = list(kernel.gate.waiting)
        kernel.gate.running.update(waiting)
        return [partial(self._let_in, kernel, n) for n in waiting]

    def _let_in(self, kernel: KernelRecord, n: int) -> None:
        if n in kernel.gate.waiting:
            self.let_run(kernel, n, self._node.clock())
        else:  # withdrawn while the caps could not be set
            kernel.gate.running.discard(n)

    def let_run(self, kernel: KernelRecord, n: int, now: int) -> None:
        """The cell may run."""
        request = kernel.gate.admit(n) or GateRequest(n, now)
        kernel.gate.running.add(n)
        kernel.memory.caches_deadline = None
        self._node.durations["gate_wait"].append(now - request.since)
        message, kernel.memory.resumed_text = kernel.memory.resumed_text, ""
        self._node.ports.to_kernel(
            kernel.kernel_id, CellAllowed(n=n, waited_ms=now - request.since, message=message)
        )

    def _wait(self, kernel: KernelRecord, step: WaitStep, now: int) -> None:
        if kernel.gate.waiting:
            self.say_wait(kernel, why(self._node, kernel, step, now))

    def say_wait(self, kernel: KernelRecord, text: str) -> None:
        """Tell the waiting cells why, when the text is new."""
        outlook = kernel.outlook if kernel.lease is None else None
        reason, position = (outlook.reason, outlook.position) if outlook else (None, None)
        for request in kernel.gate.waiting.values():
            if request.text != text:
                request.text = text
                body = CellWait(n=request.n, message=text, reason=reason, position=position)
                self._node.ports.to_kernel(kernel.kernel_id, body)

    def _notice(self, kernel: KernelRecord, step: NoticeStep, now: int) -> None:
        node, left = self._node, step.deadline - now
        kernel.notice = ReclaimNotice(step.deadline, stamp(wall_ms() + left))
        saved = not node.unsavable(kernel, now)
        asker, reason = node.kernels.get(step.asker), self._reason(kernel)
        if kernel.is_command:
            text = node.text.command_notice(left / 1000, asker, reason)
        else:
            text = node.text.notice(step.take, left / 1000, asker, reason, saved)
        node.rungs["notice"] += 1
        node.happened(kernel, "notice", text)
        node.ports.to_kernel(
            kernel.kernel_id, NoticeGiven(message=text, deadline_ms=left, take_mib=step.take)
        )

    def _end_notice(self, kernel: KernelRecord, text: str) -> None:
        kernel.notice = ReclaimNotice()
        self._node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=text))

    def _let_go(self, kernel: KernelRecord) -> None:
        if kernel.lease is not None and not kernel.assignment.lease_revoked:
            text = self._node.text.evicted(kernel.lease.message, kernel.memory.saved_mib)
            self._node.let_go(kernel.lease.id, ended=False, message=text)
            self._node.tell(kernel, text)
        if kernel.notice.deadline is not None:
            self._end_notice(kernel, "")
        self._leases.drop(kernel)
        self._node.wake()

    # ---- caps ------------------------------------------------------------------------------------

    def _set_caps(self, situation: NodeSnapshot, decision: ReclaimDecision) -> None:
        noticed = [one.id for one in situation.occupants if one.notice is not None]
        promised = [step.id for step in decision.steps if isinstance(step, WaitStep | AdmitStep)]
        allowed = caps(situation, noticed, promised)
        changed: dict[str, tuple[tuple[int, int], ...]] = {}
        for kernel in self._node.kernels.values():
            places = self._places(kernel, allowed.get(kernel.kernel_id, ()))
            if places != kernel.memory.caps and (places or kernel.kernel_id in self._attached):
                changed[kernel.kernel_id] = places
        changed |= {name: () for name in self._attached if name not in self._node.kernels}
        if changed:
            self._node.devices.attach(changed)
            for name in changed.keys() & self._node.kernels.keys():
                self._node.kernels[name].memory.caps = changed[name]
            self._version = self._node.devices.version()
            self._attached = (self._attached | set(changed)) - {
                name for name, places in changed.items() if not places
            }

    def _places(
        self, kernel: KernelRecord, allowed: tuple[int, ...]
    ) -> tuple[tuple[int, int], ...]:
        if (
            not kernel.assignment.attached
            or kernel.assignment.lease_revoked
            or kernel.lease is None
        ):
            return self._between(kernel)
        if (
            kernel.assignment.current_gpus != kernel.assignment.assigned_gpus
            and kernel.memory.used_mib
        ):  # on its way out: it keeps what it has and cannot grow
            return tuple(
                (gpu, kernel.memory.usage.held.get(gpu, 0))
                for gpu in kernel.assignment.current_gpus
            )
        return tuple(zip(kernel.assignment.assigned_gpus, allowed, strict=True)) if allowed else ()

    def _between(self, kernel: KernelRecord) -> tuple[tuple[int, int], ...]:
        """Without a lease, or not attached to it yet. A cell that began with a GPU keeps what it
        has and cannot grow, as long as its owner asks for one: its share was changed, or taken back
        in the middle of the cell. It stands still when its memory is away.
        """
        asks = (kernel.lease is not None and not kernel.assignment.lease_revoked) or (
            kernel.wants_gpu() and not kernel.gate.gave_up
        )
        runs = (
            kernel.memory.suspended
            or kernel.memory.used_mib
            or (kernel.computes(self._node.clock()) and kernel.has_gate(self._node.clock()))
        )
        if not asks or not runs or kernel.process.main is None:
            return ()
        places = kernel.memory.caps or (
            ((0, 0),) if kernel.memory.suspended and kernel.lease is None else ()
        )
        return tuple((gpu, kernel.memory.usage.held.get(gpu, 0)) for gpu, _ in places)


def _kin(kernel: KernelRecord) -> KernelProcesses:
    """By what its processes are known to the devices."""
    main = (
        (kernel.process.main.pid, kernel.process.main.start)
        if kernel.process.main is not None
        else None
    )
    return KernelProcesses(
        main,
        kernel.process.launch,
        kernel.process.cgroup,
        guarantee_mib=kernel.lease.request_mib if kernel.lease is not None else 0,
        uid=kernel.registration.uid,
    )
