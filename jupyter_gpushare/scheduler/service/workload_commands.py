"""Users' commands on workloads: submit, replace, end, rename, and what-if requests."""

from __future__ import annotations

from dataclasses import replace as changed_value
from typing import Literal

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cycle.cycle import what_if
from jupyter_gpushare.core.model.decisions import WhatIf
from jupyter_gpushare.core.model.errors import Conflict, NotAllowed, NotFound
from jupyter_gpushare.core.model.events import WorkloadHeld, WorkloadSubmitted

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..state.admission import (
    AdmittedRequest,
    check_names,
    check_units,
    numbered,
    pools_tried,
    projects_of,
    read_request,
    with_time_limit,
)
from ..state.request_limits import check_limits
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, reason_of, request_text
from ..store.store import WorkloadRow
from .feasibility import Feasibility
from .pending_status import PendingStatus
from .person_limits import PersonLimits
from .pod_budget import PodBudget
from .queries import Queries
from .wait_estimates import WaitEstimates
from .what_if import what_if_answer

__all__ = ["WorkloadCommands"]


class WorkloadCommands:
    """Of one unit of work. Every method raises `GpuShareError` for the caller and then has changed
    nothing.
    """

    def __init__(
        self,
        unit_of_work: UnitOfWork,
        visibility: Authorization,
        queries: Queries,
        pending_status: PendingStatus,
        wait_estimates: WaitEstimates,
        pod_budget: PodBudget,
    ) -> None:
        self.unit_of_work, self.visibility, self.queries = unit_of_work, visibility, queries
        self.pending_status, self.wait_estimates = pending_status, wait_estimates
        self.feasibility, self.pod_budget = Feasibility(unit_of_work), pod_budget
        self.person_limits = PersonLimits(unit_of_work)

    def submit(self, identity: Identity, request: m.WorkloadRequest) -> m.WorkloadView:
        """Adds a workload. Repeating a request (same id and content) returns the same workload."""
        self.pod_budget.check_workload(len(request.pods))
        request = numbered(request)
        user, groups = self.visibility.promoted(identity).acting_for(request.user)
        known = self.unit_of_work.records.get(request.id)
        ended_user = None if known else self.unit_of_work.store.ended_user(request.id)
        if (known.user if known else ended_user) not in (None, user):
            # Neither that it is in use nor its state or content: ids are chosen by clients, so a
            # used one cannot be distinguished from others in any other way.
            raise Conflict("this id cannot be used: choose another one", field="id")
        if known is not None:
            if not _is_repeated(known, request, user):
                raise Conflict(f"workload {request.id} exists with different content", field="id")
            return self.pending_status.view(known)
        if ended_user is not None:
            raise Conflict(f"workload {request.id} has ended: use a new id", field="id")
        self.pod_budget.check_user(self.unit_of_work, user, len(request.pods))
        self.pod_budget.check_without_gpu(self.unit_of_work, user, request)
        admitted = self._read(identity, request, user, groups)
        self._check_kernel(request, user)
        old, superseded = self._replaced(identity, request, user)
        leaving = {one.id for one in (old, *superseded) if one is not None}
        self.person_limits.check(admitted, leaving)
        self.feasibility.check(admitted)
        request = replace(request, replaces=None if old is None else old.id)
        record = WorkloadRecord(request, admitted.workload, user)
        self._insert(record, old, superseded)
        return self.pending_status.view(record)

    def _check_kernel(self, request: m.WorkloadRequest, user: str) -> None:
        """Raises NotAllowed: the kernel belongs to another user."""
        if not self.unit_of_work.kernel_owners.may_claim(request, user):
            text = f"kernel {request.kernel_id!r} does not belong to {user!r}"
            raise NotAllowed(text, field="kernel_id")

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
            unit_of_work.event(record, "requested", _requested_text(record, old))
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
            if self._ended_for(identity, id_):
                return m.Ended(id=id_)
            raise NotFound(f"unknown workload {id_!r}", field="id")
        self._may_end(identity, record, "id")
        self.unit_of_work.finish(
            record, "released", _ended_text(record, identity.user), by=identity.user
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
                    write.lease(lease)
            record.request = request
            self.unit_of_work.publish_leases(record, leases)
        return self.visibility.shown(identity, self.pending_status.view(record))

    def _ended_for(self, identity: Identity, id_: str) -> bool:
        """Whether a workload of this id has ended that the caller could have ended."""
        owner = self.unit_of_work.store.ended_user(id_)
        if owner is None:
            return False
        people = [user for user, _ in self.visibility.promoted(identity).people()]
        return owner in people or identity.serves_all_users or self.visibility.is_admin(identity)

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
                f"only {record.user!r}{' or a manager of the project' if route == 'end' else ''}"
                f" or an admin may {route} workload {record.id!r}",
                field=field,
            )

    def what_if(
        self, identity: Identity, request: m.WorkloadRequest, instead_of: str | None = None
    ) -> m.WhatIfAnswer:
        """Whether it would start: runs a cycle and undoes it. `instead_of`: a workload of the
        caller that would end.
        """
        self.pod_budget.check_workload(len(request.pods))
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
            name_of=lambda record: self._visible_name(identity, record),
            notice_ms=self.unit_of_work.loaded.admin.notice,
        )
        leaving = () if instead_of is None else (instead_of,)
        too_many = self.person_limits.reason(admitted, leaving)
        if too_many is not None:
            reason = reason_of(too_many)
            return replace(answer, starts_now=False, reason=reason, refused=True)
        impossible = None if answer.starts_now else self.feasibility.impossible(admitted)
        if impossible is None:
            return answer
        if answer.reason is None or answer.reason.code != impossible.code:
            answer = replace(answer, reason=reason_of(impossible))
        return replace(answer, refused=not request.queue_anyway)

    def _visible_name(self, identity: Identity, record: WorkloadRecord) -> str:
        is_seen = self.visibility.sees_names(identity, record.user, record.project)
        return record.request.name if is_seen else ""

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
        asked = read_request(
            request,
            self.unit_of_work.loaded.policy,
            user=user,
            allowed=allowed,
            default=default,
            created=created,
        )
        return changed_value(
            asked, workload=with_time_limit(asked.workload, self.unit_of_work.loaded)
        )


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


def _ended_text(record: WorkloadRecord, by: str) -> str:
    done = "Released" if record.leases else "Cancelled"
    return f"{done}." if by in ("", record.user) else f"{done} by {by}."


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
