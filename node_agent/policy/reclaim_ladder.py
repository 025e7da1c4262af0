"""The ladder: who gets its place now, who has to make room for it, and how gently. Pure: one moment
in, the next steps out.

Rungs, mildest first: drop caches of idle kernels, suspend idle borrowers, suspend idle kernels
inside their share, give notice to those who run (or are pinned, or cannot be suspended), and at the
deadline suspend them or, last, kill. Four rules hold whatever happens:

* nobody who runs inside its share is touched for another kernel, and nobody is ever killed inside
  its share for another kernel;
* the one who asks is never the one who pays;
* memory is lost (killed) only after a notice whose deadline has passed;
* one byte is promised once: those who ask are served in the order of asking, each on what the
  earlier ones leave.

The decision has no memory of its own: notices and copies under way are part of the situation, so
the same moment gives the same steps, and an agent that was restarted goes on where the last one
stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from .snapshot import NodeSnapshot, Tenant

__all__ = [
    "AdmitStep",
    "ReclaimDecision",
    "DropCachesStep",
    "KillStep",
    "ReleaseStep",
    "NoticeStep",
    "CancelNoticeStep",
    "Step",
    "SuspendStep",
    "WaitStep",
    "decide",
]

CACHES_MS: Final = 250
"""Time for an idle kernel to give cached memory back before it is suspended: what the kernel takes
at most (`kernel.frameworks`), so that it is never suspended in the middle of it, and inside the 300
ms that a reclaim may cost.
"""


@dataclass(frozen=True, slots=True)
class AdmitStep:
    """Its place is free: bring its image back if it has one, and let it run."""

    id: str


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Not yet. `blockers`: who is in the way; `until`: when something happens by itself, None when
    nobody can say.
    """

    id: str
    blockers: tuple[str, ...]
    until: int | None


@dataclass(frozen=True, slots=True)
class DropCachesStep:
    """Ask an idle kernel for its caches; it has until `deadline`."""

    id: str
    deadline: int


@dataclass(frozen=True, slots=True)
class SuspendStep:
    """Move its memory to the host. `asker`: for whom; its own id when it has to move house; "" for
    the scheduler.
    """

    id: str
    asker: str


@dataclass(frozen=True, slots=True)
class NoticeStep:
    """Tell its owner: at `deadline` `take` MiB go to `asker` ("" for the scheduler)."""

    id: str
    deadline: int
    take: int
    asker: str


@dataclass(frozen=True, slots=True)
class CancelNoticeStep:
    """The notice is void: nobody needs the memory any more."""

    id: str


@dataclass(frozen=True, slots=True)
class KillStep:
    """End its processes: it could not be suspended and its deadline has passed."""

    id: str
    asker: str


@dataclass(frozen=True, slots=True)
class ReleaseStep:
    """An evicted or returned lease holds nothing any more."""

    id: str


Step = (
    AdmitStep
    | WaitStep
    | DropCachesStep
    | SuspendStep
    | NoticeStep
    | CancelNoticeStep
    | KillStep
    | ReleaseStep
)


@dataclass(frozen=True, slots=True)
class ReclaimDecision:
    """Steps in the order of doing, and the next moment at which the same situation may give others."""

    steps: tuple[Step, ...]
    deadline: int | None


@dataclass(slots=True)
class _PlannedMemory:
    """Who may count on what, while one decision is made."""

    snapshot: NodeSnapshot
    now: int
    claims: dict[int, dict[str, int]] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    deadlines: list[int] = field(default_factory=list)

    def short(self, one: Tenant, gpu: int) -> int:
        """How much is missing for it on this GPU."""
        others = sum(mib for name, mib in self.claims[gpu].items() if name != one.id)
        return (
            one.need(gpu) + others + self.snapshot.lagging.get(gpu, 0) - self.snapshot.totals[gpu]
        )

    def is_there(self, one: Tenant) -> bool:
        """Whether its need fits beside what the others really hold now: memory that is only
        promised has not been given back yet.
        """
        return all(
            one.need(gpu) + self._really_taken(gpu, one) <= self.snapshot.totals[gpu]
            for gpu in one.assigned_gpus
        )

    def _really_taken(self, gpu: int, one: Tenant) -> int:
        others = [other for other in self.snapshot.tenants if other.id != one.id]
        lag = self.snapshot.lagging.get(gpu, 0)
        return lag + sum(
            other.need(gpu)
            if other.id in self.admitted and gpu in other.assigned_gpus
            else other.holds(gpu)
            for other in others
        )

    def take(self, victim: Tenant) -> None:
        """What it holds is promised to somebody else now."""
        self.chosen.add(victim.id)
        for claims in self.claims.values():
            claims.pop(victim.id, None)

    def until(self, deadline: int) -> None:
        """Look again at this moment."""
        self.deadlines.append(deadline)


