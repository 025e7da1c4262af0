"""The one place that says yes: people's commands, agents' reports and the cycle's decisions, each committed before it is announced.

Holds the cluster, the records and the agents' sessions; knows nothing of HTTP, sockets or tokens. Runs on one thread (an event
loop's); nothing here waits. `clock` gives wall-clock milliseconds; intervals are the loop's business.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from jupyter_gpushare import __version__
from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster import Cluster
from jupyter_gpushare.core.cycle import cycle, what_if
from jupyter_gpushare.core.decisions import Bind, Decisions, Evict, WhatIf
from jupyter_gpushare.core.errors import Conflict, GpuShareError, NotFound
from jupyter_gpushare.core.facts import PodEvicted, PodPlaced, PodReleased, PolicyChanged, WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model import Spot

from .answers import what_if_answer
from .auth import Identity
from .fleet import Fleet, Send
from .policy import LoadedPolicy
from .records import Record, lease_body, view, words
from .requests import Asked, projects_of, read_request
from .snapshot import snapshot
from .store import Store, WorkloadRow, Write
from .tables import node_rows, pool_rows, project_rows, queue_rows

__all__ = ["Service"]

log = logging.getLogger("gpushare.scheduler")


class Announcer(Protocol):
    """Where committed changes are told: the hub of the streams."""

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...


class Service:
    """See the module. Every method raises `GpuShareError` for the caller and then has changed nothing."""

    def __init__(self, store: Store, loaded: LoadedPolicy, hub: Announcer, *, clock: Callable[[], int]) -> None:
        self.store, self.loaded, self.hub, self.clock = store, loaded, hub, clock
        self.cluster = Cluster(loaded.policy)
        self.records: dict[str, Record] = {}
        self.decisions = Decisions((), (), (), {}, {}, ())
        self.policy_problems: list[str] = []
        self.revision = 0
        self.needs_cycle = True
        self._untold: list[tuple[Record, m.Event]] = []
        self.on_change: Callable[[], None] = lambda: None
        self.fleet = Fleet(self.cluster, store, loaded)
        self._remember()

    # -- start ----------------------------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Rebuilds the cluster from the store: what was acknowledged holds, whether its agent is back or not."""
        known = self.store.remembered()
        self.revision = known.revision + 1
        for report in known.nodes:
            self.fleet.remember(report, self.clock())
        for row in known.workloads:
            self._adopt(row).events.extend(known.events.get(row.request.id, []))
        for lease in known.leases:
            self._take_over(lease.body, lease.started_ms)

    def _adopt(self, row: WorkloadRow) -> Record:
        """Takes a remembered workload in by what was decided when it was asked for: the policy may have changed since."""
        pools = [name for name in row.request.node_pools if name in {pool.name for pool in self.loaded.policy.node_pools}]
        changed = {"project": row.project, "priority_class": row.priority, "preemptible": row.preemptible, "node_pools": pools}
        request = replace(row.request, **changed)
        asked = read_request(request, self.loaded.policy, user=row.user, allowed=[row.project], default=None, created=row.created_ms)
        self.cluster.apply(WorkloadSubmitted(asked.workload))
        record = self.records[row.request.id] = Record(row.request, asked.workload, row.user, revision=self.revision)
        return record

    def _take_over(self, body: m.LeaseBody, started: int) -> None:
        record = self.records.get(body.workload)
        if record is None or body.node not in self.cluster.nodes:
            log.error("lease %s of workload %s has lost its workload or node and is dropped", body.id, body.workload)
            with self.store.transaction() as write:
                write.lease_ended(body.id, self.clock())
            return
        spot = Spot(body.node, tuple(body.planned_gpus), body.pool)
        self.cluster.apply(PodPlaced(body.workload, body.pod, spot, started, "running" if body.wanted == "hold" else "releasing"))
        record.leases[body.pod] = body

    # -- people ---------------------------------------------------------------------------------------------------------------------

    def status(self, identity: Identity) -> m.ServiceStatus:
        policy = self.loaded.policy
        mine = projects_of(policy, identity.user, identity.groups)
        default = self.loaded.admin.default_project
        return m.ServiceStatus(
            version=__version__,
            revision=self.revision,
            policy_file=self.loaded.source,
            policy_problems=list(self.policy_problems),
            user=identity.user,
            admin=self._is_admin(identity),
            projects=sorted(mine, key=lambda name: name != default),
            node_pools=[pool.name for pool in policy.node_pools],
            priority_classes=list(policy.priority_classes),
            agents=self.fleet.connected(),
        )

    def submit(self, identity: Identity, request: m.WorkloadRequest) -> m.WorkloadView:
        """Takes a workload in; a second time with the same id and content answers the same."""
        user, groups = identity.acting_for(request.user)
        known = self.records.get(request.id)
        if known is not None:
            if known.request != request or known.user != user:
                raise Conflict(f"workload {request.id} is known with another content", field="id")
            return view(known, self.cluster)
        if self.store.is_ended(request.id):
            raise Conflict(f"workload {request.id} has ended; a new one needs a new id", field="id")
        record = Record(request, self._read(identity, request, user, groups).workload, user)
        with self._all_or_nothing() as write:
            self.cluster.apply(WorkloadSubmitted(record.workload))
            write.submitted(_row(record))
            self._event(write, record, "requested", f"Asked for {words(record)} in project {record.project}.")
        self.records[record.id] = record
        self._changed(record)
        self._wake()
        return view(record, self.cluster)

    def end(self, identity: Identity, id_: str) -> m.Ended:
        """Gives everything back. Idempotent: a workload that has ended before is ended."""
        record = self.records.get(id_)
        if record is None:
            if self.store.is_ended(id_):
                return m.Ended(id=id_)
            raise NotFound(f"there is no workload {id_!r}", field="id")
        self._own(identity, record)
        self._end(record, "released", "Given back.")
        return m.Ended(id=id_)

    def workload(self, identity: Identity, id_: str) -> m.WorkloadView:
        record = self.records.get(id_)
        if record is None or not self._sees(identity, record):
            raise NotFound(f"there is no workload {id_!r}", field="id")
        return view(record, self.cluster)

    def workloads(self, identity: Identity, project: str | None = None, kernel_id: str | None = None) -> m.Workloads:
        return m.Workloads(
            workloads=[
                view(record, self.cluster)
                for record in self.records.values()
                if self._sees(identity, record) and project in (None, record.project) and kernel_id in (None, record.kernel_id)
            ]
        )

    def what_if(self, identity: Identity, request: m.WorkloadRequest) -> m.WhatIfAnswer:
        """Would it start? Runs the same cycle on a mark and rolls it back."""
        user, groups = identity.acting_for(request.user)
        now = self.clock()

        def ask(changed: m.WorkloadRequest) -> WhatIf:
            return what_if(self.cluster, self._read(identity, changed, user, groups).workload, now)

        return what_if_answer(request, ask, self.records, self.fleet, [pool.name for pool in self.loaded.policy.node_pools])

    def _read(self, identity: Identity, request: m.WorkloadRequest, user: str, groups: tuple[str, ...]) -> Asked:
        """An admin may use every project; in what order is still theirs."""
        policy, admin = self.loaded.policy, self.loaded.admin
        allowed = projects_of(policy, user, groups)
        if identity.is_admin:
            allowed += [project.name for project in policy.projects if project.name not in allowed]
        return read_request(request, policy, user=user, allowed=allowed, default=admin.default_project, created=self.clock())

    def queues(self, identity: Identity) -> m.Queues:
        return m.Queues(queues=queue_rows(self.decisions.queues, self._visible_projects(identity)))

    def nodes(self, identity: Identity) -> m.Nodes:
        return m.Nodes(nodes=node_rows(self.cluster, self.fleet, self.records, lambda record: self._sees(identity, record)))

    def pools(self, identity: Identity) -> m.Pools:
        del identity
        return m.Pools(pools=pool_rows(self.loaded.policy, self.cluster, self.records))

    def projects(self, identity: Identity) -> m.Projects:
        mine = set(projects_of(self.loaded.policy, identity.user, identity.groups))
        return m.Projects(projects=project_rows(self.loaded.policy, self.decisions.queues, mine, self._visible_projects(identity)))

    def snapshot(self, identity: Identity) -> dict[str, Any]:
        """The running cluster as a scenario file."""
        identity.must_be_admin()
        return snapshot(self.cluster, self.clock())

    def scheduler_state(self, identity: Identity) -> m.SchedulerState:
        return m.SchedulerState(revision=self.revision, status=self.status(identity), workloads=self.workloads(identity).workloads)

    def may_see(self, identity: Identity, project: str | None, user: str | None) -> bool:
        """Whether a frame about this project and user is for this identity. None: for everybody."""
        return project is None or self._is_admin(identity) or user == identity.user or project in self._visible_projects(identity)

    def _is_admin(self, identity: Identity) -> bool:
        return identity.is_admin or identity.is_server or self.loaded.admin.is_admin(identity.user, tuple(identity.groups))

    def _visible_projects(self, identity: Identity) -> set[str]:
        if self._is_admin(identity):
            return {project.name for project in self.loaded.policy.projects} | {record.project for record in self.records.values()}
        return set(projects_of(self.loaded.policy, identity.user, identity.groups))

    def _sees(self, identity: Identity, record: Record) -> bool:
        return self.may_see(identity, record.project, record.user)

    def _own(self, identity: Identity, record: Record) -> None:
        """Only the owner, their server, or an admin may end a workload; whoever may not see it does not learn that it exists."""
        if self._is_admin(identity) or record.user == identity.user:
            return
        if not self._sees(identity, record):
            raise NotFound(f"there is no workload {record.id!r}", field="id")
        identity.must_be_admin()

    # -- agents ---------------------------------------------------------------------------------------------------------------------

    def agent_hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node is there (again). Its plan is sent; what it holds beyond the plan it will let go."""
        name = hello.node.name
        with self._all_or_nothing() as write:
            self.fleet.join(hello.node)
            write.node(hello.node)
        self.fleet.connect(name, send)
        for report in hello.leases:
            self._reported(report)
        self._send_plan(name)
        self._status_changed()
        self._wake()
        return name

    def agent_gone(self, node: str, send: Send) -> None:
        """The link broke. Its leases are kept; `tick` says when it has been silent for too long."""
        if self.fleet.disconnect(node, send, self.clock()):
            self._status_changed()

    def agent_said(self, node: str, message: m.FromAgent) -> None:
        """One report. A report about a lease that is not (any more) this node's is answered by LeaseUnwanted."""
        match message:
            case m.AgentHello():
                raise Conflict("an agent says hello once", field="type")
            case m.NodeChangedReport(node=report):
                with self._all_or_nothing() as write:
                    self.fleet.join(report)
                    write.node(report)
                self._wake()
            case m.LeaseChanged(report=report):
                if not self._reported(report):
                    self.fleet.send(node, m.LeaseUnwanted(revision=self.revision, lease=report.lease))
            case m.LeaseLetGo(lease=lease):
                self._let_go(node, message)
                self.fleet.send(node, m.LeaseUnwanted(revision=self.revision, lease=lease))
            case m.LeaseEvent(lease=lease, event=event):
                if (record := self._holder(lease)) is not None:
                    with self._all_or_nothing() as write:
                        write.event(record.id, event)
                        self._untold.append((record, event))
            case m.UsageReport(rows=rows):
                with self.store.transaction() as write:
                    for row in rows:
                        if (record := self._holder(row.lease)) is not None:
                            write.used(row, record.project)

    def _holder(self, lease: str) -> Record | None:
        record = self.records.get(lease.rpartition("@")[0])
        return record if record is not None and any(body.id == lease for body in record.leases.values()) else None

    def _reported(self, report: m.LeaseReport) -> bool:
        """False: this lease is not in force."""
        record = self._holder(report.lease)
        if record is None:
            return False
        if record.reports.get(report.lease) != report:
            record.reports[report.lease] = report
            self._changed(record)
        return True

    def _let_go(self, node: str, message: m.LeaseLetGo) -> None:
        record = self._holder(message.lease)
        if record is None:
            return  # it was told before, or its owner was quicker
        body = next(lease for lease in record.leases.values() if lease.id == message.lease)
        if body.node != node:
            raise Conflict(f"lease {message.lease} is not on node {node}", field="lease")
        if message.ended:
            self._end(record, "lost", message.message or "Its process is gone.")
            return
        with self._all_or_nothing() as write:
            if self.cluster.state(record.id, body.pod) != "releasing":
                self.cluster.apply(PodEvicted(record.id, body.pod))
            self.cluster.apply(PodReleased(record.id, body.pod))
            write.lease_ended(body.id, self.clock())
        del record.leases[body.pod]
        record.reports.pop(body.id, None)
        self._changed(record)
        self._wake()

    def _send_plan(self, node: str) -> None:
        leases = [lease for record in self.records.values() for lease in record.leases.values() if lease.node == node]
        self.fleet.send(node, m.Plan(revision=self.revision, rules=self.fleet.rules(node), leases=leases))

    # -- the cycle ------------------------------------------------------------------------------------------------------------------

    def run_cycle(self) -> Decisions:
        """One cycle: decisions in one transaction, then announced. A commit that fails leaves everything as it was."""
        now = self.clock()
        self.needs_cycle = False
        given: list[tuple[Record, m.LeaseBody]] = []
        try:
            with self._all_or_nothing(always=False) as write:
                decisions = cycle(self.cluster, now)
                given += [self._grant(write, bind, now) for bind in decisions.binds]
                given += [pair for evict in decisions.evictions if (pair := self._evict(write, evict, now)) is not None]
        except GpuShareError:
            self.needs_cycle = True
            raise
        self.decisions = decisions
        for record, lease in given:
            record.leases[lease.pod] = lease
            self.fleet.send(lease.node, m.LeaseWanted(revision=self.revision, lease=lease))
        self._explain(decisions, {record.id for record, _ in given})
        return decisions

    def _grant(self, write: Write, bind: Bind, now: int) -> tuple[Record, m.LeaseBody]:
        record = self.records[bind.workload]
        node = self.fleet.report(bind.spot.node)
        id_ = f"{record.id}@{uuid.uuid4().hex[:8]}"
        lease = lease_body(record, bind.pod, id_=id_, node=node, pool=bind.spot.pool, devices=bind.spot.devices)
        write.lease(lease, now)
        self._event(write, record, "granted", f"Granted {words(record)} on {node.name}.")
        return record, lease

    def _evict(self, write: Write, evict: Evict, now: int) -> tuple[Record, m.LeaseBody] | None:
        record = self.records[evict.workload]
        lease = record.leases.get(evict.pod)
        if lease is None:
            return None
        wanted = replace(lease, wanted="evict", message=evict.message, notice_ms=self.loaded.admin.notice)
        write.lease(wanted, now)
        self._event(write, record, "evicted", evict.message)
        return record, wanted

    def _explain(self, decisions: Decisions, touched: set[str]) -> None:
        """Gives every waiting record its reason and place; announces those that changed."""
        for record in list(self.records.values()):
            reason, position = decisions.reasons.get(record.id), decisions.positions.get(record.id)
            if record.id in touched or record.reason != reason or record.position != position:
                record.reason, record.position = reason, position
                self._changed(record)

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something: somebody waits."""
        return any(record.reason is not None for record in self.records.values())

    def tick(self, now: int) -> None:
        """What the passing of time changes: agents that are silent for too long."""
        for name in self.fleet.overdue(now, self.loaded.admin.agent_grace):
            with self._all_or_nothing():
                self.fleet.not_ready(name, "agent silent")
            log.warning("node %s is not ready: its agent is silent", name)
            if self.loaded.admin.requeue_lost:
                self._requeue(name)
            self._wake()

    def _requeue(self, node: str) -> None:
        """Leases of a lost node ask again elsewhere (only when the policy says so)."""
        for record in list(self.records.values()):
            for lease in [body for body in record.leases.values() if body.node == node]:
                self._let_go(node, m.LeaseLetGo(lease=lease.id, ended=False, message="Its node is lost."))

    # -- policy ---------------------------------------------------------------------------------------------------------------------

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """A new policy is in force as a whole."""
        with self._all_or_nothing():
            self.cluster.apply(PolicyChanged(loaded.policy))
            self.fleet.use_policy(loaded)
        self.loaded, self.policy_problems = loaded, []
        for node in self.fleet.connected():
            self._send_plan(node)
        self._status_changed()
        self._wake()

    def refuse_policy(self, problems: list[str]) -> None:
        """The file was refused: the old policy stays in force, and the status says what is wrong."""
        if problems != self.policy_problems:
            self.policy_problems = problems
            self._status_changed()

    # -- committing and announcing --------------------------------------------------------------------------------------------------

    @contextmanager
    def _all_or_nothing(self, *, always: bool = True) -> Iterator[Write]:
        """Cluster and store change together or not at all. `always` False: a block that wrote nothing commits nothing."""
        mark = self.cluster.checkpoint()
        try:
            with self.store.transaction() as write:
                yield write
                if always or write.wrote:
                    write.revision(self.revision + 1)
        except BaseException:
            self.cluster.rollback(mark)
            self._untold.clear()
            raise
        self.cluster.forget(mark)
        self.revision += 1
        untold, self._untold = self._untold, []
        for record, event in untold:
            self._tell_event(record, event)

    def _end(self, record: Record, kind: m.EventKind, message: str) -> None:
        with self._all_or_nothing() as write:
            self.cluster.apply(WorkloadEnded(record.id))
            self._event(write, record, kind, message)
            write.ended(record.id, self.clock(), message)
        del self.records[record.id]
        for lease in record.leases.values():
            self.fleet.send(lease.node, m.LeaseUnwanted(revision=self.revision, lease=lease.id))
        gone = m.WorkloadGone(revision=self.revision, id=record.id, kernel_id=record.kernel_id, message=message)
        self.hub.publish(gone, record.project, record.user)
        self._wake()

    def _event(self, write: Write, record: Record, kind: m.EventKind, message: str) -> None:
        event = m.Event(time=m.stamp(self.clock()), kind=kind, message=message)
        write.event(record.id, event)
        self._untold.append((record, event))

    def _tell_event(self, record: Record, event: m.Event) -> None:
        record.events.append(event)
        frame = m.WorkloadEvent(revision=self.revision, id=record.id, kernel_id=record.kernel_id, event=event)
        self.hub.publish(frame, record.project, record.user)

    def _changed(self, record: Record) -> None:
        self.revision += 1
        record.revision = self.revision
        self.hub.publish(m.WorkloadChanged(revision=self.revision, workload=view(record, self.cluster)), record.project, record.user)

    def _status_changed(self) -> None:
        self.revision += 1
        self.hub.publish(m.ServiceChanged(revision=self.revision, status=self.status(Identity.nobody())), None, None)

    def _wake(self) -> None:
        self.needs_cycle = True
        self.on_change()


def _row(record: Record) -> WorkloadRow:
    workload = record.workload
    return WorkloadRow(record.request, record.user, record.project, workload.priority, workload.preemptible, workload.created)
