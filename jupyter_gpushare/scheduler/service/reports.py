"""What agents report, and what they are sent: leases that changed, let go or ended; nodes that
came, changed or fell silent.
"""

from __future__ import annotations

import logging
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.decisions import Evict
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput
from jupyter_gpushare.core.model.events import PodEvicted, PodReleased, WorkloadHeld
from jupyter_gpushare.core.model.node_conditions import NodeCondition

from ..state.nodes import Send
from ..state.unit_of_work import UnitOfWork
from ..state.usage import REPORTED, UsageAccounting
from ..state.workload_records import WorkloadRecord, spot_of
from .batch import BatchCommands
from .time_limits import TimeLimits

__all__ = ["AgentReports"]

log = logging.getLogger("gpushare.scheduler")
LONGEST_USE: Final = 1 << 53
"""More ms, or MiB times ms, than anybody used since the last report (eight whole H200 for three
months, which is how long a scheduler may be away): a number that cannot be true would spoil the
sums for ever.
"""


class AgentReports:
    """The agents' side of the service, on one ledger."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self.time_limits = TimeLimits(unit_of_work)
        self.commands = BatchCommands(unit_of_work)
        self.accounts = UsageAccounting(unit_of_work.store)

    def hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node is there (again). Its plan is sent; what it holds beyond the plan it will let go."""
        name = hello.node.name
        _check_devices(hello.node)
        with self.unit_of_work.transaction() as write:
            self.unit_of_work.fleet.join(hello.node)
            write.node(hello.node)
        self.unit_of_work.fleet.connect(name, send)
        for report in hello.leases:
            self._reported(name, report)
        self.send_plan(name)
        self.unit_of_work.status_changed()
        self.unit_of_work.wake()
        return name

    def gone(self, node: str, send: Send) -> None:
        """The link broke. Its leases are kept; `tick` says when it has been silent for too long."""
        if self.unit_of_work.fleet.disconnect(node, send, self.unit_of_work.clock()):
            self.unit_of_work.status_changed()

    def said(self, node: str, message: m.FromAgent) -> None:
        """One report. A report about a lease that is not (any more) this node's is answered by
        LeaseUnwanted.

        Raises:
            Conflict: it speaks for another node.
            InvalidInput: its numbers cannot be true.
        """
        match message:
            case m.AgentHello():
                raise Conflict("an agent says hello once", field="type")
            case m.NodeChangedReport(node=report):
                if report.name != node:
                    raise Conflict(
                        f"this link speaks for node {node}, not for {report.name}",
                        field="node.name",
                    )
                _check_devices(report)
                if self.unit_of_work.fleet.refresh(report):
                    return
                with self.unit_of_work.transaction() as write:
                    self.unit_of_work.fleet.join(report)
                    write.node(report)
                self.unit_of_work.wake()
            case m.LeaseChanged(report=report):
                if not self._reported(node, report):
                    self.unit_of_work.fleet.send(
                        node,
                        m.LeaseRevoked(revision=self.unit_of_work.revision, lease=report.lease),
                    )
            case m.LeaseReleased(lease=lease):
                self.let_go(node, message)
                self.unit_of_work.fleet.send(
                    node, m.LeaseRevoked(revision=self.unit_of_work.revision, lease=lease)
                )
            case m.LeaseEvent(lease=lease, event=event):
                if (record := self._holder(node, lease)) is not None:
                    with self.unit_of_work.transaction() as write:
                        write.event(record.id, event)
                        self.unit_of_work.pending_events.append((record, event))
            case m.LogChunk(lease=lease):
                if (record := self._holder(node, lease)) is not None:
                    self.commands.printed(node, record, record.lease(lease), message)
            case m.WorkloadRequeued(workload=workload):
                self.time_limits.ask_again(node, workload)
            case m.UsageReport():
                self._used(node, message)

    def _used(self, node: str, report: m.UsageReport) -> None:
        """Adds reports up until `write_usage`: two hundred agents report all the time, and a commit
        for each would hold up the grants.
        """
        for row in report.rows:
            _check_usage(row)
        if self.accounts.is_written(node, report):  # the answer was lost on its way
            self.unit_of_work.fleet.send(
                node, m.UsageAcknowledged(life=report.life, number=report.number)
            )
        else:
            self.accounts.add(node, report, self._whose(node, report.rows), self._device_mib(node))

    def _whose(self, node: str, rows: list[m.LeaseUsage]) -> dict[str, tuple[m.LeaseBody, str]]:
        """The leases on this node that the rows speak of, and their users: also those that ended
        before this was heard.
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
        """Writes down what was reported of so many leases (None: of all), and tells the agents that
        it is. Raises StoreUnavailable; then it is kept for the next time.
        """
        for node, taken in self.accounts.write(self.unit_of_work.clock(), most):
            self.unit_of_work.fleet.send(node, taken)

    def _device_mib(self, node: str) -> int:
        """The GPUs of a node are alike, or else the smallest speaks for them, as in quotas."""
        return min(
            (device.total_mib for device in self.unit_of_work.fleet.report(node).devices), default=0
        )

    def _holder(self, node: str, lease: str) -> WorkloadRecord | None:
        """Who holds this lease on this node; None: nobody, and what another node holds is not this
        agent's to speak of.
        """
        record = self.unit_of_work.holder(lease)
        here = record is not None and any(
            body.id == lease and body.node == node for body in record.leases.values()
        )
        return record if here else None

    def _reported(self, node: str, report: m.LeaseReport) -> bool:
        """False: this lease is not in force on this node."""
        record = self._holder(node, report.lease)
        if record is None:
            return False
        if record.reports.get(report.lease) != report:
            record.reports[report.lease] = report
            self.unit_of_work.changed(record)
        return True

    def let_go(self, node: str, message: m.LeaseReleased) -> None:
        record = self.unit_of_work.holder(message.lease)
        if record is None:
            return  # it was told before, or its owner was quicker
        body = record.lease(message.lease)
        if body.node != node:
            raise Conflict(f"lease {message.lease} is not on node {node}", field="lease")
        if message.exit_code is not None:
            self.commands.over(record, body, message.exit_code, message.message)
            return
        if message.ended:
            self.unit_of_work.finish(record, "lost", message.message or "Its process is gone.")
            return
        if record.ending and len(record.leases) == 1:
            self.unit_of_work.finish(record, "released", record.ending)
            return
        with self.unit_of_work.transaction() as write:
            if self.unit_of_work.cluster.state(record.id, body.pod) != "releasing":
                self.unit_of_work.cluster.apply(PodEvicted(record.id, body.pod))
            self.unit_of_work.cluster.apply(PodReleased(record.id, body.pod))
            write.lease_ended(body.id, self.unit_of_work.clock())
            if message.held:
                self.unit_of_work.evicted(
                    write,
                    record,
                    Evict(record.id, body.pod, spot_of(body), "idle", None, message.message),
                )
                self.unit_of_work.cluster.apply(WorkloadHeld(record.id, held=True))
        del record.leases[body.pod]
        record.started.pop(body.id, None)
        record.look_at = 0
        record.rests, record.waits_since = (
            message.held,
            None if message.held or record.leases else self.unit_of_work.clock(),
        )
        record.reports.pop(body.id, None)
        self.unit_of_work.changed(record)
        self.unit_of_work.wake()

    def send_plan(self, node: str) -> None:
        leases = [
            lease
            for record in self.unit_of_work.records.values()
            for lease in record.leases.values()
            if lease.node == node
        ]
        self.unit_of_work.fleet.send(
            node,
            m.Plan(
                revision=self.unit_of_work.revision,
                rules=self.unit_of_work.fleet.rules(node),
                leases=leases,
            ),
        )

    def silent(self, now: int) -> None:
        """What the passing of time changes: agents that are silent for too long."""
        for name in self.unit_of_work.fleet.cut_off(now):
            with self.unit_of_work.transaction():
                self.unit_of_work.fleet.not_ready(name, NodeCondition.NETWORK_UNAVAILABLE)
            log.warning(
                "node %s is not ready: the link to its agent is broken", name, extra={"node": name}
            )
            self.unit_of_work.wake()
        for name in self.unit_of_work.fleet.overdue(
            now, self.unit_of_work.loaded.admin.agent_grace
        ):
            with self.unit_of_work.transaction():
                self.unit_of_work.fleet.not_ready(name, NodeCondition.AGENT_SILENT)
            log.warning("node %s is not ready: its agent is silent", name, extra={"node": name})
            if self.unit_of_work.loaded.admin.requeue_lost:
                self._requeue(name)
            self.unit_of_work.wake()

    def _requeue(self, node: str) -> None:
        """Leases of a lost node ask again elsewhere (only when the policy says so)."""
        for record in list(self.unit_of_work.records.values()):
            for lease in [body for body in record.leases.values() if body.node == node]:
                self.let_go(
                    node, m.LeaseReleased(lease=lease.id, ended=False, message="Its node is lost.")
                )


def _check_devices(report: m.NodeReport) -> None:
    """A planned GPU is named by its index, so the devices must be numbered from 0 and in order."""
    if [device.index for device in report.devices] != list(range(len(report.devices))):
        raise InvalidInput(
            f"the GPUs of node {report.name} are not numbered from 0 in order", field="node.devices"
        )


def _check_usage(row: m.LeaseUsage) -> None:
    for name in REPORTED:
        if not 0 <= getattr(row, name) < LONGEST_USE:
            raise InvalidInput(
                f"{name} of lease {row.lease} cannot be {getattr(row, name)}", field=f"rows.{name}"
            )