def decide(snapshot: NodeSnapshot, now: int) -> ReclaimDecision:
    """The next steps for everyone. Ties go to the one who asked first, then to the id."""
    snapshot = replace(snapshot, tenants=tuple(sorted(snapshot.tenants, key=lambda one: one.id)))
    planned = _PlannedMemory(snapshot, now)
    for gpu in snapshot.totals:
        planned.claims[gpu] = {
            one.id: claim for one in snapshot.tenants if (claim := one.claim(gpu))
        }
    for one in snapshot.tenants:
        if one.evict or one.gives_up:
            _release(planned, one)
    asking = [
        one
        for one in snapshot.tenants
        if one.wants_since is not None and one.assigned_gpus and not (one.evict or one.gives_up)
    ]
    for one in sorted(asking, key=lambda o: (o.wants_since or 0, o.id)):
        _serve(planned, one)
    for one in snapshot.tenants:
        if one.notice is not None and one.id not in planned.chosen and one.transit is None:
            planned.steps.append(CancelNoticeStep(one.id))
    return ReclaimDecision(tuple(planned.steps), min(planned.deadlines, default=None))


def _release(planned: _PlannedMemory, one: Tenant) -> None:
    """An evicted lease leaves by the ladder too, its share counting for nothing; its owner's own
    wish needs no notice.
    """
    planned.chosen.add(one.id)
    if one.transit is not None:
        return
    holds = any(one.held.values())
    if not holds and (one.gives_up or not one.running or one.suspended or _is_due(planned, one)):
        planned.steps.append(ReleaseStep(one.id))
    elif one.gives_up and one.suspendable:
        planned.steps.append(SuspendStep(one.id, one.id))
    elif one.gives_up:
        planned.chosen.discard(
            one.id
        )  # it cannot be saved: it stays until somebody needs the memory, and has a notice then
        _keep_notice(planned, one)
    else:
        _press(planned, one, "", sum(one.held.values()))


def _keep_notice(planned: _PlannedMemory, one: Tenant) -> None:
    if one.notice is not None and not any(
        o.wants_since is not None for o in planned.snapshot.tenants
    ):
        planned.chosen.add(one.id)


def _is_due(planned: _PlannedMemory, one: Tenant) -> bool:
    if one.notice is None:
        return False
    return planned.now >= one.notice


def _serve(planned: _PlannedMemory, one: Tenant) -> None:
    if (
        one.transit is not None or one.id in planned.chosen
    ):  # it is being copied, or has just been chosen to make room for an earlier one
        planned.steps.append(WaitStep(one.id, (), None))
        return
    if one.is_away():
        _bring_home(planned, one)
        return
    victims: list[Tenant] = []
    pending: list[str] = []
    for gpu in one.assigned_gpus:
        found = _cover(planned, one, gpu, victims, pending)
        if not found:
            _block(planned, one)
            return
    for gpu in one.assigned_gpus:
        planned.claims[gpu][one.id] = one.need(gpu)
    if not victims and not pending:
        there = planned.is_there(one)
        planned.steps.append(AdmitStep(one.id) if there else WaitStep(one.id, (), None))
        planned.admitted |= {one.id} if there else set()
        return
    for victim in victims:
        _press(planned, victim, one.id, _demand(planned, one, victim))
        planned.take(victim)
    given = [
        step.deadline
        for step in planned.steps
        if isinstance(step, NoticeStep) and step.asker == one.id
    ]
    ends = given + [victim.notice for victim in victims if victim.notice is not None]
    planned.steps.append(
        WaitStep(one.id, tuple(v.id for v in victims) + tuple(pending), max(ends, default=None))
    )


def _bring_home(planned: _PlannedMemory, one: Tenant) -> None:
    """It holds memory elsewhere: save it first, its image follows. One that cannot be saved runs
    where it is until it has to leave.
    """
    if one.suspendable and not one.running:
        planned.steps += [SuspendStep(one.id, one.id), WaitStep(one.id, (), None)]
        planned.chosen.add(one.id)
    else:
        planned.steps.append(AdmitStep(one.id))


