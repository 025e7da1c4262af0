"""What everybody who waits is told: why, which place, for how much longer. Told when it changes,
and whoever asks is told the truth of now.
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

BREATH: Final = 5
"""Waiting workloads that are told of a change in one go."""
SOONEST: Final = 10_000
LATEST: Final = 10 * 60_000
"""ms after which an expected wait is looked at again, though nothing else has changed: a quarter of
it, within these bounds.
"""
PER_WAITING: Final = 20
"""ms more for each workload that there is: ten thousand are then looked at fifty a second."""


class PendingStatus:
    """On one ledger."""

    def __init__(self, unit_of_work: UnitOfWork, wait_estimates: WaitEstimates) -> None:
        self._unit_of_work, self._wait_estimates = unit_of_work, wait_estimates
        self._told_of = unit_of_work.decisions
        """The decisions of which everybody who waits was told last."""

    # -- for those who ask --

    def lot(self, record: WorkloadRecord) -> tuple[Reason | None, int | None]:
        """Why it waits and its place, by the last cycle."""
        if record.rests:
            return Reason(
                ReasonCode.HELD, "The idle rule gave the GPU back; the next cell asks for it again."
            ), None
        return self._unit_of_work.pending_reason(record)

    def standing(self, record: WorkloadRecord) -> tuple[str, Reason | None, str]:
        """Its state, why it waits, and its pool: where it runs, else the first that it asks for."""
        pools = [lease.pool for lease in record.leases.values()] or pools_tried(
            record.workload, self._unit_of_work.loaded.policy
        )
        # Ten thousand may wait: each look counts.
        state = (
            state_of(record, self._unit_of_work.cluster)
            if record.leases or record.exits
            else "pending"
        )
        return state, self.lot(record)[0], pools[0]

    def expected(self, record: WorkloadRecord) -> m.ExpectedWait | None:
        """How much longer it waits."""
        return self._expected(record, self.lot(record)[0])

    def _expected(self, record: WorkloadRecord, reason: Reason | None) -> m.ExpectedWait | None:
        """What was told last, until that is to be looked at again; and after that too, as long as
        it is said in the same words.
        """
        told, is_same = (
            record.expected,
            (reason and reason.code) == (record.reason and record.reason.code),
        )
        is_newly_bound = (
            told is not None
            and told.seconds_at_most is None
            and self._wait_estimates.is_bound(record)
        )
        if (
            told is not None
            and is_same
            and self._unit_of_work.clock() < record.look_again
            and not is_newly_bound
        ):
            return told
        found = self._wait_estimates.expected(record, reason)
        return (
            told
            if found is not None and told is not None and found.message == told.message
            else found
        )

    def view(self, record: WorkloadRecord) -> m.WorkloadView:
        """All of it, as its owner sees it."""
        reason, position = self.lot(record)
        expected = self._expected(record, reason)
        return replace(
            view(record, self._unit_of_work.cluster),
            reason=reason_of(reason),
            queue_position=position,
            expected_wait=expected,
        )

    # -- telling --

    def explain(self, decisions: Decisions, touched: set[str]) -> None:
        """Tells those whose lot has just changed why they wait or that they do not any more; leaves
        everybody else to the ticks.

        One grant changes "GPUs free" and the places for everybody who waits: working that out and
        telling ten thousand of them at once would delay the next grant. Whoever asks is told the
        truth of this cycle (`view`), announced or not.
        """
        unit_of_work = self._unit_of_work
        promised = {pipeline.workload for pipeline in decisions.pipelines}
        for id_ in touched | promised | unit_of_work.fresh:
            if (record := unit_of_work.records.get(id_)) is not None:
                self._renew(record, *self._peek(record, decisions))
                unit_of_work.changed(record)
        unit_of_work.fresh.clear()

    def telling(self) -> Iterator[None]:
        """Tells everybody who waits how their reason, its numbers, their place and their expected
        wait have changed, breathing after every few.

        Goes by the decisions at its start; who got something meanwhile was told by the cycle that
        gave it.
        """
        unit_of_work, decisions = self._unit_of_work, self._unit_of_work.decisions
        if decisions is self._told_of:
            return
        yield from decisions.count_positions()
        oldest_first = [id_ for id_ in unit_of_work.records if id_ in decisions.reasons]
        for count, id_ in enumerate(oldest_first, start=1):
            record = unit_of_work.records.get(id_)
            if (
                record is not None
                and id_ in unit_of_work.decisions.reasons
                and self._renew(record, *self._peek(record, decisions))
            ):
                is_fresh = id_ in unit_of_work.fresh
                unit_of_work.changed(record)
                unit_of_work.fresh -= (
                    set() if is_fresh else {id_}
                )  # telling somebody is no news about them
            if count % BREATH == 0:
                yield
        self._told_of = decisions

    def trial_failed(
        self, record: WorkloadRecord, reason: Reason | None, position: int | None
    ) -> None:
        """A workload that replaces another one was not granted on trial. Publishes the reason when
        it changed.
        """
        record.trial = reason, position
        if self._renew(record, reason, position) or record.id in self._unit_of_work.fresh:
            self._unit_of_work.changed(record)
            self._unit_of_work.fresh.discard(record.id)

    def _peek(
        self, record: WorkloadRecord, decisions: Decisions
    ) -> tuple[Reason | None, int | None]:
        if self._unit_of_work.replaces(record) is not None:
            return record.trial
        return decisions.peek(record.id)

    def _renew(self, record: WorkloadRecord, reason: Reason | None, position: int | None) -> bool:
        """Takes it over; whether any of it is news. Time alone changes what is to be expected: that
        is news when it is said otherwise.
        """
        expected = self._expected(record, reason)
        is_news = (reason, position) != (
            record.reason,
            record.position,
        ) or expected is not record.expected
        if expected is not record.expected or self._unit_of_work.clock() >= record.look_again:
            record.look_again = self._again(expected)
        record.reason, record.position, record.expected = reason, position, expected
        return is_news

    def _again(self, expected: m.ExpectedWait | None) -> int:
        quarter = (
            0
            if expected is None or expected.seconds_median is None
            else round(250 * expected.seconds_median)
        )
        soonest = SOONEST + PER_WAITING * len(self._unit_of_work.records)
        return self._unit_of_work.clock() + max(soonest, min(LATEST, quarter))
