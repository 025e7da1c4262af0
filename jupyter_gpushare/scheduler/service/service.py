"""The one place that says yes: people's commands and the cycle's decisions, each committed before
it is announced.

Knows nothing of HTTP, sockets or tokens. Runs on one thread (an event loop's); nothing here waits.
`clock` gives wall-clock milliseconds; intervals are the loop's business. What agents say is in
`reports`, how things are committed in `unit_of_work`, what people are shown in `shown`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.decisions import Bind, Decisions, Evict, WhatIf
from jupyter_gpushare.core.model.errors import (
    Conflict,
    GpuShareError,
    NotAllowed,
    NotFound,
    Unavailable,
)
from jupyter_gpushare.core.model.events import PolicyChanged, WorkloadSubmitted

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..policy.policy_file import LoadedPolicy
from ..state.admission import (
    AdmittedRequest,
    check_names,
    numbered,
    pools_tried,
    projects_of,
    read_request,
)
from ..state.audit import audit
from ..state.nodes import Send
from ..state.unit_of_work import ChangeListener, UnitOfWork
from ..state.workload_records import WorkloadRecord, lease_body, words
from ..store.store import Store, StoreTransaction, WorkloadRow
from .cordon import Cordons
from .metering import UsageMeter
from .pending_status import PendingStatus
from .policy_preview import PolicyPreview, lines_of
from .queries import Queries
from .reports import AgentReports
from .wait_estimates import WaitEstimates
from .what_if import what_if_answer

__all__ = ["SchedulerService"]

LEASES_PER_TICK: Final = 300
"""Whose usage is written at once: a thousand together would hold up a grant for as long as a grant
takes.
"""


class SchedulerService(UnitOfWork):
    """See the module. Every method raises `GpuShareError` for the caller and then has changed
    nothing.
    """

    def __init__(
        self, store: Store, loaded: LoadedPolicy, hub: ChangeListener, *, clock: Callable[[], int]
    ) -> None:
        super().__init__(store, loaded, hub, clock)
        self.status_of_nobody = lambda: self.queries.status(Identity.nobody())
        self.reports = AgentReports(self)
        self.policy_preview = PolicyPreview(self)
        self.cordons = Cordons(self)
        self.wait_estimates = WaitEstimates(self)
        self.pending_status = PendingStatus(self, self.wait_estimates)
        self.visibility = Authorization(lambda: self.loaded)
        self.meter = UsageMeter(store)
        self.queries = Queries(
            self,
            self.visibility,
            self.pending_status,
            self.policy_preview,
            self.reports.write_usage,
        )

    # -- people's commands --

    def submit(self, identity: Identity, request: m.WorkloadRequest) -> m.WorkloadView:
        """Takes a workload in; a second time with the same id and content answers the same."""
        request = numbered(request)
        user, groups = self.visibility.promoted(identity).acting_for(request.user)
        known = self.records.get(request.id)
        if known is not None:
            if (
                replace(known.request, name=request.name) != request or known.user != user
            ):  # it may have been renamed since
                raise Conflict(f"workload {request.id} is known with another content", field="id")
            return self.pending_status.view(known)
        if self.store.is_ended(request.id):
            raise Conflict(f"workload {request.id} has ended; a new one needs a new id", field="id")
        record = WorkloadRecord(request, self._read(identity, request, user, groups).workload, user)
        with self.transaction() as write:
            self.cluster.apply(WorkloadSubmitted(record.workload))
            write.submitted(_row(record))
            self.event(
                write,
                record,
                "requested",
                f"Asked for {words(record)} in project {record.project}.",
            )
        record.waits_since = record.workload.created
        self.records[record.id] = record
        self.changed(record)
        self.wake()
        return self.pending_status.view(record)

    def end(self, identity: Identity, id_: str) -> m.Ended:
        """Gives everything back. Idempotent: a workload that has ended before is ended."""
        record = self.records.get(id_)
        if record is None:
            if self.store.is_ended(id_):
                return m.Ended(id=id_)
            raise NotFound(f"there is no workload {id_!r}", field="id")
        self._may_end(identity, record, "id")
        self.finish(
            record,
            "released",
            "Given back." if record.leases else "Stopped waiting.",
            by=identity.user,
        )
        return m.Ended(id=id_)

    def rename(self, identity: Identity, id_: str, body: m.WorkloadName) -> m.WorkloadView:
        """What its owner calls it from now on, everywhere where it is named. Idempotent."""
        record = self.records.get(id_)
        if record is None:
            raise NotFound(f"there is no workload {id_!r}", field="id")
        self._may_end(identity, record, "id", "rename")
        request = replace(record.request, name=body.name)
        check_names(request)
        if body.name != record.request.name:
            leases = [replace(lease, name=body.name) for lease in record.leases.values()]
            with self.transaction() as write:
                write.renamed(request)
                for lease in leases:
                    write.lease(lease, record.started.get(lease.id, self.clock()))
            record.request = request
            self.say(record, leases)
        return self.visibility.shown(identity, self.pending_status.view(record))

    def _may_end(
        self,
        identity: Identity,
        record: WorkloadRecord,
        field: str,
        route: Literal["end", "rename"] = "end",
    ) -> None:
        """Raises NotFound, NotAllowed."""
        if not self.queries.sees(identity, record):
            raise NotFound(f"there is no workload {record.id!r}", field=field)
        if not self.visibility.reaches(identity, route, record.project, record.user):
            raise NotAllowed(
                f"workload {record.id!r} is {record.user!r}'s: only they or an admin may {route} it",
                field=field,
            )

    def what_if(
        self, identity: Identity, request: m.WorkloadRequest, instead_of: str | None = None
    ) -> m.WhatIfAnswer:
        """Would it start? Runs the same cycle on a mark and rolls it back. `instead_of`: a workload
        of the caller's that gives its place up.
        """
        if instead_of is not None and instead_of in self.records:
            self._may_end(identity, self.records[instead_of], "instead_of")
        user, groups = self.visibility.promoted(identity).acting_for(request.user)
        now = self.clock()

        def ask(changed: m.WorkloadRequest) -> WhatIf:
            return what_if(
                self.cluster, self._read(identity, changed, user, groups).workload, now, instead_of
            )

        asked, policy = self._read(identity, request, user, groups).workload, self.loaded.policy
        others = [
            pool.name for pool in policy.node_pools if pool.name not in pools_tried(asked, policy)
        ]
        return what_if_answer(
            request,
            ask,
            self.records,
            self.fleet,
            others,
            lambda found: self.wait_estimates.would(asked, found),
        )

    def _read(
        self, identity: Identity, request: m.WorkloadRequest, user: str, groups: tuple[str, ...]
    ) -> AdmittedRequest:
        allowed = projects_of(self.loaded.policy, user, groups)
        if self.visibility.is_admin(identity):
            allowed += [
                project.name
                for project in self.loaded.policy.projects
                if project.name not in allowed
            ]
        default, created = self.loaded.admin.default_project, self.clock()
        return read_request(
            request,
            self.loaded.policy,
            user=user,
            allowed=allowed,
            default=default,
            created=created,
        )

    # -- agents --

    def agent_hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node is there (again); `send` takes what its agent is to be told. Gives the node's
        name.
        """
        return self.reports.hello(hello, send)

    def agent_said(self, node: str, message: m.FromAgent) -> None:
        """One report."""
        self.reports.said(node, message)

    def agent_gone(self, node: str, send: Send) -> None:
        """The link broke."""
        self.reports.gone(node, send)

    # -- the cycle --

    def run_cycle(self, done: Callable[[str], None] = lambda _action: None) -> Decisions:
        """One cycle: decisions in one transaction, then announced. A commit that fails leaves
        everything as it was.

        `done` hears of each action of the cycle when it is over.
        """
        now = self.clock()
        self.needs_cycle = False
        given: list[tuple[WorkloadRecord, m.LeaseBody]] = []
        try:
            with self.transaction(always=False) as write:
                decisions = cycle(self.cluster, now, done)
                given += [self._grant(write, bind, now) for bind in decisions.binds]
                given += [
                    pair
                    for evict in decisions.evictions
                    if (pair := self._evict(write, evict, now)) is not None
                ]
        except GpuShareError:
            self.needs_cycle = True
            raise
        self.decisions = decisions
        for record, lease in given:
            record.leases[lease.pod] = lease
            if lease.id not in record.started:
                self.wait_estimates.over(record, granted=True, pool=lease.pool)
                record.started[lease.id], record.waits_since, record.look_at = now, None, 0
            self.fleet.send(lease.node, m.LeaseUpdated(revision=self.revision, lease=lease))
        self.pending_status.explain(decisions, {record.id for record, _ in given})
        return decisions

    def _grant(
        self, write: StoreTransaction, bind: Bind, now: int
    ) -> tuple[WorkloadRecord, m.LeaseBody]:
        record = self.records[bind.workload]
        node = self.fleet.report(bind.spot.node)
        id_ = f"{record.id}@{uuid.uuid4().hex[:8]}"
        pool, rules = bind.spot.pool, self.loaded.rules.lease_rules(record.project, bind.spot.pool)
        lease = lease_body(
            record, bind.pod, id_=id_, node=node, pool=pool, devices=bind.spot.devices, rules=rules
        )
        write.lease(lease, now)
        self.event(write, record, "granted", f"Granted {words(record)} on {node.name}.")
        return record, lease

    def _evict(
        self, write: StoreTransaction, evict: Evict, now: int
    ) -> tuple[WorkloadRecord, m.LeaseBody] | None:
        record = self.records[evict.workload]
        lease = record.leases.get(evict.pod)
        if lease is None:
            return None
        wanted = replace(
            lease, wanted="evict", message=evict.message, notice_ms=self.loaded.admin.notice
        )
        write.lease(wanted, now)
        self.event(write, record, "evicted", evict.message)
        self.evicted(write, record, evict)
        return record, wanted

    def evicted(self, write: StoreTransaction, record: WorkloadRecord, evict: Evict) -> None:
        """Also: by when its place is free."""
        super().evicted(write, record, evict)
        self.wait_estimates.evicting(evict, self.loaded.admin.notice)

    def finish(
        self,
        record: WorkloadRecord,
        kind: m.EventKind,
        message: str,
        *,
        reason: m.ReasonBody | None = None,
        by: str = "",
    ) -> None:
        """Also: a wait that is over without a grant."""
        super().finish(record, kind, message, reason=reason, by=by)
        self.wait_estimates.over(record, granted=False)

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something: somebody waits."""
        return bool(self.decisions.reasons)

    def tick(self, now: int) -> None:
        """What the passing of time changes: agents that are silent for too long, and what queues
        have held lately.
        """
        self.history.sample(now, self.decisions.queues)
        with suppress(Unavailable):  # what is over now is so at the next tick as well
            self.reports.time_limits.tick(now)
            self.cordons.tick()
            self.wait_estimates.tick(now)
        with suppress(Unavailable):  # kept, and tried again at the next tick
            self.reports.write_usage(LEASES_PER_TICK)
        self.reports.silent(now)
        if facts := self.meter.measure(self.cluster, now):
            for fact in facts:
                self.cluster.apply(fact)
            self.needs_cycle = True

    # -- policy --

    def check_policy(self, body: m.PolicyText) -> m.PolicyCheck:
        """What a policy file would change, and for whom; changes nothing."""
        return self.policy_preview.check(body)

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """A new policy is in force as a whole, or the old one as it was."""
        check = self.policy_preview.compare(loaded)
        try:
            with self.transaction() as write:
                self.cluster.apply(PolicyChanged(loaded.policy))
                self.fleet.use_policy(loaded)
                if check.changes:
                    audit(
                        write,
                        self.clock(),
                        "policy file",
                        "policy",
                        loaded.source,
                        "; ".join(lines_of(check)),
                    )
        except BaseException:
            self.fleet.loaded = self.loaded
            raise
        self.loaded, self.policy_problems = loaded, []
        self.reports.time_limits.use_rules()
        self.policy_preview.taken(check)
        for node in self.fleet.connected():
            self.reports.send_plan(node)
        self.status_changed()
        self.wake()

    def refuse_policy(self, problems: list[str]) -> None:
        """The file was refused: the old policy stays in force, and the status says what is wrong."""
        if problems != self.policy_problems:
            self.policy_problems = problems
            self.status_changed()


def _row(record: WorkloadRecord) -> WorkloadRow:
    workload = record.workload
    return WorkloadRow(
        record.request,
        record.user,
        record.project,
        workload.priority,
        workload.preemptible,
        workload.created,
    )
