"""Read-only queries: what callers may see of the current state.

`tables`, `pending_status` and `what_if` make the rows; this module decides who sees which. `api`
uses it for all routes that only read, and for the first frame of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.estimates.time_series import minutes_in
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, NotFound, Unavailable
from jupyter_gpushare.version import __version__

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..config.zone_database import zone_database
from ..simulation.snapshot import snapshot
from ..state.audit import entries
from ..state.unit_of_work import UnitOfWork
from ..state.usage import by_in, moment_in, period_in, report
from ..state.workload_records import WorkloadRecord, ended_view
from .batch import PAGE, cursor_in
from .pending_status import PendingStatus
from .policy_preview import PolicyPreview
from .queue_demand import queues_with_changes
from .tables import node_rows, pool_rows, project_rows, queue_rows, waiting_row

__all__ = ["Queries"]


class Queries:
    """`write_usage` writes reported usage that is not in the store yet. Every method raises
    `GpuShareError` for the caller.
    """

    def __init__(
        self,
        unit_of_work: UnitOfWork,
        visibility: Authorization,
        pending_status: PendingStatus,
        policy_preview: PolicyPreview,
        write_usage: Callable[[], None],
        undrained: Callable[[], dict[str, list[str]]],
    ) -> None:
        self._unit_of_work, self._visibility, self._pending_status, self._policy_preview = (
            unit_of_work,
            visibility,
            pending_status,
            policy_preview,
        )
        self._write_usage, self._undrained = write_usage, undrained

    # -- the service and the caller --

    def status(self, identity: Identity) -> m.ServiceStatus:
        policy = self._unit_of_work.loaded.policy
        default = self._unit_of_work.loaded.admin.default_project
        return m.ServiceStatus(
            version=__version__,
            revision=self.revision,
            policy_file=self._unit_of_work.loaded.source,
            policy_problems=[
                *self._unit_of_work.policy_problems,
                *self._unit_of_work.other_policy_problems,
            ],
            user=identity.user,
            admin=self._visibility.is_admin(identity),
            projects=sorted(self._usable(identity), key=lambda name: name != default),
            node_pools=[pool.name for pool in policy.node_pools],
            priority_classes=list(policy.priority_classes),
            agents=self._unit_of_work.nodes.connected(),
            acts_for=self._visibility.promoted(identity).acts_for(),
            policy_changed=self._policy_preview.changed,
            policy_changes=list(self._policy_preview.lines)
            if self._visibility.is_admin(identity)
            else [],
            kubernetes=self._kubernetes(identity),
            time_zones=zone_database(),
            manages=self._visibility.managed(identity),
        )

    def _kubernetes(self, identity: Identity) -> m.KubernetesStatus | None:
        known = self._unit_of_work.kubernetes_status
        if known is None or not self._visibility.is_admin(identity):
            return known
        return replace(known, undrained=self._undrained())

    def whoami(self, identity: Identity) -> m.WhoAmI:
        people = [user for user, _ in identity.people()]
        return m.WhoAmI(
            user=identity.user,
            scope=identity.scope,
            admin=self._visibility.is_admin(identity),
            groups=list(identity.groups),
            users=["*"] if identity.is_admin or identity.serves_all_users else people[1:],
            projects=[] if identity.scope == "agent" else self._usable(identity),
            source=identity.source,
        )

    # -- workloads --

    def workload(self, identity: Identity, id_: str) -> m.WorkloadView:
        record = self._unit_of_work.records.get(id_)
        if record is None:
            return self._over(identity, id_)
        if not self.sees(identity, record):
            raise NotFound(f"unknown workload {id_!r}", field="id")
        return self._visibility.shown(identity, self._pending_status.view(record))

    def _over(self, identity: Identity, id_: str) -> m.WorkloadView:
        """Batch work that has ended. Raises NotFound."""
        for one in self._all_over(identity, id_):
            return one
        raise NotFound(f"unknown workload {id_!r}", field="id")

    def _all_over(self, identity: Identity, id_: str | None = None) -> list[m.WorkloadView]:
        views = [ended_view(over) for over in self._unit_of_work.store.ended_batch(id_)]
        seen = [
            view
            for view in views
            if self._visibility.reaches(identity, "workload", view.project, view.user)
        ]
        return [self._visibility.shown(identity, view) for view in seen]

    def logs(
        self, identity: Identity, id_: str, pod: str | None = None, cursor: str | None = None
    ) -> m.Logs:
        """Output of the pods of batch work. Raises NotFound, NotAllowed, InvalidInput."""
        view = self.workload(identity, id_)
        if not self._visibility.reaches(identity, "logs", view.project, view.user):
            raise NotAllowed(
                f"only {view.user!r} or an admin may read the output of workload {id_!r}",
                field="id",
            )
        if pod is not None and pod not in [one.name for one in view.pods]:
            raise InvalidInput(f"workload {id_!r} has no pod {pod!r}", field="pod")
        lines, after = self._unit_of_work.store.logs(id_, pod, cursor_in(cursor), PAGE)
        return m.Logs(lines=lines, cursor=after, is_over=view.state == "ended" and not lines)

    def workloads(
        self,
        identity: Identity,
        project: str | None = None,
        kernel_id: str | None = None,
        ended: bool = False,
    ) -> m.Workloads:
        """Workloads that the caller may see. Raises InvalidInput: unknown project."""
        if project is not None and project not in self._known_projects():
            raise InvalidInput(f"unknown project {project!r}", field="project")
        if ended:
            return m.Workloads(
                workloads=[
                    view for view in self._all_over(identity) if project in (None, view.project)
                ]
            )
        return m.Workloads(
            workloads=[
                self._visibility.shown(identity, self._pending_status.view(record))
                for record in self._unit_of_work.records.values()
                if project in (None, record.project)
                and kernel_id in (None, record.kernel_id)
                and self.sees(identity, record)
            ]
        )

    def waiting(self, identity: Identity) -> m.Waiting:
        """All queue positions, by pool and position."""
        places = [
            (record, place)
            for record in self._unit_of_work.records.values()
            if (place := self._pending_status.reason_and_position(record)[1]) is not None
        ]
        rows = [
            waiting_row(
                record,
                *self._pending_status.summary(record)[1:],
                place,
                self._pending_status.expected(record),
                self._visibility,
                identity,
            )
            for record, place in places
        ]
        return m.Waiting(
            waiting=sorted(rows, key=lambda row: (row.pool, row.position, row.since, row.project))
        )

    def sees(self, identity: Identity, record: WorkloadRecord) -> bool:
        """Whether the workload exists as far as this caller may know."""
        return self._visibility.reaches(identity, "workload", record.project, record.user)

    # -- queues, nodes, usage --

    def queues(self, identity: Identity) -> m.Queues:
        """Quota and usage of all queues, for everybody."""
        del identity
        return m.Queues(
            queues=queue_rows(queues_with_changes(self._unit_of_work), self._known_projects())
        )

    def nodes(self, identity: Identity) -> m.Nodes:
        return m.Nodes(
            nodes=node_rows(
                self._unit_of_work.cluster,
                self._unit_of_work.nodes,
                self._unit_of_work.records,
                lambda record: self.sees(identity, record),
            )
        )

    def usage(
        self,
        identity: Identity,
        by: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> m.Usage:
        """GPU-hours that the caller may see; by notebook: those whose names they may see. Raises
        InvalidInput.
        """
        by, (first, last) = by_in(by), period_in(since, until, self._unit_of_work.clock())
        with suppress(Unavailable):
            self._write_usage()

        def may_see(row: Mapping[str, str]) -> bool:
            whose = row["user"], row["project"]
            if by == "notebook" and not self._visibility.sees_names(identity, *whose):
                return False
            return self._visibility.reaches(identity, "usage", row["project"], row["user"])

        return m.Usage(
            usage=report(self._unit_of_work.store, by, first, last, may_see),
            since=m.stamp(first),
            until=m.stamp(last),
        )

    def audit(
        self, since: str | None = None, until: str | None = None, action: str | None = None
    ) -> m.Audit:
        """The audit log. Raises InvalidInput."""
        first, last = period_in(since, until, self._unit_of_work.clock())
        found = entries(self._unit_of_work.store, since=first, until=last, action=action)
        return m.Audit(audit=[entry.row() for entry in found])

    def pools(self, identity: Identity) -> m.Pools:
        del identity
        return m.Pools(
            pools=pool_rows(
                self._unit_of_work.loaded.policy,
                self._unit_of_work.cluster,
                self._unit_of_work.records,
            )
        )

    def projects(self, identity: Identity) -> m.Projects:
        mine = set(self._visibility.projects(identity))
        return m.Projects(
            projects=project_rows(
                self._unit_of_work.loaded.policy,
                queues_with_changes(self._unit_of_work),
                mine,
                self._known_projects(),
            )
        )

    def queue_history(
        self, identity: Identity, pool: str | None, minutes: str | None
    ) -> m.QueueHistory:
        """Allocation and demand of the queues, for everybody; `minutes` as text."""
        del identity
        if pool is not None and pool not in {
            known.name for known in self._unit_of_work.loaded.policy.node_pools
        }:
            raise InvalidInput(f"unknown node pool {pool!r}", field="pool")
        return self._unit_of_work.history.queues(
            self._unit_of_work.clock(),
            minutes=minutes_in(minutes),
            pool=pool,
            visible=self._known_projects(),
        )

    def node_history(
        self, minutes: str | None, since: str | None, node: str | None
    ) -> m.NodeHistory:
        """What agents measured, for everybody; the parameters as text. Raises InvalidInput."""
        now = self._unit_of_work.clock()
        return self._unit_of_work.node_history.read(
            now,
            minutes=minutes_in(minutes),
            since=moment_in(since, now, "since") if since else None,
            nodes=node.split(",") if node else None,
        )

    def evictions(self, identity: Identity) -> m.Evictions:
        listed = self._unit_of_work.history.evictions(
            lambda project, user: self._visibility.reaches(identity, "evictions", project, user)
        ).evictions
        return m.Evictions(
            evictions=[
                row
                if self._visibility.sees_names(identity, row.user, row.project)
                else replace(row, name="")
                for row in listed
            ]
        )

    def snapshot(self, identity: Identity) -> dict[str, Any]:
        """The running cluster as a scenario."""
        self._visibility.must_be_admin(identity)
        return snapshot(self._unit_of_work.cluster, self._unit_of_work.clock())

    # -- streams --

    @property
    def revision(self) -> int:
        """Revision of the last change."""
        return self._unit_of_work.revision

    def scheduler_state(self, identity: Identity) -> m.SchedulerState:
        return m.SchedulerState(
            revision=self.revision,
            status=self.status(identity),
            workloads=self.workloads(identity).workloads,
        )

    def may_see(self, identity: Identity, project: str | None, user: str | None) -> bool:
        """Whether a frame about this project and user is visible to this identity. None: to
        everybody.
        """
        return project is None or self._visibility.reaches(identity, "stream", project, user or "")

    @property
    def rules(self) -> object:
        """Changes when visibility changes: with the policy, or with group membership."""
        return self._visibility.rules

    def sees_names(self, identity: Identity, user: str | None) -> bool:
        """Whether a frame about this user may contain names of notebooks and sentences of events
        for this identity.
        """
        return self._visibility.sees_contents(identity, user or "")

    # -- helpers --

    def _usable(self, identity: Identity) -> list[str]:
        """Projects in which the caller may submit, their own first: an admin in all, a server in
        those of its users (the user's own membership is checked at submission).
        """
        mine, names = (
            self._visibility.projects(identity),
            [project.name for project in self._unit_of_work.loaded.policy.projects],
        )
        everywhere = identity.serves_all_users or self._visibility.is_admin(identity)
        return [name for name in names if name in mine] + [
            name for name in names if everywhere and name not in mine
        ]

    def _known_projects(self) -> set[str]:
        """Projects of the policy, and removed ones that still have workloads."""
        return {project.name for project in self._unit_of_work.loaded.policy.projects} | {
            record.project for record in self._unit_of_work.records.values()
        }
