"""Previews a policy's changes and whom they affect, before and when it is put into force. Changes
nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from jupyter_gpushare import messages as m

from ..policy.diff import changes
from ..policy.impact import PolicyImpact, effects
from ..policy.policy_file import LoadedPolicy, PolicyErrors, parse_policy
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["PolicyPreview", "lines_of"]

log = logging.getLogger("gpushare.scheduler.policy")
MOST_LINES: Final = 100
"""Lines of a change in the status; all of them are in the log."""


class PolicyPreview:
    """Compares policies with the workloads of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self.changed: m.Stamp | None = None
        self.lines: list[str] = []

    def check(self, body: m.PolicyText) -> m.PolicyCheck:
        """Compares a policy text with the one in force and current workloads. Its problems are part
        of the result, not errors.
        """
        try:
            loaded = parse_policy(body.text, body.source)
        except PolicyErrors as error:
            return m.PolicyCheck(problems=[str(problem) for problem in error.problems])
        return self.compare(loaded)

    def compare(self, new: LoadedPolicy) -> m.PolicyCheck:
        """Compares a parsed policy."""
        old = self.unit_of_work.loaded
        return m.PolicyCheck(
            changes=changes(old, new), affected=effects(old, new, self._uses(), self._moves(new))
        )

    def taken(self, check: m.PolicyCheck) -> None:
        """That policy is now in force."""
        lines = lines_of(check)
        for line in lines:
            log.info("policy changed: %s", line)
        if lines:
            self.changed, self.lines = m.stamp(self.unit_of_work.clock()), lines[:MOST_LINES]

    def _uses(self) -> list[PolicyImpact]:
        return [
            use for record in self.unit_of_work.records.values() for use in self._uses_of(record)
        ]

    def _uses_of(self, record: WorkloadRecord) -> list[PolicyImpact]:
        """One for each pool in which it has leases, or one without a pool if it is pending."""
        now, asked = self.unit_of_work.clock(), record.request.priority_class
        named = (
            str(asked)
            if asked is not None
            else self.unit_of_work.loaded.policy.default_priority_class
        )
        held: dict[str, list[m.LeaseBody]] = {}
        for lease in record.leases.values():
            held.setdefault(lease.pool, []).append(lease)

        def use(pool: str | None, leases: list[m.LeaseBody], since: int | None) -> PolicyImpact:
            milli = sum(self._milli(record, lease) for lease in leases)
            nodes = frozenset(lease.node for lease in leases)
            length = 0 if since is None else max(0, now - since)
            return PolicyImpact(
                record.id,
                record.project,
                record.user,
                pool,
                milli,
                record.workload.preemptible,
                named,
                length,
                nodes,
            )

        if not held:
            return [use(None, [], record.pending_since)]
        return [
            use(pool, leases, min(record.started.get(lease.id, now) for lease in leases))
            for pool, leases in held.items()
        ]

    def _milli(self, record: WorkloadRecord, lease: m.LeaseBody) -> int:
        """Milli-GPU as counted against quota."""
        pod = next(pod for pod in record.workload.pods if pod.name == lease.pod)
        if pod.gpu_memory is None:
            return pod.gpu * pod.gpu_devices
        total = (
            self.unit_of_work.cluster.nodes[lease.node].capacity
            if lease.node in self.unit_of_work.cluster.nodes
            else pod.gpu_memory
        )
        return round(1000 * pod.gpu_memory / max(1, total)) * pod.gpu_devices

    def _moves(self, new: LoadedPolicy) -> dict[str, tuple[str, str]]:
        """Nodes that would be in another pool, with the old and the new one."""
        nodes = self.unit_of_work.nodes
        both = {
            name: (
                nodes.pool_of(nodes.labels(name)).name,
                nodes.pool_of(nodes.labels(name), new).name,
            )
            for name in nodes.reports
        }
        return {name: pools for name, pools in both.items() if pools[0] != pools[1]}


def lines_of(check: m.PolicyCheck) -> list[str]:
    """One line per change, then one per affected workload."""
    return [change.message for change in check.changes] + [
        f"affected: {one.message}" for one in check.affected
    ]
