"""The scheduler service: users' commands, agents' messages and cycles. Every change is committed
before it is announced.

Knows nothing of HTTP, sockets or tokens. Runs on one thread (an event loop's) and never blocks.
`clock` gives wall-clock milliseconds; `loop` decides when cycles and ticks run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cycle.cycle import what_if
from jupyter_gpushare.core.model.decisions import Decisions, WhatIf
from jupyter_gpushare.core.model.errors import Conflict, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.core.model.events import PolicyChanged, WorkloadHeld, WorkloadSubmitted

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..policy.policy_file import LoadedPolicy
from ..state.admission import (
    AdmittedRequest,
    check_names,
    check_units,
    numbered,
    pools_tried,
    projects_of,
    read_request,
)
from ..state.audit import audit
from ..state.nodes import Send
from ..state.request_limits import check_limits
from ..state.restore import restore
from ..state.unit_of_work import ChangeListener, UnitOfWork
from ..state.workload_records import WorkloadRecord, reason_of, request_text
from ..store.store import Store, WorkloadRow
from .cordon import Cordons
from .cycles import CycleRunner
from .feasibility import Feasibility
from .metering import UsageMeter
from .pending_status import PendingStatus
from .policy_preview import PolicyPreview, lines_of
from .queries import Queries
from .reports import AgentReports
from .wait_estimates import WaitEstimates
from .what_if import what_if_answer

__all__ = ["SchedulerService"]

LEASES_PER_TICK: Final = 300
"""Leases whose usage is written at once: a thousand would delay a grant for as long as a grant
takes.
"""


class SchedulerService:
    """Every method raises `GpuShareError` for the caller and then has changed nothing."""

    def __init__(
        self,
        store: Store,
        loaded: LoadedPolicy,
        listener: ChangeListener,
        *,
        clock: Callable[[], int],
    ) -> None:
        self.unit_of_work = unit_of_work = UnitOfWork(store, loaded, listener, clock)
        restore(unit_of_work)
        unit_of_work.public_status = lambda: self.queries.status(Identity.nobody())
        self.reports = AgentReports(unit_of_work)
        self.policy_preview = PolicyPreview(unit_of_work)
        self.cordons = Cordons(unit_of_work)
        self.feasibility = Feasibility(unit_of_work)
        self.wait_estimates = WaitEstimates(unit_of_work)
        self.pending_status = PendingStatus(unit_of_work, self.wait_estimates)
        self.cycles = CycleRunner(unit_of_work, self.pending_status, self.wait_estimates)
        self.visibility = Authorization(lambda: unit_of_work.loaded)
        self.meter = UsageMeter(store)
        self.queries = Queries(
            unit_of_work,
            self.visibility,
            self.pending_status,
            self.policy_preview,
            self.reports.write_usage,
        )

    # -- users' commands --

    def submit(self, identity: Identity, request: m.WorkloadRequest) -> m.WorkloadView:
        """Adds a workload. Repeating a request (same id and content) returns the same workload."""
        request = numbered(request)
        user, groups = self.visibility.promoted(identity).acting_for(request.user)
        known = self.unit_of_work.records.get(request.id)
        if self._is_anothers(request.id, user):
            # Neither that it is in use nor its state or content: ids are chosen by clients, so a
            # used one cannot be distinguished from others in any other way.
            raise Conflict("this id cannot be used: choose another one", field="id")
        if known is not None:
            if not _is_repeated(known, request, user):
                raise Conflict(f"workload {request.id} exists with different content", field="id")
            return self.pending_status.view(known)
        if self.unit_of_work.store.is_ended(request.id):
            raise Conflict(f"workload {request.id} has ended: use a new id", field="id")
        admitted = self._read(identity, request, user, groups)
        self._check_kernel(request, user)
        old, superseded = self._replaced(identity, request, user)
        self.feasibility.check(admitted)
        request = replace(request, replaces=None if old is None else old.id)
        record = WorkloadRecord(request, admitted.workload, user)
        self._insert(record, old, superseded)
        return self.pending_status.view(record)

    def _is_anothers(self, id_: str, user: str) -> bool:
        """Whether a workload of another user has, or had, this id."""
        known, store = self.unit_of_work.records.get(id_), self.unit_of_work.store
        if known is not None:
            return known.user != user
        return store.is_ended(id_) and not store.is_ended(id_, user)

    def _check_kernel(self, request: m.WorkloadRequest, user: str) -> None:
        """Raises NotAllowed: the kernel belongs to another user."""
        kernel_id = request.kernel_id
        if kernel_id is not None and not self.unit_of_work.kernel_owners.may_claim(kernel_id, user):
            raise NotAllowed(f"kernel {kernel_id!r} does not belong to {user!r}", field="kernel_id")

    def _insert(
        self, record: WorkloadRecord, old: WorkloadRecord | None, superseded: list[WorkloadRecord]
    ) -> None:
        unit_of_work, text = self.unit_of_work, f"Replaced by a request for {request_text(record)}."
        with unit_of_work.transaction() as write:
            for one in superseded:
                unit_of_work.end_workload(write, one, "released", text, by=record.user)
            unit_of_work.cluster.apply(WorkloadSubmitted(record.workload))
            if old is not None:
                unit_of_work.cluster.apply(WorkloadHeld(record.id, held=True))
            write.submitted(_row(record))
            unit_of_work.event(write, record, "requested", _requested_text(record, old))
        record.pending_since = record.workload.created
        unit_of_work.insert(record)
        for one in superseded:
            unit_of_work.workload_ended(one, text)
        if old is not None:
            unit_of_work.replacements[old.id] = record.id
        unit_of_work.publish_change(record)
        unit_of_work.wake()

    def _replaced(
        self, identity: Identity, request: m.WorkloadRequest, user: str
    ) -> tuple[WorkloadRecord | None, list[WorkloadRecord]]:
        """The workload with GPUs that the request replaces when it is granted, and pending ones
        that it replaces at once: only the latest request for a place counts.

        Raises NotFound, NotAllowed.
        """
        if request.replaces is None:
            return None, []
        named = self.unit_of_work.records.get(request.replaces)
        if named is None and self.unit_of_work.store.is_ended(request.replaces, user):
            return None, []
        if named is None or named.user != user:
            raise NotFound(f"unknown workload {request.replaces!r}", field="replaces")
        self._may_end(identity, named, "replaces")
        old = named if named.leases else self.unit_of_work.replaces(named)
        superseded = [] if named.leases else [named]
        for one in (named, old):
            earlier = None if one is None else self.unit_of_work.replacements.get(one.id)
            if earlier is not None and self.unit_of_work.records[earlier] not in superseded:
                superseded.append(self.unit_of_work.records[earlier])
        return old, superseded

    def end(self, identity: Identity, id_: str) -> m.Ended:
        """Ends a workload and releases its GPUs. Idempotent."""
        record = self.unit_of_work.records.get(id_)
        if record is None:
            if self.unit_of_work.store.is_ended(id_):
                return m.Ended(id=id_)
            raise NotFound(f"unknown workload {id_!r}", field="id")
        self._may_end(identity, record, "id")
        self.unit_of_work.finish(
            record, "released", "Released." if record.leases else "Cancelled.", by=identity.user
        )
        return m.Ended(id=id_)

    def rename(self, identity: Identity, id_: str, body: m.WorkloadName) -> m.WorkloadView:
        """Changes a workload's name wherever it is displayed. Idempotent."""
        record = self.unit_of_work.records.get(id_)
        if record is None:
            raise NotFound(f"unknown workload {id_!r}", field="id")
        self._may_end(identity, record, "id", "rename")
        request = replace(record.request, name=body.name)
        check_names(request)
        if body.name != record.request.name:
            leases = [replace(lease, name=body.name) for lease in record.leases.values()]
            with self.unit_of_work.transaction() as write:
                write.renamed(request)
                for lease in leases:
                    write.lease(lease, record.started.get(lease.id, self.unit_of_work.clock()))
            record.request = request
            self.unit_of_work.publish_leases(record, leases)
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
            raise NotFound(f"unknown workload {record.id!r}", field=field)
        if not self.visibility.reaches(identity, route, record.project, record.user):
            raise NotAllowed(
                f"only {record.user!r} or an admin may {route} workload {record.id!r}", field=field
            )

    def what_if(
        self, identity: Identity, request: m.WorkloadRequest, instead_of: str | None = None
    ) -> m.WhatIfAnswer:
        """Whether it would start: runs a cycle and undoes it. `instead_of`: a workload of the
        caller that would end.
        """
        if instead_of is not None and instead_of in self.unit_of_work.records:
            self._may_end(identity, self.unit_of_work.records[instead_of], "instead_of")
        user, groups = self.visibility.promoted(identity).acting_for(request.user)
        self._check_kernel(request, user)
        if instead_of is None:
            old, _ = self._replaced(identity, request, user)
            instead_of = None if old is None else old.id
        now = self.unit_of_work.clock()

        def ask(changed: m.WorkloadRequest) -> WhatIf:
            return what_if(
                self.unit_of_work.cluster,
                self._read(identity, changed, user, groups).workload,
                now,
                instead_of,
            )

        admitted, policy = (
            self._read(identity, request, user, groups),
            self.unit_of_work.loaded.policy,
        )
        asked = admitted.workload
        others = [
            pool.name for pool in policy.node_pools if pool.name not in pools_tried(asked, policy)
        ]
        answer = what_if_answer(
            request,
            ask,
            self.unit_of_work.records,
            self.unit_of_work.nodes,
            others,
            lambda found: self.wait_estimates.for_request(asked, found),
        )
        impossible = None if answer.starts_now else self.feasibility.impossible(admitted)
        if impossible is None:
            return answer
        if answer.reason is None or answer.reason.code != impossible.code:
            answer = replace(answer, reason=reason_of(impossible))
        return replace(answer, refused=not request.queue_anyway)

    def _read(
        self, identity: Identity, request: m.WorkloadRequest, user: str, groups: tuple[str, ...]
    ) -> AdmittedRequest:
        allowed = projects_of(self.unit_of_work.loaded.policy, user, groups)
        if self.visibility.is_admin(identity):
            allowed += [
                project.name
                for project in self.unit_of_work.loaded.policy.projects
                if project.name not in allowed
            ]
        default, created = self.unit_of_work.loaded.admin.default_project, self.unit_of_work.clock()
        check_units(request)
        check_limits(request)
        return read_request(
            request,
            self.unit_of_work.loaded.policy,
            user=user,
            allowed=allowed,
            default=default,
            created=created,
        )

    # -- agents --

    def agent_hello(self, hello: m.AgentHello, send: Send) -> str:
        """A node joins (again); `send` sends to its agent. Returns the node's name."""
        return self.reports.hello(hello, send)

    def agent_report(self, node: str, message: m.FromAgent) -> None:
        """One report of an agent."""
        self.reports.receive(node, message)

    def agent_disconnected(self, node: str, send: Send) -> None:
        """The connection to an agent broke."""
        self.reports.disconnected(node, send)

    # -- the cycle --

    def run_cycle(self, done: Callable[[str], None] = lambda _action: None) -> Decisions:
        """Runs one cycle and commits its decisions. See `CycleRunner.run`."""
        return self.cycles.run(done)

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something: workloads are pending."""
        return bool(self.unit_of_work.decisions.reasons)

    def tick(self, now: int) -> None:
        """Applies what changes with time: silent agents, time limits, past usage of queues."""
        if self.unit_of_work.store.problem is not None:
            with suppress(Unavailable), self.unit_of_work.transaction():
                pass  # tells whether changes can be stored again
        self.unit_of_work.history.sample(now, self.unit_of_work.decisions.queues)
        with suppress(Unavailable):  # otherwise at the next tick
            self.reports.time_limits.tick(now)
            self.cordons.tick()
            self.wait_estimates.tick(now)
        with suppress(Unavailable):  # kept, and tried again at the next tick
            self.reports.write_usage(LEASES_PER_TICK)
        self.reports.check_silent(now)
        if facts := self.meter.measure(self.unit_of_work.cluster, now):
            for fact in facts:
                self.unit_of_work.cluster.apply(fact)
            self.unit_of_work.needs_cycle = True

    # -- policy --

    def check_policy(self, body: m.PolicyText) -> m.PolicyCheck:
        """What a policy file would change, and whom it affects; changes nothing."""
        return self.policy_preview.check(body)

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """Puts a policy into force, as a whole or not at all."""
        check = self.policy_preview.compare(loaded)
        try:
            with self.unit_of_work.transaction() as write:
                self.unit_of_work.cluster.apply(PolicyChanged(loaded.policy))
                self.unit_of_work.nodes.use_policy(loaded)
                if check.changes:
                    audit(
                        write,
                        self.unit_of_work.clock(),
                        "policy file",
                        "policy",
                        loaded.source,
                        "; ".join(lines_of(check)),
                    )
        except BaseException:
            self.unit_of_work.nodes.loaded = self.unit_of_work.loaded
            raise
        self.unit_of_work.loaded, self.unit_of_work.policy_problems = loaded, []
        self.reports.time_limits.use_rules()
        self.policy_preview.taken(check)
        for node in self.unit_of_work.nodes.connected():
            self.reports.send_plan(node)
        self.unit_of_work.status_changed()
        self.unit_of_work.wake()

    def refuse_policy(self, problems: list[str]) -> None:
        """The file is invalid: the old policy stays in force, and the status lists the problems."""
        if problems != self.unit_of_work.policy_problems:
            self.unit_of_work.policy_problems = problems
            self.unit_of_work.status_changed()


def _is_repeated(known: WorkloadRecord, request: m.WorkloadRequest, user: str) -> bool:
    """Whether the same user repeats the same request. It may have been renamed since, and
    `replaces` may have been resolved to another workload (`_replaced`).
    """
    same = replace(known.request, name=request.name, replaces=request.replaces)
    return same == request and known.user == user


def _requested_text(record: WorkloadRecord, old: WorkloadRecord | None) -> str:
    text = f"Requested {request_text(record)} in project {record.project}"
    if old is None:
        return f"{text}."
    return f"{text}; {request_text(old)} is kept until it is granted."


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
