"""Expected waits of pending workloads and of what-if requests, from past waits and from known ends.

Keeps the waits of the last seven days, at most `MOST`; a restart reads them from the store. Decides
nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cycle.projection import ScheduledEvent, project_starts
from jupyter_gpushare.core.estimates.wait_history import WEEK, WaitHistory, WaitSample, size_class
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.decisions import Evict, WhatIf
from jupyter_gpushare.core.model.events import PodReleased, WorkloadEnded
from jupyter_gpushare.core.model.model import Workload
from jupyter_gpushare.core.model.reason import Reason, ReasonCode
from jupyter_gpushare.core.model.units import read_gpu

from ..state.admission import pools_tried
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord
from ..store.past_waits import PastWait, past_waits
from .turn_estimates import TurnEstimates
from .wait_text import bounded, by_history, unknown

__all__ = ["WaitEstimates"]

MOST: Final = 2_000
"""Past waits that are kept."""
PER_WAIT: Final = 5
"""ms between two evaluations of past waits, per wait: each takes a few microseconds."""
SAVING: Final = 30_000
"""ms after the end of a notice in which memory is saved or the workload ended."""
PROJECTION_INTERVAL: Final = 30_000
"""ms between two projections."""
PROJECTED: Final = 500
"""Pending workloads up to which a projection is made: with more, a dozen simulated cycles take too
long.
"""
BUDGET: Final = 0.02
"""Seconds that a projection may take; what it has not reached by then has no bound."""

UNKNOWN: Final = "Expected wait unknown"
LONGER: Final = "it has waited longer than similar requests of the last 7 days"
FIXED_TEXTS: Final = {
    ReasonCode.UNKNOWN_PROJECT: "Cannot start until its project is in the policy again.",
    ReasonCode.UNKNOWN_POOL: "Cannot start until one of its node pools exists.",
    ReasonCode.NODE_NOT_READY: f"{UNKNOWN}: waiting for a node to become ready.",
}
"""Past waits say nothing about these: they wait for something else than their turn."""
IMPOSSIBLE: Final = (ReasonCode.NEVER_FITS, ReasonCode.INVALID_REQUEST)
"""They never start; the reason says so."""
PROJECT_REASONS: Final = (
    ReasonCode.OVER_LIMIT,
    ReasonCode.OVER_PERSON_LIMIT,
    ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
)
"""They wait for their own project."""


class WaitEstimates:
    """Of one unit of work, on whose cluster it simulates and undoes."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        now = unit_of_work.clock()
        past = past_waits(unit_of_work.store, now - WEEK, MOST)
        self._over: deque[WaitSample] = deque((self._of_past(one) for one in past), maxlen=MOST)
        self._going: dict[str, WaitSample] = {}
        self._waits, self._due = WaitHistory((), now), 0
        self._latest: dict[str, int] = {}
        """By when (ms) pending workloads start at the latest, as far as there is a bound."""
        self._look_at = 0
        self.turns = TurnEstimates(unit_of_work)
        self._leaving: dict[str, int] = {}
        """By pool: when (ms) all evicted workloads have left."""

    # -- recording --

    def wait_ended(self, record: WorkloadRecord, *, granted: bool, pool: str = "") -> None:
        """Its wait for the first grant is over; call it before the record is updated. Waits after
        an eviction are not counted.
        """
        if record.pending_since is not None and record.pending_since == record.workload.created:
            wait = self._wait(record)
            ended = max(wait.begun, self._unit_of_work.clock())
            self._over.append(
                WaitSample(
                    wait.id, wait.project, pool or wait.pool, wait.size, wait.begun, ended, granted
                )
            )
        self._going.pop(record.id, None)
        if granted:
            self.turns.granted(record, pool)
        else:
            self.turns.ended(record)

    def evicting(self, evict: Evict, notice: int) -> None:
        """A workload was evicted."""
        self._leaving[evict.spot.pool] = max(
            self._leaving.get(evict.spot.pool, 0), self._unit_of_work.clock() + notice + SAVING
        )

    # -- estimates --

    def expected(self, record: WorkloadRecord, reason: Reason | None) -> m.ExpectedWait | None:
        """The expected remaining wait; None: it is not pending, never starts, or no cycle has
        run yet.
        """
        now = self._unit_of_work.clock()
        if (
            reason is None
            or record.pending_since is None
            or record.is_held
            or reason.code == ReasonCode.HELD
        ):
            return None
        pool = self._pool(record.workload)
        if reason.code == ReasonCode.WAITING_FOR_TURN:
            return self.turns.expected(record, reason, pool)
        at_most = (
            None
            if (latest := self._latest.get(record.id)) is None or latest <= now
            else latest - now
        )
        if reason.code == ReasonCode.WAITING_FOR_RECLAIM:
            return self._promised(
                max(
                    self._leaving.get(name, 0)
                    for name in pools_tried(record.workload, self._unit_of_work.loaded.policy)
                ),
                now,
            )
        self._evaluate(now)
        return self._estimate(
            record.workload,
            pool,
            record.id,
            reason,
            max(0, now - record.pending_since),
            at_most,
            now,
            waits=True,
        )

    def is_bound(self, record: WorkloadRecord) -> bool:
        """Whether a bound for its start has become known."""
        return record.id in self._latest

    def for_request(self, workload: Workload, found: WhatIf) -> m.ExpectedWait | None:
        """The expected wait of a what-if request; None: it would start now, or never."""
        now = self._unit_of_work.clock()
        if found.starts_now:
            return None
        if found.after_eviction:
            return self._promised(now + self._unit_of_work.loaded.admin.notice + SAVING, now)
        self._evaluate(now)
        reason = found.reason or Reason(ReasonCode.PENDING_EVALUATION, "")
        is_fixed = reason.code in FIXED_TEXTS or _never_starts(reason)
        at_most = None if is_fixed else self._bound(workload, now)
        return self._estimate(
            workload, self._pool(workload), "", reason, 0, at_most, now, waits=False
        )

    def _estimate(
        self,
        work: Workload,
        pool: str,
        id_: str,
        reason: Reason,
        so_far: int,
        at_most: int | None,
        now: int,
        *,
        waits: bool,
    ) -> m.ExpectedWait | None:
        if _never_starts(reason):
            return None
        if reason.code in FIXED_TEXTS:
            return unknown(now, FIXED_TEXTS[reason.code])
        if reason.code in PROJECT_REASONS:
            why = (
                f"{UNKNOWN}: waiting until project {work.project} or its department releases GPUs."
            )
            return unknown(now, why) if at_most is None else bounded(at_most, now)
        place = self._waits.position(work.project, pool, id_)
        found = self._waits.expected(pool, _size(work), place, so_far)
        if found is not None:
            return by_history(found, pool, now, at_most, waits=waits)
        if at_most is not None:
            return bounded(at_most, now)
        longer = self._waits.expected(pool, _size(work), place, 0) is not None
        few = f'too few requests have waited in pool "{pool}" recently'
        return unknown(now, f"{UNKNOWN}: {LONGER if longer else few}.")

    def _promised(self, until: int, now: int) -> m.ExpectedWait:
        if until <= now:
            return unknown(now, f"{UNKNOWN}: it starts when the evicted workloads have left.")
        return bounded(until - now, now, "the evicted workloads have left by then")

    # -- past waits --

    def _evaluate(self, now: int) -> None:
        """Evaluates past waits again when due: often with few of them, rarely with ten thousand."""
        if self._waits.now <= now < self._due:
            return
        while self._over and (self._over[0].ended or 0) < now - WEEK:
            self._over.popleft()
        going = [
            self._wait(record)
            for record in self._unit_of_work.records.values()
            if self._waits_for_turn(record)
        ]
        self._waits = WaitHistory([*self._over, *going], now)
        self._due = now + PER_WAIT * (len(self._over) + len(going))

    def _waits_for_turn(self, record: WorkloadRecord) -> bool:
        """Whether it waits for its turn: what waits for something else does not make others wait
        longer.
        """
        if (
            record.pending_since is None
            or record.is_held
            or record.pending_since != record.workload.created
        ):
            return False
        return record.reason is None or record.reason.code not in (
            *FIXED_TEXTS,
            *IMPOSSIBLE,
            *PROJECT_REASONS,
        )

    def _wait(self, record: WorkloadRecord) -> WaitSample:
        if record.id not in self._going:
            work = record.workload
            self._going[record.id] = WaitSample(
                work.id, work.project, self._pool(work), _size(work), work.created
            )
        return self._going[record.id]

    def _of_past(self, past: PastWait) -> WaitSample:
        project = next(
            (one for one in self._unit_of_work.loaded.policy.projects if one.name == past.project),
            None,
        )
        asked = past.request.node_pools or (project.node_pools if project else ()) or ("default",)
        size = size_class(sum(_milli_gpu(pod) for pod in past.request.pods))
        return WaitSample(
            past.id,
            past.project,
            past.pool or asked[0],
            size,
            past.begun,
            max(past.begun, past.ended),
            past.pool is not None,
        )

    def _pool(self, workload: Workload) -> str:
        """The first pool that it may use."""
        return pools_tried(workload, self._unit_of_work.loaded.policy)[0]

    # -- projection --

    def tick(self, now: int) -> None:
        """Makes a projection from time to time, if workloads are pending and a rule limits running
        times.
        """
        if self._look_at - PROJECTION_INTERVAL <= now < self._look_at:
            return
        self._look_at, self._latest = now + PROJECTION_INTERVAL, {}
        if self._has_rules() and 0 < len(self._unit_of_work.decisions.reasons) <= PROJECTED:
            self._latest = self._projection(now)

    def _bound(self, workload: Workload, now: int) -> int | None:
        """The longest wait (ms) of a what-if request."""
        if not self._has_rules() or len(self._unit_of_work.decisions.reasons) > PROJECTED:
            return None
        at = self._projection(now, workload).get(workload.id)
        return None if at is None else at - now

    def _has_rules(self) -> bool:
        return any(
            ms is not None and place.endswith(".max_running")
            for place, ms in self._unit_of_work.loaded.rules.all()
        )

    def _projection(self, now: int, asked: Workload | None = None) -> dict[str, int]:
        """By when each workload starts, as far as the projection reaches; for a what-if request
        only that one.
        """
        begun, found = time.thread_time(), dict[str, int]()
        notice = self._unit_of_work.loaded.admin.notice + SAVING
        with closing(
            project_starts(
                self._unit_of_work.cluster,
                self._known_ends(now),
                now,
                notice=notice,
                workload=asked,
            )
        ) as steps:
            for at, started in steps:
                found |= dict.fromkeys(started - found.keys(), at)
                if time.thread_time() - begun > BUDGET or (
                    asked is not None and asked.id in started
                ):
                    break
        return found

    def _known_ends(self, now: int) -> Iterable[ScheduledEvent]:
        """Ends of running times, and evicted leases."""
        rules, notice = self._unit_of_work.loaded.rules, self._unit_of_work.loaded.admin.notice
        for record in self._unit_of_work.records.values():
            for lease in record.leases.values():
                if lease.wanted == "evict":
                    yield (
                        max(now, self._leaving.get(lease.pool, now)),
                        PodReleased(record.id, lease.pod),
                    )
            if record.leases:
                rule = rules.rule(
                    "max_running", record.project, next(iter(record.leases.values())).pool
                )
                if rule is not None and rule.ms is not None:
                    started = min(
                        record.started.get(lease.id, now) for lease in record.leases.values()
                    )
                    yield max(started + rule.ms, now + notice) + SAVING, WorkloadEnded(record.id)


def _milli_gpu(pod: m.PodRequest) -> int:
    """For its size class only: memory counts as a part of a GPU."""
    return (
        read_gpu(pod.gpu)
        if pod.gpu is not None
        else MILLI // 2
        if pod.gpu_memory is not None
        else 0
    ) * pod.gpu_devices


def _size(workload: Workload) -> int:
    each = (MILLI // 2 if pod.gpu_memory is not None else pod.gpu for pod in workload.pods)
    return size_class(
        sum(gpu * max(1, pod.gpu_devices) for gpu, pod in zip(each, workload.pods, strict=True))
    )


def _never_starts(reason: Reason) -> bool:
    """Whether it exceeds every node, or what its project may ever have."""
    if reason.code in PROJECT_REASONS:
        return all(suggestion.change != "wait" for suggestion in reason.helps)
    return reason.code in IMPOSSIBLE
