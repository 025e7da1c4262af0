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
from ..state.kernel_record import GateRequest, KernelRecord, about, occupant, wall_ms
from ..state.node import NodeRuntime, log
from ..system.processes import ProcessId
from .idle_culler import IdleCuller
from .leases import LeaseAssignments
from .lifecycle import KernelLifecycle
from .memory_mover import MemoryMover
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
        self._resting = IdleCuller(node, mover, leases, lifecycle)
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
            book.question is not None and book.lease is not None
            for book in self._node.books.values()
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
        resting = self._resting.check(now)
        self._leases.arrange(now)
        for book in node.books.values():
            self._settle_in(book, now)
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
            or any(book.transit is not None for book in self._node.books.values())
        )

    # ---- what is true ----------------------------------------------------------------------------

    def _observe(self, now: int) -> None:
        node = self._node
        node.devices.track_kernels({book.kernel_id: _kin(book) for book in node.books.values()})
        reading = node.devices.read()
        self._taken = reading.taken
        for name, holding in reading.kernels.items():
            if name not in node.books and any(
                ProcessId(*process).is_alive() for process in holding.processes
            ):
                node.book(name).gone_at = now  # memory of a kernel that nobody told us about (yet)
        for book in node.books.values():
            holding = reading.kernels.get(book.kernel_id, NOTHING)
            if book.main is None and not any(
                ProcessId(*process).is_alive() for process in holding.processes
            ):
                # what the dead hold is nobody's: free as soon as the driver says so, and until then
                # it only lags
                holding = NOTHING
            self._take_in(book, holding, now)
        held = dict.fromkeys(node.totals, 0)
        for book in node.books.values():
            for gpu, mib in book.holding.held.items():
                held[gpu] = held.get(gpu, 0) + mib
        node.used, node.foreign = held, dict(reading.foreign)
        self._blame()
        self._lagging = {
            gpu: lag for gpu in node.totals if (lag := reading.used.get(gpu, 0) - held[gpu]) > 0
        }
        node.draining.look(self._lagging, node.books.values(), now)

    def _blame(self) -> None:
        """Errors that programs made on the GPUs are their kernels' to know."""
        for fault in self._node.devices.take_faults():
            book = self._node.books.get(fault.kernel_id)
            if book is not None:
                self._node.happened(book, "fault", fault.message, tell=True)

    def _take_in(self, book: KernelRecord, holding: TenantMemory, now: int) -> None:
        book.holding = holding
        if book.transit is None:
            book.promised = 0
        if holding.half_done and book.transit is None:
            self._mover.settle(book)
        if why_not := self._unsavable_there(book):
            book.no_suspend_until, book.no_suspend_why = now + STAYS_MS, why_not
        if book.lease is not None:
            borrowed = book.held() - book.lease.request_mib * max(1, len(book.home))
            if borrowed > 0 and not book.burst and book.attached:
                self._node.happened(book, "burst", self._node.story.burst(book, borrowed))
            book.burst = borrowed > 0
        if not (holding.suspended or book.transit) or not book.computes(now):
            book.stalled = None
        if watch(book, now):
            log.warning(
                "kernel %s stands still while its GPU memory is away: it is brought back",
                book.kernel_id,
                extra=about(book),
            )

    def _unsavable_there(self, book: KernelRecord) -> str:
        """Why its memory cannot be saved where it is or belongs: known before anybody tries, so
        that its owner is told the truth.
        """
        return next(
            filter(None, map(self._node.devices.suspend_problem, book.holding.held or book.home)),
            "",
        )

    def _settle_in(self, book: KernelRecord, now: int) -> None:
        """Attach a lease whose kernel is here: at once, unless somebody still holds memory in its
        place. A command is started after that.
        """
        node = self._node
        if not book.held() and book.transit is None and book.home:
            book.site = book.home
        if (
            book.lease is None
            or book.unwanted
            or not book.home
            or book.lease.wanted == "evict"
            or not book.is_here
        ):
            return
        if not book.attached and book.entering is None:
            foreign = any(
                set(one.holding.held) & set(book.home) - set(one.home)
                for one in node.books.values()
                if one is not book
            )
            if foreign or not book.has_gate(now):
                book.entering = now
            else:
                self._attach(book)
        if book.attached and not book.has_gate(now) and not book.entered and book.entering is None:
            book.entering = now
        if (
            book.holding.suspended
            and book.computes(now)
            and book.stalled is None
            and not book.held_back
            and book.transit is None
        ):
            book.stalled = now

    def _attach(self, book: KernelRecord) -> None:
        book.attached, book.entering, book.site = True, None, book.home
        book.generation += 1
        book.gave_up = False
        self._node.dirty = True
        self._bind(book)
        if book.relaunched:
            book.relaunched = False
            self._node.happened(
                book, "reattached", self._node.story.reattached(book.home), tell=True
            )
        else:
            self._node.happened(book, "attached", self._node.story.attached(book, book.home))

    def _bind(self, book: KernelRecord) -> None:
        """From here on its process may have chosen its GPUs, and cannot choose again."""
        if not self._node.binds():
            return
        if book.bound and set(book.bound) != set(book.home):
            self._node.tell(book, self._node.story.stays_behind(book.bound, book.home))
        book.bound = book.bound or book.home

    def _situation(self, now: int) -> NodeSnapshot:
        notice, least = self._node.notice_ms(), self._node.config.min_notice_ms
        found = []
        for book in self._node.books.values():
            one = occupant(book, now, notice, least)
            if book.lease is None and not self._node.planned:
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
        book = self._node.books[step.id]
        match step:
            case AdmitStep():
                return self._admit(book)
            case WaitStep():
                self._wait(book, step, now)
            case Drop(deadline=deadline):
                book.caches = deadline
                self._node.rungs["caches"] += 1
                self._node.ports.to_kernel(book.kernel_id, DropCaches())
            case SuspendStep(asker=asker):
                return [lambda: self._suspend(book, asker)]
            case NoticeStep():
                self._notice(book, step, now)
            case CancelNoticeStep():
                self._end_notice(book, self._node.story.recalled())
            case KillStep(asker=asker):
                if not book.killing:
                    self._node.rungs["killed"] += 1
                self._lifecycle.kill(book, self._node.books.get(asker), self._reason(book))
            case ReleaseStep():
                self._let_go(book)
        return []

    @staticmethod
    def _reason(book: KernelRecord) -> str:
        return book.lease.message if book.lease and book.lease.wanted == "evict" else ""

    def _suspend(self, book: KernelRecord, asker: str) -> None:
        own = book.unwanted or book.held_back
        mover = None if asker == book.kernel_id else self._node.books.get(asker)
        if not own and asker != book.kernel_id:
            self._node.rungs["suspended"] += 1
        self._mover.suspend(
            book,
            mover,
            "it moves to another GPU"
            if asker == book.kernel_id and not own
            else self._reason(book),
            own=own,
        )

    def _must_look(self, book: KernelRecord) -> bool:
        """Whether what was seen last is older than the question, and somebody beside it has run
        since then: it may have taken memory.
        """
        question, taken, now = book.question, self._taken, self._node.clock()
        if question is None or taken is None or taken >= question.since:
            return False
        beside = [
            one for one in self._beside(book) if one.is_running(now) or one.idle_since >= taken
        ]
        return bool(beside) and (not self._is_late(book) or self._may_starve(book, beside))

    def _must_hear(self, book: KernelRecord) -> bool:
        """Whether somebody beside it may still go by the caps of an agent before us, because its
        line is not back yet: it may run, and grow into what this one is about to be let in for.
        After an agent's start, for as long as kernels have to come back.
        """
        if book.question is None or not self._node.caps_are_advice():
            return False
        unheard = [
            one
            for one in self._beside(book)
            if not one.connected and self._node.clock() < one.unsure_until
        ]
        return bool(unheard) and self._may_starve(book, unheard)

    def _beside(self, book: KernelRecord) -> list[KernelRecord]:
        """Who is, or belongs, on its GPUs."""
        return [
            one
            for one in self._node.books.values()
            if one is not book and set(one.site or one.home) & set(book.home)
        ]

    def _is_late(self, book: KernelRecord) -> bool:
        """Whether the driver has been silent for so long that its person is told."""
        return book.question is not None and self._node.clock() - book.question.since > LOOK_MS

    def _may_starve(self, book: KernelRecord, beside: Sequence[KernelRecord]) -> bool:
        """Whether it has not all of its share yet, and the others may by their limits have taken of
        it since the last reading (their caps of that time are not known any more).
        """
        if book.lease is None or book.held() >= book.lease.request_mib:
            return False
        taken: Counter[int] = Counter()
        for one in beside:
            taken.update(
                dict.fromkeys(
                    one.site or one.home,
                    one.lease.limit_mib if one.lease is not None else one.held(),
                )
            )
        totals = self._node.totals
        return any(
            totals[gpu] - taken[gpu] < book.lease.request_mib for gpu in book.home if gpu in taken
        )

    def is_looking(self, book: KernelRecord) -> bool:
        """Whether its cell only waits for a newer reading, or for a neighbour's line: nobody has to
        be told of that at once.
        """
        return book.kernel_id in self._looking

    def _admit(self, book: KernelRecord) -> list[Action]:
        if book.unrestorable:
            return []
        if self._must_hear(book):
            if self._is_late(book):
                self.say_wait(book, self._node.story.waits_for_neighbours())
            self._looking.add(book.kernel_id)
            return []
        if self._must_look(book):
            if self._is_late(book):
                self.say_wait(book, self._node.story.waits_for_driver())
            else:
                self._looking.add(book.kernel_id)
            self._node.devices.refresh()
            return []
        # Running, or coming back, counts from here on: the caps that follow must already know it.
        if book.holding.suspended:
            if self._node.clock() < book.no_resume_until:
                return []
            book.transit = "in"
            return [lambda: self._mover.resume(book, book.home)]
        if not book.attached:
            self._attach(book)
        book.entering, book.entered = None, True
        if book.question is not None:
            question = book.question
            book.cells.add(question.n)
            return [lambda: self._let_in(book, question.n)]
        return []

    def _let_in(self, book: KernelRecord, n: int) -> None:
        if book.question is not None and book.question.n == n:
            self.let_run(book, book.question, self._node.clock())
        else:  # withdrawn while the caps could not be set
            book.cells.discard(n)

    def let_run(self, book: KernelRecord, question: GateRequest, now: int) -> None:
        """The cell may run."""
        book.question, book.caches = None, None
        book.cells.add(question.n)
        self._node.took["gate_wait"].append(now - question.since)
        message, book.resumed = book.resumed, ""
        self._node.ports.to_kernel(
            book.kernel_id,
            CellAllowed(n=question.n, waited_ms=now - question.since, message=message),
        )

    def _wait(self, book: KernelRecord, step: WaitStep, now: int) -> None:
        if book.question is not None:
            self.say_wait(book, why(self._node, book, step, now))

    def say_wait(self, book: KernelRecord, text: str) -> None:
        """Tell a waiting cell why, when the sentence is new."""
        question = book.question
        if question is not None and question.told != text:
            book.question = GateRequest(question.n, question.since, text)
            outlook = book.outlook if book.lease is None else None
            reason, position = (outlook.reason, outlook.position) if outlook else (None, None)
            self._node.ports.to_kernel(
                book.kernel_id,
                CellWait(n=question.n, message=text, reason=reason, position=position),
            )

    def _notice(self, book: KernelRecord, step: NoticeStep, now: int) -> None:
        node, left = self._node, step.deadline - now
        book.notice, book.notice_stamp = step.deadline, stamp(wall_ms() + left)
        saved = not node.unsavable(book, now)
        asker, reason = node.books.get(step.asker), self._reason(book)
        if book.is_command:
            text = node.story.command_notice(left / 1000, asker, reason)
        else:
            text = node.story.notice(step.take, left / 1000, asker, reason, saved)
        node.rungs["notice"] += 1
        node.happened(book, "notice", text)
        node.ports.to_kernel(
            book.kernel_id, NoticeGiven(message=text, deadline_ms=left, take_mib=step.take)
        )

    def _end_notice(self, book: KernelRecord, text: str) -> None:
        book.notice, book.notice_stamp = None, None
        self._node.ports.to_kernel(book.kernel_id, NoticeEnded(message=text))

    def _let_go(self, book: KernelRecord) -> None:
        if book.lease is not None and not book.unwanted:
            text = self._node.story.evicted(book.lease.message, book.image())
            self._node.let_go(book.lease.id, ended=False, message=text)
            self._node.tell(book, text)
        if book.notice is not None:
            self._end_notice(book, "")
        self._leases.drop(book)
        self._node.wake()

    # ---- caps ------------------------------------------------------------------------------------

    def _set_caps(self, situation: NodeSnapshot, decision: ReclaimDecision) -> None:
        noticed = [one.id for one in situation.occupants if one.notice is not None]
        promised = [step.id for step in decision.steps if isinstance(step, WaitStep | AdmitStep)]
        allowed = caps(situation, noticed, promised)
        changed: dict[str, tuple[tuple[int, int], ...]] = {}
        for book in self._node.books.values():
            places = self._places(book, allowed.get(book.kernel_id, ()))
            if places != book.last_caps and (places or book.kernel_id in self._attached):
                changed[book.kernel_id] = places
        changed |= {name: () for name in self._attached if name not in self._node.books}
        if changed:
            self._node.devices.attach(changed)
            for name in changed.keys() & self._node.books.keys():
                self._node.books[name].last_caps = changed[name]
            self._version = self._node.devices.version()
            self._attached = (self._attached | set(changed)) - {
                name for name, places in changed.items() if not places
            }

    def _places(self, book: KernelRecord, allowed: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        if not book.attached or book.unwanted or book.lease is None:
            return self._between(book)
        if (
            book.site != book.home and book.held()
        ):  # on its way out: it keeps what it has and cannot grow
            return tuple((gpu, book.holding.held.get(gpu, 0)) for gpu in book.site)
        return tuple(zip(book.home, allowed, strict=True)) if allowed else ()

    def _between(self, book: KernelRecord) -> tuple[tuple[int, int], ...]:
        """Without a lease, or not attached to it yet. A cell that began with a GPU keeps what it
        has and cannot grow, as long as its owner asks for one: its share was changed, or taken back
        in the middle of the cell. It stands still when its memory is away.
        """
        asks = (book.lease is not None and not book.unwanted) or (book.asks() and not book.gave_up)
        runs = (
            book.holding.suspended
            or book.held()
            or (book.computes(self._node.clock()) and book.has_gate(self._node.clock()))
        )
        if not asks or not runs or book.main is None:
            return ()
        places = book.last_caps or (
            ((0, 0),) if book.holding.suspended and book.lease is None else ()
        )
        return tuple((gpu, book.holding.held.get(gpu, 0)) for gpu, _ in places)


def _kin(book: KernelRecord) -> KernelProcesses:
    """By what its processes are known to the devices."""
    main = (book.main.pid, book.main.start) if book.main is not None else None
    return KernelProcesses(
        main,
        book.launch,
        book.leaf,
        guarantee_mib=book.lease.request_mib if book.lease is not None else 0,
        uid=book.uid,
    )
