"""Status of pending workloads: reason, queue position and expected wait. Published when it changes;
queries always get the current one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.reason import Reason, ReasonCode

from ..state.admission import pools_tried
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, reason_of, state_of, view
from .wait_estimates import WaitEstimates

__all__ = ["PendingStatus"]

BATCH: Final = 5
"""Pending workloads whose status is published in one batch."""
SOONEST: Final = 10_000
LATEST: Final = 10 * 60_000
"""ms after which an expected wait is computed again if nothing else changes: a quarter of it,
within these bounds.
"""
PER_WAITING: Final = 20
"""ms more per pending workload: with ten thousand, fifty are computed per second."""


class PendingStatus:
    """Of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork, wait_estimates: WaitEstimates) -> None:
        self._unit_of_work, self._wait_estimates = unit_of_work, wait_estimates
        self._published = unit_of_work.decisions
        """The decisions that all pending workloads were last notified of."""

    # -- queries --

    def reason_and_position(self, record: WorkloadRecord) -> tuple[Reason | None, int | None]:
        """Reason and queue position, as of the last cycle."""
        if record.is_held:
            return Reason(
                ReasonCode.HELD, "The GPU was released while idle; the next cell requests it again."
            ), None
        return self._unit_of_work.pending_reason(record)

    def summary(self, record: WorkloadRecord) -> tuple[str, Reason | None, str]:
        """Its state, reason, and pool: where it runs, else the first that it may use."""
        pools = [lease.pool for lease in record.leases.values()] or pools_tried(
            record.workload, self._unit_of_work.loaded.policy
        )
        # with ten thousand pending workloads each lookup counts
        state = (
            state_of(record, self._unit_of_work.cluster)
            if record.leases or record.exits
            else "pending"
        )
        return state, self.reason_and_position(record)[0], pools[0]

    def expected(self, record: WorkloadRecord) -> m.ExpectedWait | None:
        """The expected remaining wait."""
        return self._expected(record, self.reason_and_position(record)[0])

    def _expected(self, record: WorkloadRecord, reason: Reason | None) -> m.ExpectedWait | None:
        """The one published last until it is due to be computed again, and afterwards while its
        message is the same.
        """
        published, is_same = (
            record.expected,
            (reason and reason.code) == (record.reason and record.reason.code),
        )
        is_newly_bound = (
            published is not None
            and published.seconds_at_most is None
            and self._wait_estimates.is_bound(record)
        )
        if (
            published is not None
            and is_same
            and (reason is None or reason.code != ReasonCode.WAITING_FOR_TURN)
            and self._unit_of_work.clock() < record.estimate_due
            and not is_newly_bound
        ):
            return published
        found = self._wait_estimates.expected(record, reason)
        return (
            published
            if found is not None and published is not None and found.message == published.message
            else found
        )

    def view(self, record: WorkloadRecord) -> m.WorkloadView:
        """The complete status, as its owner sees it."""
        reason, position = self.reason_and_position(record)
        expected = self._expected(record, reason)
        return replace(
            view(record, self._unit_of_work.cluster),
            reason=reason_of(reason),
            queue_position=position,
            expected_wait=expected,
        )

    # -- publishing --

    def explain(self, decisions: Decisions, touched: set[str]) -> None:
        """Publishes the status of workloads that this cycle changed; leaves the others to
        `publish_changes`.

        One grant changes "GPUs free" and the positions of all pending workloads: publishing ten
        thousand changes at once would delay the next grant. Queries (`view`) get the status of this
        cycle anyway.
        """
        unit_of_work = self._unit_of_work
        promised = {pipeline.workload for pipeline in decisions.pipelines}
        for id_ in touched | promised | unit_of_work.fresh:
            if (record := unit_of_work.records.get(id_)) is not None:
                self._update(record, *self._peek(record, decisions))
                unit_of_work.publish_change(record)
        unit_of_work.fresh.clear()

    def publish_changes(self) -> Iterator[None]:
        """Publishes changed reasons, numbers, positions and expected waits of all pending
        workloads, yielding after every few.

        Uses the decisions at its start; later grants are published by their own cycle.
        """
        unit_of_work, decisions = self._unit_of_work, self._unit_of_work.decisions
        if decisions is self._published:
            return
        yield from decisions.count_positions()
        oldest_first = [id_ for id_ in unit_of_work.records if id_ in decisions.reasons]
        for count, id_ in enumerate(oldest_first, start=1):
            record = unit_of_work.records.get(id_)
            if (
                record is not None
                and id_ in unit_of_work.decisions.reasons
                and self._update(record, *self._peek(record, decisions))
            ):
                is_fresh = id_ in unit_of_work.fresh
                unit_of_work.publish_change(record)
                unit_of_work.fresh -= (
                    set() if is_fresh else {id_}
                )  # publishing a status is no change of the workload
            if count % BATCH == 0:
                yield
        self._published = decisions

    def trial_failed(
        self, record: WorkloadRecord, reason: Reason | None, position: int | None
    ) -> None:
        """A replacement was not granted on trial: publishes its reason if it changed."""
        record.trial = reason, position
        if self._update(record, reason, position) or record.id in self._unit_of_work.fresh:
            self._unit_of_work.publish_change(record)
            self._unit_of_work.fresh.discard(record.id)

    def _peek(
        self, record: WorkloadRecord, decisions: Decisions
    ) -> tuple[Reason | None, int | None]:
        if self._unit_of_work.replaces(record) is not None:
            return record.trial
        return decisions.peek(record.id)

    def _update(self, record: WorkloadRecord, reason: Reason | None, position: int | None) -> bool:
        """Stores the status; returns whether it changed. The expected wait counts as changed if its
        message did.
        """
        expected = self._expected(record, reason)
        is_changed = (reason, position) != (
            record.reason,
            record.position,
        ) or expected is not record.expected
        if expected is not record.expected or self._unit_of_work.clock() >= record.estimate_due:
            record.estimate_due = self._next_estimate(expected)
        record.reason, record.position, record.expected = reason, position, expected
        return is_changed

    def _next_estimate(self, expected: m.ExpectedWait | None) -> int:
        quarter = (
            0
            if expected is None or expected.seconds_median is None
            else round(250 * expected.seconds_median)
        )
        soonest = SOONEST + PER_WAITING * len(self._unit_of_work.records)
        return self._unit_of_work.clock() + max(soonest, min(LATEST, quarter))
