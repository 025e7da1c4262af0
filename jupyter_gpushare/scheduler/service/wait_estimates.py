"""How much longer everybody who waits will wait, and somebody who only asks would: what `core` says
of the past and of what must end.

Remembers the waits of a week, at most `MOST`; after a restart they are read back from the store,
where they are anyway. Decides nothing.
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
from .wait_text import bounded, by_history, unknown

__all__ = ["WaitEstimates"]

MOST: Final = 2_000
"""Waits that are over and remembered."""
PER_WAIT: Final = 5
"""ms between two looks at the past, per wait in it: a look takes a few microseconds for each."""
SAVING: Final = 30_000
"""ms after the end of a notice in which memory is saved, or else its holder ended."""
LOOK: Final = 30_000
"""ms between two looks ahead."""
FORESEEN: Final = 500
"""Workloads that wait, at most, where is looked ahead: with more of them a cycle takes too long to
play a dozen.
"""
BUDGET: Final = 0.02
"""Seconds that a look ahead may take; what it has not reached by then is not bounded."""

HOPELESS: Final = {
    ReasonCode.NEVER_FITS: "It never starts as it is asked, so there is no time to tell.",
    ReasonCode.INVALID_REQUEST: "It never starts as it is asked, so there is no time to tell.",
    ReasonCode.UNKNOWN_PROJECT: "It does not start before the project is in the policy again.",
    ReasonCode.UNKNOWN_POOL: "It does not start before one of its node pools exists.",
    ReasonCode.NODE_NOT_READY: "How long is not known: it waits for a node to come back.",
}
"""The past says nothing about these: they wait for something else than their turn."""
OWN: Final = (ReasonCode.OVER_LIMIT, ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA)
"""They wait for their own project."""


class WaitEstimates:
    """On one ledger, whose cluster it plays with and puts back."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        now = unit_of_work.clock()
        past = past_waits(unit_of_work.store, now - WEEK, MOST)
        self._over: deque[WaitSample] = deque((self._of_past(one) for one in past), maxlen=MOST)
        self._going: dict[str, WaitSample] = {}
        self._waits, self._due = WaitHistory((), now), 0
        self._latest: dict[str, int] = {}
        """By when (ms) those who wait start at the latest, as far as that is bound."""
        self._look_at = 0
        self._leaving: dict[str, int] = {}
        """By pool: when (ms) everybody has left who has been told to."""

    # -- taking in --

    def over(self, record: WorkloadRecord, *, granted: bool, pool: str = "") -> None:
        """Its wait for its first grant is over; before the record says so. Who waits again after an
        eviction is not counted.
        """
        if record.waits_since is not None and record.waits_since == record.workload.created:
            wait = self._wait(record)
            ended = max(wait.begun, self._unit_of_work.clock())
            self._over.append(
                WaitSample(
                    wait.id, wait.project, pool or wait.pool, wait.size, wait.begun, ended, granted
                )
            )
        self._going.pop(record.id, None)

    def evicting(self, evict: Evict, notice: int) -> None:
        """Somebody was told to leave."""
        self._leaving[evict.spot.pool] = max(
            self._leaving.get(evict.spot.pool, 0), self._unit_of_work.clock() + notice + SAVING
        )

    # -- giving out --

    def expected(self, record: WorkloadRecord, reason: Reason | None) -> m.ExpectedWait | None:
        """How much longer it waits; None: it does not, or nobody has decided about it yet."""
        now = self._unit_of_work.clock()
        if (
            reason is None
            or record.waits_since is None
            or record.rests
            or reason.code == ReasonCode.HELD
        ):
            return None
        pool = self._pool(record.workload)
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
        self._look_back(now)
        return self._told(
            record.workload,
            pool,
            record.id,
            reason,
            max(0, now - record.waits_since),
            at_most,
            now,
            waits=True,
        )

    def is_bound(self, record: WorkloadRecord) -> bool:
        """Whether by now it is known by when it starts at the latest."""
        return record.id in self._latest

    def would(self, workload: Workload, found: WhatIf) -> m.ExpectedWait | None:
        """How long somebody would wait who only asks; None: not at all."""
        now = self._unit_of_work.clock()
        if found.starts_now:
            return None
        if found.after_eviction:
            return self._promised(now + self._unit_of_work.loaded.admin.notice + SAVING, now)
        self._look_back(now)
        reason = found.reason or Reason(ReasonCode.PENDING_EVALUATION, "")
        at_most = None if reason.code in HOPELESS else self._bound(workload, now)
        return self._told(workload, self._pool(workload), "", reason, 0, at_most, now, waits=False)

    def _told(
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
    ) -> m.ExpectedWait:
        if reason.code in HOPELESS:
            return unknown(now, HOPELESS[reason.code])
        if reason.code in OWN and all(help_.change != "wait" for help_ in reason.helps):
            return unknown(
                now, HOPELESS[ReasonCode.NEVER_FITS]
            )  # it is larger than what its project may have at all
        if reason.code in OWN:
            why = f"How long is not known: it waits until project {work.project} or its department gives GPUs back."
            return unknown(now, why) if at_most is None else bounded(at_most, now)
        place = self._waits.position(work.project, pool, id_)
        found = self._waits.expected(pool, _size(work), place, so_far)
        if found is not None:
            return by_history(found, pool, now, at_most, waits=waits)
        if at_most is not None:
            return bounded(at_most, now)
        longer = self._waits.expected(pool, _size(work), place, 0) is not None
        few = f"hardly anybody has waited in pool {pool} lately"
        return unknown(
            now,
            f"How long is not known: {'it has waited longer than like requests of the last week' if longer else few}.",
        )

    def _promised(self, until: int, now: int) -> m.ExpectedWait:
        if until <= now:
            return unknown(
                now, "It starts as soon as the others have left; how long that takes is not known."
            )
        return bounded(until - now, now, "the notice to those who make room is over by then")

    # -- the past --

    def _look_back(self, now: int) -> None:
        """A new look when it is time for one: often while there is little to see, rarely where ten
        thousand wait.
        """
        if self._waits.now <= now < self._due:
            return
        while self._over and (self._over[0].ended or 0) < now - WEEK:
            self._over.popleft()
        going = [
            self._wait(record)
            for record in self._unit_of_work.records.values()
            if self._counts(record)
        ]
        self._waits = WaitHistory([*self._over, *going], now)
        self._due = now + PER_WAIT * (len(self._over) + len(going))

    def _counts(self, record: WorkloadRecord) -> bool:
        """Whether it waits its turn: what waits for something else makes nobody's wait longer."""
        if (
            record.waits_since is None
            or record.rests
            or record.waits_since != record.workload.created
        ):
            return False
        return record.reason is None or not (
            record.reason.code in HOPELESS or record.reason.code in OWN
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
        """The first of its list: that is where it wants to be."""
        return pools_tried(workload, self._unit_of_work.loaded.policy)[0]

    # -- what must end --

    def tick(self, now: int) -> None:
        """Looks ahead from time to time, where somebody waits and a rule ends running times."""
        if self._look_at - LOOK <= now < self._look_at:
            return
        self._look_at, self._latest = now + LOOK, {}
        if self._has_rules() and 0 < len(self._unit_of_work.decisions.reasons) <= FORESEEN:
            self._latest = self._foreseen(now)

    def _bound(self, workload: Workload, now: int) -> int | None:
        """How long (ms) somebody who asks would wait at the most."""
        if not self._has_rules() or len(self._unit_of_work.decisions.reasons) > FORESEEN:
            return None
        at = self._foreseen(now, workload).get(workload.id)
        return None if at is None else at - now

    def _has_rules(self) -> bool:
        return any(
            ms is not None and place.endswith(".max_running")
            for place, ms in self._unit_of_work.loaded.rules.all()
        )

    def _foreseen(self, now: int, asked: Workload | None = None) -> dict[str, int]:
        """By when everybody starts that is seen to; of one on trial only that."""
        begun, found = time.perf_counter(), dict[str, int]()
        notice = self._unit_of_work.loaded.admin.notice + SAVING
        with closing(
            project_starts(
                self._unit_of_work.cluster, self._coming(now), now, notice=notice, workload=asked
            )
        ) as steps:
            for at, started in steps:
                found |= dict.fromkeys(started - found.keys(), at)
                if time.perf_counter() - begun > BUDGET or (
                    asked is not None and asked.id in started
                ):
                    break
        return found

    def _coming(self, now: int) -> Iterable[ScheduledEvent]:
        """The ends of running times, and those who were told to leave."""
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
    """For the class of its size only: memory counts as a part of a GPU."""
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