def _block(planned: _PlannedMemory, one: Tenant) -> None:
    """What is missing is held by kernels that run inside their share: nothing to do but wait, its
    own share stays reserved.
    """
    blockers: list[str] = []
    for gpu in one.assigned_gpus:
        claims = planned.claims[gpu]
        blockers += [
            name
            for name, mib in sorted(claims.items())
            if mib and name != one.id and name not in blockers
        ]
        claims[one.id] = max(one.holds(gpu), one.guarantee)
    planned.steps.append(WaitStep(one.id, tuple(blockers), None))


def _cover(
    planned: _PlannedMemory, one: Tenant, gpu: int, victims: list[Tenant], pending: list[str]
) -> bool:
    """Add those who make room for `one` on this GPU to `victims`; False when even all of them are
    not enough.
    """
    short = planned.short(one, gpu) - sum(planned.claims[gpu].get(v.id, 0) for v in victims)
    lag = planned.snapshot.lagging.get(gpu, 0) - planned.snapshot.stuck.get(gpu, 0)
    if short > 0 and lag > 0:  # as good as free: the driver only has to say so
        short -= lag
        pending.append("")
    for other in planned.snapshot.tenants:
        leaving = other.transit == "out" and not other.stuck
        if (
            short > 0
            and leaving
            and other.id in planned.claims[gpu]
            and other.id != one.id
            and other.id not in planned.chosen
        ):
            short -= planned.claims[gpu].get(other.id, 0)
            pending.append(other.id)
    for rung in _rungs(planned, one, gpu, {v.id for v in victims}):
        while short > 0 and rung:
            victim = _pick(rung, gpu, short)
            rung.remove(victim)
            victims.append(victim)
            short -= planned.claims[gpu].get(victim.id, 0)
    return short <= 0


def _rungs(
    planned: _PlannedMemory, one: Tenant, gpu: int, taken: set[str]
) -> Iterator[list[Tenant]]:
    """Candidates by rung: idle borrowers, idle in their share, those to be warned and suspended,
    those to be warned and killed.
    """
    rungs: tuple[list[Tenant], ...] = ([], [], [], [])
    for other in planned.snapshot.tenants:
        if (
            other.id == one.id
            or other.id in taken
            or other.id in planned.chosen
            or other.transit is not None
            or not other.holds(gpu)
        ):
            continue
        at_rest = not other.running and not other.pinned
        if other.suspendable and at_rest and other.wants_since is None:
            rungs[0 if other.borrowed(gpu) else 1].append(other)
        elif other.borrowed(gpu):
            rungs[2 if other.suspendable else 3].append(other)
    yield from rungs


def _pick(rung: list[Tenant], gpu: int, short: int) -> Tenant:
    """Whoever was warned already, else the smallest that is enough alone, else the largest; then
    the longest idle; then by id.
    """

    def order(other: Tenant) -> tuple[bool, bool, int, int, str]:
        held = other.holds(gpu)
        enough = held >= short
        return (
            other.notice is None,
            not enough,
            held if enough else -held,
            other.idle_since,
            other.id,
        )

    return min(rung, key=order)


def _demand(planned: _PlannedMemory, one: Tenant, victim: Tenant) -> int:
    """How much of what the victim borrowed the asker lacks, for the words of a notice."""
    return sum(
        max(0, min(victim.borrowed(gpu), planned.short(one, gpu))) for gpu in one.assigned_gpus
    ) or sum(victim.held.values())


def _press(planned: _PlannedMemory, victim: Tenant, asker: str, take: int) -> None:
    """The next rung for one victim. Warned victims are left alone until their deadline."""
    warned = victim.running and not victim.suspended or victim.pinned or not victim.suspendable
    if not warned and victim.has_caches and victim.caches is None:
        planned.steps.append(DropCachesStep(victim.id, planned.now + CACHES_MS))
        planned.until(planned.now + CACHES_MS)
    elif (
        not warned
        and victim.has_caches
        and victim.caches is not None
        and planned.now < victim.caches
    ):
        planned.until(victim.caches)
    elif not warned:
        planned.steps.append(SuspendStep(victim.id, asker))
    elif victim.notice is None:
        deadline = planned.now + victim.notice_ms
        planned.steps.append(NoticeStep(victim.id, deadline, take, asker))
        planned.until(deadline)
    elif planned.now < victim.notice:
        planned.until(victim.notice)
    elif victim.suspendable:
        planned.steps.append(SuspendStep(victim.id, asker))
    else:
        planned.steps.append(KillStep(victim.id, asker))
