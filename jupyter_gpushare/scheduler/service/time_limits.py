"""How long workloads may hold a GPU and wait for one, by the policy's rules; and what an idle rule
gave back is asked for again.

Every end is announced first where there is somebody to announce it to: a lease is told its last
moment a notice before it, and is then taken back by the agent's usual ladder, so that its memory is
saved where that is possible. Times are wall-clock ms, as the store's.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.events import WorkloadHeld
from jupyter_gpushare.core.model.units import duration_text

from ..policy.rules import Rule, RuleBook
from ..state.admission import pools_tried
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, reason_of

__all__ = ["TimeLimits"]

log = logging.getLogger("gpushare.scheduler")
NEVER: Final = 1 << 62
LAST_NOTICE: Final = 5_000
"""ms. Once the announced moment has come, whoever still runs a cell is warned by the agent once
more, no longer than this.
"""


class TimeLimits:
    """On one ledger; `tick` once a second."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self._rules: dict[tuple[str, str, str], Rule | None] = {}
        self._book: RuleBook | None = None
        self._announced = {
            record.id for record in unit_of_work.records.values() if self._told(record) is not None
        }
        """Workloads that may have been told of their end: looked at when there are no rules any
        more.
        """

    def use_rules(self) -> None:
        """A new policy: leases in force are under its rules from now on. Not stored: a restart
        reads the policy again.
        """
        rules = self.unit_of_work.loaded.rules
        for record in self.unit_of_work.records.values():
            record.look_at = 0
            for lease in record.leases.values():
                record.leases[lease.pod] = replace(
                    lease, rules=rules.lease_rules(record.project, lease.pool)
                )

    def tick(self, now: int) -> None:
        """Ends what is over, and tells those who are close to it."""
        if not any(
            key.endswith((".max_running", ".max_waiting"))
            for key, _ in self.unit_of_work.loaded.rules.all()
        ):
            self._withdraw_all()
            return
        for record in [
            record for record in self.unit_of_work.records.values() if record.look_at <= now
        ]:
            record.look_at = now
            if record.leases:
                self._running(record, now)
            elif record.waits_since is not None:
                self._waiting(record, now)

    def _rule(self, key: str, project: str, pool: str) -> Rule | None:
        """Remembered, because ten thousand may wait."""
        if self._book is not self.unit_of_work.loaded.rules:
            self._book, self._rules = self.unit_of_work.loaded.rules, {}
        place = key, project, pool
        if place not in self._rules:
            self._rules[place] = self._book.rule(*place)
        rule = self._rules[place]
        return rule if rule is not None and rule.ms is not None else None

    # -- waiting --

    def _waiting(self, record: WorkloadRecord, now: int) -> None:
        """The first pool of its list speaks for it: that is where it wants to be."""
        rule = self._rule(
            "max_waiting",
            record.project,
            pools_tried(record.workload, self.unit_of_work.loaded.policy)[0],
        )
        if rule is None or rule.ms is None or record.waits_since is None:
            record.look_at = NEVER
            return
        end = record.waits_since + rule.ms
        if now >= end:
            self._end_wait(
                record, f"Waited for {duration_text(rule.ms)}, the longest that {rule.place} allows"
            )
        elif now < end - self._notice():
            record.look_at = end - self._notice()
        else:
            record.look_at = end
            self._announce_end(
                record,
                end,
                now,
                f"the longest waiting time is {duration_text(rule.ms)} ({rule.place})",
            )

    def _announce_end(self, record: WorkloadRecord, end: int, now: int, text: str) -> None:
        """Once for each end; after a restart once more."""
        if record.told_end != end:
            record.told_end = end
            with self.unit_of_work.transaction() as write:
                told = f"In {duration_text(end - now)} it is not waited for any more, if it has no GPU by then: {text}."
                self.unit_of_work.event(write, record, "notice", told)

    def _end_wait(self, record: WorkloadRecord, said: str) -> None:
        why, _ = self.unit_of_work.pending_reason(record)
        because = f" It waited because: {why.message}" if why is not None else ""
        text = f"{said}, and is not waited for any more.{because}"
        reason = reason_of(why) or m.ReasonBody(code="PendingEvaluation", message="")
        self.unit_of_work.finish(record, "refused", text, reason=replace(reason, message=text))

    # -- running --

    def _running(self, record: WorkloadRecord, now: int) -> None:
        """The workload as a whole runs since its first lease."""
        started = min(record.started.get(lease.id, now) for lease in record.leases.values())
        pool = next(iter(record.leases.values())).pool
        rule = self._rule("max_running", record.project, pool)
        if rule is None or rule.ms is None:
            self._withdraw(record)
            record.look_at = NEVER
            return
        text = f"The longest running time, {duration_text(rule.ms)} ({rule.place}), is over: the GPU goes back and the workload ends."
        text += " What could be saved comes back when a GPU is asked for again."
        due, told = started + rule.ms, self._told(record)
        if any(
            lease.wanted == "evict" and lease.message == text for lease in record.leases.values()
        ):
            record.ending = text  # also after a restart
        elif told is not None and due > told:
            self._withdraw(record)  # the rule was loosened
        elif told is not None and now >= told:
            self._evict(record, text)
        elif told is not None or now >= due - self._notice():
            self._announce(record, told or max(due, now + self._notice()), now, text)
        else:
            record.look_at = due - self._notice()

    def _notice(self) -> int:
        return self.unit_of_work.loaded.admin.notice

    @staticmethod
    def _told(record: WorkloadRecord) -> int | None:
        stamps = [
            m.stamp_ms(lease.ends_at)
            for lease in record.leases.values()
            if lease.ends_at is not None
        ]
        return min(stamps, default=None)

    def _announce(self, record: WorkloadRecord, end: int, now: int, text: str) -> None:
        """Tells those of its leases that have not been told."""
        self._announced.add(record.id)
        told = f"In {duration_text(end - now)} the GPU is taken back. {text}"
        pending_events = [
            lease
            for lease in record.leases.values()
            if lease.wanted == "hold" and lease.ends_at is None
        ]
        self._change(
            record, [replace(lease, ends_at=m.stamp(end), message=told) for lease in pending_events]
        )

    def _withdraw_all(self) -> None:
        for id_ in self._announced:
            if (record := self.unit_of_work.records.get(id_)) is not None:
                self._withdraw(record)
        self._announced.clear()

    def _withdraw(self, record: WorkloadRecord) -> None:
        told = [
            lease
            for lease in record.leases.values()
            if lease.wanted == "hold" and lease.ends_at is not None
        ]
        self._change(record, [replace(lease, ends_at=None, message="") for lease in told])

    def _evict(self, record: WorkloadRecord, text: str) -> None:
        record.ending = text
        held = [lease for lease in record.leases.values() if lease.wanted == "hold"]
        if held:
            self.unit_of_work.take_back(record, held, "max_running", text, LAST_NOTICE)

    def _change(self, record: WorkloadRecord, leases: list[m.LeaseBody]) -> None:
        if not leases:
            return
        with self.unit_of_work.transaction() as write:
            for lease in leases:
                write.lease(lease, record.started.get(lease.id, self.unit_of_work.clock()))
        self.unit_of_work.say(record, leases)

    # -- what the idle rule gave back --

    def ask_again(self, node: str, workload: str) -> None:
        """Its owner is at work again. What is not held, or not that node's, is passed over: the
        word is said more than once.
        """
        record = self.unit_of_work.records.get(workload)
        if (
            record is None
            or not record.rests
            or all(pod.nodes and node not in pod.nodes for pod in record.request.pods)
        ):
            return
        with self.unit_of_work.transaction() as write:
            self.unit_of_work.cluster.apply(WorkloadHeld(record.id, held=False))
            self.unit_of_work.event(
                write, record, "requested", "Asked for again: a cell waits for it."
            )
        record.rests, record.waits_since, record.look_at = False, self.unit_of_work.clock(), 0
        self.unit_of_work.changed(record)
        self.unit_of_work.wake()
