"""The reclaim ladder: which waiting kernel gets its share now, which kernels make room for it, and
how gently. Pure: a snapshot in, the next steps out.

Rungs, mildest first: drop caches of idle kernels, suspend idle borrowers, suspend idle kernels
inside their share, give notice to running kernels (and to pinned ones, and to those that cannot be
suspended), and at the deadline suspend them or, last, kill them. Five rules always hold:

* no kernel that runs inside its share is reclaimed from for another kernel, and none is killed
  inside its share for another kernel;
* a kernel never makes room for itself;
* memory is lost (a kernel is killed) only after a notice whose deadline has passed;
* two running kernels of one user that both need more than their share do not evict each other
  before the time of residence of the one that has the memory is over;
* memory is promised once: waiting kernels are served in the order of their requests, each with what
  the earlier ones leave.

The decision has no state of its own: notices and copies in progress are part of the snapshot, so
the same snapshot gives the same steps, and a restarted agent continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from .reclaim_steps import (
    AdmitStep,
    CancelNoticeStep,
    DropCachesStep,
    KillStep,
    NoticeStep,
    ReclaimDecision,
    ReleaseStep,
    Step,
    SuspendStep,
    WaitStep,
)
from .snapshot import NodeSnapshot, Tenant

__all__ = ["CACHES_MS", "decide"]

CACHES_MS: Final = 250
"""Time for an idle kernel to drop its caches before it is suspended: the longest time that
`kernel.frameworks` needs, so that it is never suspended halfway, and inside the 300 ms that a
reclaim may take.
"""


@dataclass(slots=True)
class _PlannedMemory:
    """Claims on memory while one decision is made."""

    snapshot: NodeSnapshot
    now: int
    claims: dict[int, dict[str, int]] = field(default_factory=dict)
    """MiB per GPU and kernel that others cannot have."""
    chosen: set[str] = field(default_factory=set)
    """Kernels that leave, or whose memory is promised to another one."""
    admitted: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    deadlines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for gpu in self.snapshot.totals:
            claims = {one.id: one.claim(gpu) for one in self.snapshot.tenants}
            self.claims[gpu] = {name: mib for name, mib in claims.items() if mib}

    def short(self, one: Tenant, gpu: int) -> int:
        """How much it lacks on this GPU."""
        others = sum(mib for name, mib in self.claims[gpu].items() if name != one.id)
        lagging = self.snapshot.lagging.get(gpu, 0)
        return one.need(gpu) + others + lagging - self.snapshot.totals[gpu]

    def has_room(self, one: Tenant) -> bool:
        """Whether its need fits beside what the others hold now: promised memory may not have been
        freed yet.
        """
        for gpu in one.assigned_gpus:
            if one.need(gpu) + self._held_by_others(gpu, one) > self.snapshot.totals[gpu]:
                return False
        return True

    def _held_by_others(self, gpu: int, one: Tenant) -> int:
        held = self.snapshot.lagging.get(gpu, 0)
        for other in self.snapshot.tenants:
            if other.id == one.id:
                continue
            counts_fully = other.id in self.admitted and gpu in other.assigned_gpus
            held += other.need(gpu) if counts_fully else other.holds(gpu)
        return held

    def promise(self, victim: Tenant) -> None:
        """What it holds is promised to another kernel."""
        self.chosen.add(victim.id)
        for claims in self.claims.values():
            claims.pop(victim.id, None)

    def look_again(self, deadline: int) -> None:
        """Decide again at this time."""
        self.deadlines.append(deadline)


def decide(snapshot: NodeSnapshot, now: int) -> ReclaimDecision:
    """The next steps. Ties go to the earlier request, then to the lower id."""
    tenants = tuple(sorted(snapshot.tenants, key=lambda one: one.id))
    planned = _PlannedMemory(replace(snapshot, tenants=tenants), now)
    for one in tenants:
        if one.is_leaving():
            _leave(planned, one)
    waiting = [one for one in tenants if one.wants_since is not None and one.assigned_gpus]
    for one in sorted(waiting, key=lambda one: (one.wants_since or 0, one.id)):
        if not one.is_leaving():
            _serve(planned, one)
    for one in tenants:
        if one.notice is not None and one.id not in planned.chosen and one.transit is None:
            planned.steps.append(CancelNoticeStep(one.id))
    return ReclaimDecision(tuple(planned.steps), min(planned.deadlines, default=None))


# ---- leases that leave ---------------------------------------------------------------------------


def _leave(planned: _PlannedMemory, one: Tenant) -> None:
    """An evicted lease leaves by the same rungs, without a share; a lease that its user returned
    needs no notice.
    """
    planned.chosen.add(one.id)
    if one.transit is not None:
        return
    if not any(one.held.values()) and _may_release(planned, one):
        planned.steps.append(ReleaseStep(one.id))
    elif one.gives_up and one.suspendable:
        planned.steps.append(SuspendStep(one.id, one.id))
    elif one.gives_up:
        # it cannot be saved: it stays until the memory is needed, and gets a notice then
        planned.chosen.discard(one.id)
        _keep_notice(planned, one)
    else:
        _press(planned, one, "", sum(one.held.values()))


def _may_release(planned: _PlannedMemory, one: Tenant) -> bool:
    """A running cell of an evicted lease has until the deadline of its notice."""
    is_due = one.notice is not None and planned.now >= one.notice
    return one.gives_up or not one.running or one.suspended or is_due


def _keep_notice(planned: _PlannedMemory, one: Tenant) -> None:
    waits = any(other.wants_since is not None for other in planned.snapshot.tenants)
    if one.notice is not None and not waits:
        planned.chosen.add(one.id)


# ---- kernels that wait ---------------------------------------------------------------------------


def _serve(planned: _PlannedMemory, one: Tenant) -> None:
    if one.transit is not None or one.id in planned.chosen:
        # it is being copied, or makes room for an earlier request
        planned.steps.append(WaitStep(one.id, (), None))
        return
    if one.is_away():
        _move_to_assigned(planned, one)
        return
    victims: list[Tenant] = []
    pending: list[str] = []
    for gpu in one.assigned_gpus:
        if not _cover(planned, one, gpu, victims, pending):
            _block(planned, one)
            return
    for gpu in one.assigned_gpus:
        planned.claims[gpu][one.id] = one.need(gpu)
    if victims or pending:
        _reclaim(planned, one, victims, pending)
    elif planned.has_room(one):
        planned.steps.append(AdmitStep(one.id))
        planned.admitted.add(one.id)
    else:
        planned.steps.append(WaitStep(one.id, (), None))


def _reclaim(
    planned: _PlannedMemory, one: Tenant, victims: list[Tenant], pending: list[str]
) -> None:
    for victim in victims:
        _press(planned, victim, one.id, _demand(planned, one, victim))
        planned.promise(victim)
    ends = [victim.notice for victim in victims if victim.notice is not None]
    notices = [step for step in planned.steps if isinstance(step, NoticeStep)]
    ends += [step.deadline for step in notices if step.asker == one.id]
    blockers = tuple(victim.id for victim in victims) + tuple(pending)
    planned.steps.append(WaitStep(one.id, blockers, max(ends, default=None)))


def _move_to_assigned(planned: _PlannedMemory, one: Tenant) -> None:
    """It holds memory on other GPUs: save it first, then restore it. One that cannot be saved runs
    where it is until it has to leave.
    """
    if one.suspendable and not one.running:
        planned.steps += [SuspendStep(one.id, one.id), WaitStep(one.id, (), None)]
        planned.chosen.add(one.id)
    else:
        planned.steps.append(AdmitStep(one.id))


def _block(planned: _PlannedMemory, one: Tenant) -> None:
    """What it lacks is held by kernels that run inside their share: it can only wait; its own share
    stays reserved.
    """
    blockers: list[str] = []
    for gpu in one.assigned_gpus:
        claims = planned.claims[gpu]
        for name, mib in sorted(claims.items()):
            if mib and name != one.id and name not in blockers:
                blockers.append(name)
        claims[one.id] = max(one.holds(gpu), one.guarantee)
    planned.steps.append(WaitStep(one.id, tuple(blockers), None))


def _cover(
    planned: _PlannedMemory, one: Tenant, gpu: int, victims: list[Tenant], pending: list[str]
) -> bool:
    """Add the kernels that make room on this GPU to `victims`, and memory that is being freed
    already to `pending`. False when even all of them are not enough.
    """
    claims = planned.claims[gpu]
    short = planned.short(one, gpu) - sum(claims.get(victim.id, 0) for victim in victims)
    short -= _freed_soon(planned, one, gpu, short, pending)
    for rung in _rungs(planned, one, gpu, {victim.id for victim in victims}):
        while short > 0 and rung:
            victim = _pick(rung, gpu, short)
            rung.remove(victim)
            victims.append(victim)
            short -= claims.get(victim.id, 0)
    return short <= 0


def _freed_soon(
    planned: _PlannedMemory, one: Tenant, gpu: int, short: int, pending: list[str]
) -> int:
    """MiB of ended processes and of kernels that are being suspended, as far as needed."""
    claims, freed = planned.claims[gpu], 0
    lagging = planned.snapshot.lagging.get(gpu, 0) - planned.snapshot.stuck.get(gpu, 0)
    if short > 0 and lagging > 0:  # free as soon as the driver says so
        freed += lagging
        pending.append("")
    for other in planned.snapshot.tenants:
        is_saved = other.transit == "out" and not other.stuck and other.id in claims
        if short > freed and is_saved and other.id not in planned.chosen | {one.id}:
            freed += claims[other.id]
            pending.append(other.id)
    return freed


def _rungs(
    planned: _PlannedMemory, one: Tenant, gpu: int, taken: set[str]
) -> Iterator[list[Tenant]]:
    """Candidates by rung: idle borrowers, idle kernels in their share, those to be notified and
    suspended, those to be notified and killed.
    """
    rungs: tuple[list[Tenant], ...] = ([], [], [], [])
    excluded = taken | planned.chosen | {one.id}
    for other in planned.snapshot.tenants:
        if other.id in excluded or other.transit is not None or not other.holds(gpu):
            continue
        if other.running and not other.yields_to(one, gpu, planned.now):
            planned.look_again(other.resident_until)
            continue
        is_idle = not other.running and not other.pinned and other.wants_since is None
        if other.suspendable and is_idle:
            rungs[0 if other.borrowed(gpu) else 1].append(other)
        elif other.borrowed(gpu):
            rungs[2 if other.suspendable else 3].append(other)
    yield from rungs


def _pick(rung: list[Tenant], gpu: int, short: int) -> Tenant:
    """One that was notified already, else the smallest that is enough alone, else the largest; then
    the longest idle; then by id.
    """

    def order(other: Tenant) -> tuple[bool, bool, int, int, str]:
        held = other.holds(gpu)
        enough = held >= short
        size = held if enough else -held
        return (other.notice is None, not enough, size, other.idle_since, other.id)

    return min(rung, key=order)


def _demand(planned: _PlannedMemory, one: Tenant, victim: Tenant) -> int:
    """How much of the victim's borrowed memory the other kernel lacks, for the text of a notice."""
    take = 0
    for gpu in one.assigned_gpus:
        take += max(0, min(victim.borrowed(gpu), planned.short(one, gpu)))
    return take or sum(victim.held.values())


def _press(planned: _PlannedMemory, victim: Tenant, asker: str, take: int) -> None:
    """The next rung for one victim. Nothing more happens between a notice and its deadline."""
    if not victim.needs_notice():
        _press_idle(planned, victim, asker)
    elif victim.notice is None:
        deadline = planned.now + victim.notice_ms
        planned.steps.append(NoticeStep(victim.id, deadline, take, asker))
        planned.look_again(deadline)
    elif planned.now < victim.notice:
        planned.look_again(victim.notice)
    elif victim.suspendable:
        planned.steps.append(SuspendStep(victim.id, asker))
    elif not victim.lossless:
        planned.steps.append(KillStep(victim.id, asker))


def _press_idle(planned: _PlannedMemory, victim: Tenant, asker: str) -> None:
    if victim.has_caches and victim.caches is None:
        deadline = planned.now + CACHES_MS
        planned.steps.append(DropCachesStep(victim.id, deadline))
        planned.look_again(deadline)
    elif victim.has_caches and victim.caches is not None and planned.now < victim.caches:
        planned.look_again(victim.caches)
    else:
        planned.steps.append(SuspendStep(victim.id, asker))
