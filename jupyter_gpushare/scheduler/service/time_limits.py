"""Time limits of the policy: how long workloads may run and wait. Also resubmits what the idle rule
released.

Every end is announced one notice period before it, if there is someone to notify. A lease whose
time is over is evicted by its agent in the usual steps, so its memory is saved where possible.
Times are wall-clock ms.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.events import WorkloadHeld
from jupyter_gpushare.core.model.units import duration_text

from ..policy.rules import Rule, RuleSet
from ..state.admission import pools_tried
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, reason_of

__all__ = ["TimeLimits"]

log = logging.getLogger("gpushare.scheduler")
NEVER: Final = 1 << 62
LAST_NOTICE: Final = 5_000
"""ms. When the announced end is reached, the agent warns a running cell once more, at most this
long before.
"""


class TimeLimits:
    """Of one unit of work; `tick` once a second."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self._rules: dict[tuple[str, str, str], Rule | None] = {}
        self._rule_set: RuleSet | None = None
        self._announced = {
            record.id
            for record in unit_of_work.records.values()
            if self._announced_end(record) is not None
        }
        """Workloads that may have been notified of their end: the notice is withdrawn if the rules
        are removed.
        """

    def use_rules(self) -> None:
        """Applies a new policy to leases in force. Not stored: a restart reads the policy again."""
        rules = self.unit_of_work.loaded.rules
        for record in self.unit_of_work.records.values():
            record.next_time_check = 0
            for lease in record.leases.values():
                record.leases[lease.pod] = replace(
                    lease, rules=rules.lease_rules(record.project, lease.pool)
                )

    def tick(self, now: int) -> None:
        """Ends workloads whose time is over, and notifies those that are close to it."""
        if not any(
            key.endswith((".max_running", ".max_waiting"))
            for key, _ in self.unit_of_work.loaded.rules.all()
        ):
            self._withdraw_all()
            return
        for record in [
            record for record in self.unit_of_work.records.values() if record.next_time_check <= now
        ]:
            record.next_time_check = now
            if record.leases:
                self._running(record, now)
            elif record.pending_since is not None:
                self._waiting(record, now)

    def _rule(self, key: str, project: str, pool: str) -> Rule | None:
        """Cached: ten thousand workloads may be pending."""
        if self._rule_set is not self.unit_of_work.loaded.rules:
            self._rule_set, self._rules = self.unit_of_work.loaded.rules, {}
        place = key, project, pool
        if place not in self._rules:
            self._rules[place] = self._rule_set.rule(*place)
        rule = self._rules[place]
        return rule if rule is not None and rule.ms is not None else None

    # -- pending --

    def _waiting(self, record: WorkloadRecord, now: int) -> None:
        """The rule of the first pool that it may use applies."""
        rule = self._rule(
            "max_waiting",
            record.project,
            pools_tried(record.workload, self.unit_of_work.loaded.policy)[0],
        )
        if rule is None or rule.ms is None or record.pending_since is None:
            record.next_time_check = NEVER
            return
        end = record.pending_since + rule.ms
        if now >= end:
            self._end_wait(
                record,
                f"The request waited for {duration_text(rule.ms)}, the limit set by {rule.place}",
            )
        elif now < end - self._notice():
            record.next_time_check = end - self._notice()
        else:
            record.next_time_check = end
            self._announce_end(
                record, end, now, f"waiting is limited to {duration_text(rule.ms)} ({rule.place})"
            )

    def _announce_end(self, record: WorkloadRecord, end: int, now: int, text: str) -> None:
        """Once for each end; after a restart once more."""
        if record.announced_end != end:
            record.announced_end = end
            with self.unit_of_work.transaction():
                left = duration_text(end - now)
                message = f"The request is cancelled in {left} unless it is granted before: {text}."
                self.unit_of_work.event(record, "notice", message)

    def _end_wait(self, record: WorkloadRecord, said: str) -> None:
        why, _ = self.unit_of_work.pending_reason(record)
        because = f" It was pending because: {why.message}" if why is not None else ""
        text = f"{said}, and was cancelled.{because}"
        reason = reason_of(why) or m.ReasonBody(code="PendingEvaluation", message="")
        self.unit_of_work.finish(record, "refused", text, reason=replace(reason, message=text))

    # -- running --

    def _running(self, record: WorkloadRecord, now: int) -> None:
        """The running time of a workload starts with its first lease."""
        started = min(record.started.get(lease.id, now) for lease in record.leases.values())
        pool = next(iter(record.leases.values())).pool
        rule = self._rule("max_running", record.project, pool)
        if rule is None or rule.ms is None:
            self._withdraw(record)
            record.next_time_check = NEVER
            return
        text = f"The running time limit of {duration_text(rule.ms)} ({rule.place}) is reached:"
        text += " the workload ends and its GPU is released."
        text += " Saved memory is restored when a GPU is requested again."
        due, text_ = started + rule.ms, self._announced_end(record)
        if any(
            lease.wanted == "evict" and lease.message == text for lease in record.leases.values()
        ):
            record.ending = text  # also after a restart
        elif text_ is not None and due > text_:
            self._withdraw(record)  # the rule was relaxed
        elif text_ is not None and now >= text_:
            self._evict(record, text)
        elif text_ is not None or now >= due - self._notice():
            self._announce(record, text_ or max(due, now + self._notice()), now, text)
        else:
            record.next_time_check = due - self._notice()

    def _notice(self) -> int:
        return self.unit_of_work.loaded.admin.notice

    @staticmethod
    def _announced_end(record: WorkloadRecord) -> int | None:
        stamps = [
            m.stamp_ms(lease.ends_at)
            for lease in record.leases.values()
            if lease.ends_at is not None
        ]
        return min(stamps, default=None)

    def _announce(self, record: WorkloadRecord, end: int, now: int, text: str) -> None:
        """Notifies leases that have not been notified."""
        self._announced.add(record.id)
        message = f"The GPU is released in {duration_text(end - now)}. {text}"
        changed = [
            replace(lease, ends_at=m.stamp(end), message=message)
            for lease in record.leases.values()
            if lease.wanted == "hold" and lease.ends_at is None
        ]
        self._change(record, changed)

    def _withdraw_all(self) -> None:
        for id_ in self._announced:
            if (record := self.unit_of_work.records.get(id_)) is not None:
                self._withdraw(record)
        self._announced.clear()

    def _withdraw(self, record: WorkloadRecord) -> None:
        changed = [
            replace(lease, ends_at=None, message="")
            for lease in record.leases.values()
            if lease.wanted == "hold" and lease.ends_at is not None
        ]
        self._change(record, changed)

    def _evict(self, record: WorkloadRecord, text: str) -> None:
        record.ending = text
        held = [lease for lease in record.leases.values() if lease.wanted == "hold"]
        if held:
            self.unit_of_work.evict_leases(record, held, "max_running", text, LAST_NOTICE)

    def _change(self, record: WorkloadRecord, leases: list[m.LeaseBody]) -> None:
        if not leases:
            return
        with self.unit_of_work.transaction() as write:
            for lease in leases:
                write.lease(lease)
        self.unit_of_work.publish_leases(record, leases)

    # -- released by the idle rule --

    def ask_again(self, node: str, workload: str) -> None:
        """Its owner is active again. Ignores workloads that are not held, or not of this node: the
        agent repeats the message.
        """
        record = self.unit_of_work.records.get(workload)
        if (
            record is None
            or not record.is_held
            or all(pod.nodes and node not in pod.nodes for pod in record.request.pods)
        ):
            return
        with self.unit_of_work.transaction():
            self.unit_of_work.cluster.apply(WorkloadHeld(record.id, held=False))
            self.unit_of_work.event(
                record, "requested", "Requested again: a cell is waiting for it."
            )
        record.is_held, record.pending_since, record.next_time_check = (
            False,
            self.unit_of_work.clock(),
            0,
        )
        self.unit_of_work.publish_change(record)
        self.unit_of_work.wake()
