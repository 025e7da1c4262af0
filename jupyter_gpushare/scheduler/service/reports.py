"""Handles agents' reports: leases that changed, were released or ended; nodes that joined, changed
or went silent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.activity import UNREPORTED
from jupyter_gpushare.core.model.decisions import Evict
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput
from jupyter_gpushare.core.model.events import (
    ActivityReported,
    PodEvicted,
    PodReleased,
    WorkloadHeld,
)
from jupyter_gpushare.core.model.node_conditions import NodeCondition

from ..state.nodes import Send
from ..state.unit_of_work import UnitOfWork
from ..state.usage import REPORTED, UsageAccounting
from ..state.workload_records import WorkloadRecord, spot_of
from .batch import BatchCommands
from .output_budget import OutputBudget
from .time_limits import TimeLimits
from .turn_reports import TurnReports

__all__ = ["AgentReports"]

log = logging.getLogger("gpushare.scheduler")
LONGEST_USE: Final = 1 << 53
"""An upper bound for reported ms, or MiB times ms: more than anyone can use between two reports
(eight H200 GPUs for three months). An impossible number would spoil the sums for good.
"""


class AgentReports:
    """Of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork, output_budget: OutputBudget) -> None:
        self.unit_of_work = unit_of_work
        self.time_limits = TimeLimits(unit_of_work)
        self.commands = BatchCommands(unit_of_work, output_budget)
        self.turns = TurnReports(unit_of_work)
        self.accounts = UsageAccounting(unit_of_work.store)

    def hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node joins (again). Sends its plan; the agent releases leases that are not in it."""
        name = hello.node.name
        _check_devices(hello.node)
        with self.unit_of_work.transaction() as write:
            self.unit_of_work.nodes.join(hello.node)
            write.node(hello.node, self._platform_labels(name))
        self.unit_of_work.nodes.connect(name, send)
        for report in hello.leases:
            self._reported(name, report)
        self._refuse(self.unit_of_work.kernel_owners.replace(name, hello.kernels))
        self.send_plan(name)
        self.unit_of_work.status_changed()
        self.unit_of_work.wake()
        return name

    def disconnected(self, node: str, send: Send) -> None:
        """The connection broke. Its leases are kept; see `check_silent`."""
        if self.unit_of_work.nodes.disconnect(node, send, self.unit_of_work.clock()):
            self.unit_of_work.status_changed()

    def receive(self, node: str, message: m.FromAgent) -> None:
        """One report. A report about a lease that is not in force on this node is answered by
        LeaseRevoked.

        Raises:
            Conflict: it speaks for another node.
            InvalidInput: impossible numbers.
        """
        match message:
            case m.AgentHello():
                raise Conflict("hello was already received on this connection", field="type")
            case m.KernelsChanged(registered=registered, gone=gone):
                self.unit_of_work.kernel_owners.remove(node, gone)
                self._refuse(self.unit_of_work.kernel_owners.add(node, registered))
            case m.NodeChangedReport(node=report):
                if report.name != node:
                    raise Conflict(
                        f"this connection speaks for node {node}, not for {report.name}",
                        field="node.name",
                    )
                _check_devices(report)
                if self.unit_of_work.nodes.refresh(report):
                    return
                with self.unit_of_work.transaction() as write:
                    self.unit_of_work.nodes.join(report)
                    write.node(report, self._platform_labels(node))
                self.unit_of_work.wake()
            case m.LeaseChanged(report=report):
                if not self._reported(node, report):
                    self.unit_of_work.nodes.send(
                        node,
                        m.LeaseRevoked(revision=self.unit_of_work.revision, lease=report.lease),
                    )
            case m.LeaseReleased(lease=lease):
                self.lease_released(node, message)
                self.unit_of_work.nodes.send(
                    node, m.LeaseRevoked(revision=self.unit_of_work.revision, lease=lease)
                )
            case m.LeaseEvent(lease=lease, event=event):
                if (record := self._holder(node, lease)) is not None:
                    with self.unit_of_work.transaction():
                        self.unit_of_work.pending_events.append((record, event))
            case m.LogChunk(lease=lease):
                if (record := self._holder(node, lease)) is not None:
                    self.commands.printed(node, record, record.lease(lease), message)
            case m.LeaseKept(lease=lease):
                self.turns.kept(node, lease)
            case m.ActivityReport(rows=rows):
                self.turns.reported(node, rows)
            case m.WorkloadRequeued(workload=workload):
                self.time_limits.ask_again(node, workload)
            case m.UsageReport():
                self._used(node, message)

    def _platform_labels(self, node: str) -> Mapping[str, str] | None:
        platform = self.unit_of_work.nodes.platform(node)
        return None if platform is None else platform.labels

    def _refuse(self, workloads: list[str]) -> None:
        """Ends workloads that name kernels of other users than their own."""
        for id_ in workloads:
            record = self.unit_of_work.records[id_]
            message = f"Kernel {record.kernel_id} belongs to another user."
            reason = m.ReasonBody(code="InvalidRequest", message=message)
            self.unit_of_work.finish(record, "refused", message, reason=reason)

    def _used(self, node: str, report: m.UsageReport) -> None:
        """Collects reports until `write_usage`: two hundred agents report all the time, and a
        commit for each would delay grants.
        """
        for row in report.rows:
            _check_usage(row)
        if self.accounts.is_written(node, report):  # the acknowledgement was lost
            self.unit_of_work.nodes.send(
                node, m.UsageAcknowledged(life=report.life, number=report.number)
            )
        else:
            self.accounts.add(node, report, self._owners(node, report.rows), self._device_mib(node))

    def _owners(self, node: str, rows: list[m.LeaseUsage]) -> dict[str, tuple[m.LeaseBody, str]]:
        """Leases on this node in these rows, and their users; including leases that have ended
        since.
        """
        found, past = {}, []
        for row in rows:
            if (record := self._holder(node, row.lease)) is not None:
                found[row.lease] = record.lease(row.lease), record.user
            else:
                past.append(row.lease)
        for body, user in self.unit_of_work.store.past_leases(past):
            if body.node == node:
                found[body.id] = body, user
        return found

    def write_usage(self, most: int | None = None) -> None:
        """Writes reported usage of up to `most` leases (None: all) and acknowledges it to the
        agents. Raises StoreUnavailable; then it is kept for the next time.
        """
        for node, taken in self.accounts.write(self.unit_of_work.clock(), most):
            self.unit_of_work.nodes.send(node, taken)

    def _device_mib(self, node: str) -> int:
        """Memory of a GPU of the node; of the smallest if they differ, as in quotas."""
        return min(
            (device.total_mib for device in self.unit_of_work.nodes.report(node).devices), default=0
        )

    def _holder(self, node: str, lease: str) -> WorkloadRecord | None:
        """The workload with this lease, if the lease is on this node."""
        record = self.unit_of_work.record_of_lease(lease)
        here = record is not None and any(
            body.id == lease and body.node == node for body in record.leases.values()
        )
        return record if here else None

    def _reported(self, node: str, report: m.LeaseReport) -> bool:
        """False: this lease is not in force on this node."""
        record = self._holder(node, report.lease)
        if record is None:
            return False
        before = record.reports.get(report.lease)
        if before != report:
            record.reports[report.lease] = report
            if before is None or (before.state, before.busy) != (report.state, report.busy):
                record.changed_at = self.unit_of_work.clock()
            self.unit_of_work.publish_change(record)
        return True

    def lease_released(self, node: str, message: m.LeaseReleased) -> None:
        record = self.unit_of_work.record_of_lease(message.lease)
        if record is None:
            return  # reported before, or its owner ended it first
        body = record.lease(message.lease)
        if body.node != node:
            raise Conflict(f"lease {message.lease} is not on node {node}", field="lease")
        if message.exit_code is not None:
            self.commands.over(record, body, message.exit_code, message.message)
            return
        if message.ended:
            self.unit_of_work.finish(record, "lost", message.message or "The process has ended.")
            return
        if record.ending and len(record.leases) == 1:
            self.unit_of_work.finish(record, "released", record.ending)
            return
        with self.unit_of_work.transaction() as write:
            if self.unit_of_work.cluster.state(record.id, body.pod) != "releasing":
                self.unit_of_work.cluster.apply(PodEvicted(record.id, body.pod))
            self.unit_of_work.cluster.apply(PodReleased(record.id, body.pod))
            write.lease_ended(body.id, self.unit_of_work.clock())
            self.unit_of_work.cluster.apply(ActivityReported(record.id, UNREPORTED))
            if message.held and body.wanted != "yield":
                self.unit_of_work.evicted(
                    write,
                    record,
                    Evict(record.id, body.pod, spot_of(body), "idle", None, message.message),
                )
            if message.held:
                self.unit_of_work.cluster.apply(WorkloadHeld(record.id, held=True))
        del record.leases[body.pod]
        record.started.pop(body.id, None)
        record.next_time_check = 0
        record.is_held, record.pending_since = (
            message.held,
            None if message.held or record.leases else self.unit_of_work.clock(),
        )
        record.reports.pop(body.id, None)
        self.unit_of_work.publish_change(record)
        self.unit_of_work.wake()

    def send_plan(self, node: str) -> None:
        leases = [
            lease
            for record in self.unit_of_work.records.values()
            for lease in record.leases.values()
            if lease.node == node
        ]
        self.unit_of_work.nodes.send(
            node,
            m.Plan(
                revision=self.unit_of_work.revision,
                rules=self.unit_of_work.nodes.rules(node),
                leases=leases,
            ),
        )

    def check_silent(self, now: int) -> None:
        """Marks nodes whose agents have been silent for too long."""
        for name in self.unit_of_work.nodes.cut_off(now):
            with self.unit_of_work.transaction():
                self.unit_of_work.nodes.not_ready(name, NodeCondition.NETWORK_UNAVAILABLE)
            log.warning(
                "node %s is not ready: the connection to its agent is broken",
                name,
                extra={"node": name},
            )
            self.unit_of_work.wake()
        for name in self.unit_of_work.nodes.overdue(
            now, self.unit_of_work.loaded.admin.agent_grace
        ):
            with self.unit_of_work.transaction():
                self.unit_of_work.nodes.not_ready(name, NodeCondition.AGENT_SILENT)
            log.warning("node %s is not ready: its agent is silent", name, extra={"node": name})
            if self.unit_of_work.loaded.admin.requeue_lost:
                self._requeue(name)
            self.unit_of_work.wake()

    def _requeue(self, node: str) -> None:
        """Leases of a lost node become pending again (only if the policy says so)."""
        for record in list(self.unit_of_work.records.values()):
            for lease in [body for body in record.leases.values() if body.node == node]:
                self.lease_released(
                    node, m.LeaseReleased(lease=lease.id, ended=False, message="The node is lost.")
                )


def _check_devices(report: m.NodeReport) -> None:
    """Planned GPUs are indexes, so devices must be numbered from 0 in order."""
    if [device.index for device in report.devices] != list(range(len(report.devices))):
        raise InvalidInput(
            f"GPUs of node {report.name} must be numbered from 0 in order", field="node.devices"
        )


def _check_usage(row: m.LeaseUsage) -> None:
    for name in REPORTED:
        if not 0 <= getattr(row, name) < LONGEST_USE:
            raise InvalidInput(
                f"{name} of lease {row.lease} is out of range: {getattr(row, name)}",
                field=f"rows.{name}",
            )
