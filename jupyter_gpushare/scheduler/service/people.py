"""The people of projects: what they have and do now, and what managers decide about them.

Turns are leases granted today, GPU minutes those of usage reports; a day begins at midnight of the
scheduler's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.core.model.events import PersonLimited, WorkloadPromoted
from jupyter_gpushare.core.model.model import PersonLimit
from jupyter_gpushare.core.model.units import read_gpu

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..state.audit import audit
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, log_fields
from ..store.store import MemberLimitRow
from .pending_status import PendingStatus
from .queries import Queries

__all__ = ["PeopleService"]

Person = tuple[str, str]
"""Project and user."""
REFRESH_MS: Final = 5_000
"""How long the sums of a day are remembered: a table of sixty people is read by many pages."""
ACTIVE_FIRST: Final = (
    "running",
    "partly running",
    "waiting",
    "starting",
    "idle",
    "giving back",
    "suspended",
    "unknown",
)
MOST: Final = 1_000_000


class PeopleService:
    """Of one unit of work. Every method raises `GpuShareError` for the caller and then has changed
    nothing.
    """

    def __init__(
        self,
        unit_of_work: UnitOfWork,
        visibility: Authorization,
        queries: Queries,
        pending_status: PendingStatus,
    ) -> None:
        self._unit_of_work, self._visibility = unit_of_work, visibility
        self._queries, self._pending_status = queries, pending_status
        self._day: tuple[int, dict[Person, int], dict[Person, float]] = (0, {}, {})

    def people(self, identity: Identity) -> m.People:
        """The caller, and everybody in projects that the caller manages, by project and user."""
        own: dict[Person, list[WorkloadRecord]] = {}
        for record in self._unit_of_work.records.values():
            own.setdefault((record.project, record.user), []).append(record)
        turns, minutes = self._today()
        everybody = {*own, *turns, *minutes, *self._unit_of_work.cluster.people.own_limits}
        rows = [
            self._row(identity, who, own.get(who, []), turns.get(who, 0), minutes.get(who, 0.0))
            for who in sorted(everybody)
            if self._is_counted(who[0]) and self._visibility.reaches(identity, "people", *who)
        ]
        return m.People(people=rows)

    def _is_counted(self, project: str) -> bool:
        known = self._unit_of_work.loaded.policy.by_name.get(project)
        return known is not None and bool(known.members_policy or known.pool_members_policies)

    def _today(self) -> tuple[Mapping[Person, int], Mapping[Person, float]]:
        now = self._unit_of_work.clock()
        if not 0 <= now - self._day[0] < REFRESH_MS:
            local = datetime.fromtimestamp(now // 1000, UTC).astimezone()
            midnight = local.replace(hour=0, minute=0, second=0)
            since = int(midnight.timestamp()) * 1000
            store = self._unit_of_work.store
            self._day = now, store.turns_since(since), store.gpu_minutes_since(since)
        return self._day[1:]

    def _row(
        self,
        identity: Identity,
        who: Person,
        records: Iterable[WorkloadRecord],
        turns: int,
        minutes: float,
    ) -> m.PersonRow:
        project, user = who
        limit = self._unit_of_work.cluster.people.limit(project, user)
        notebooks = [self._notebook(identity, record) for record in records]
        notebooks.sort(key=lambda one: (ACTIVE_FIRST.index(one.state), one.name, one.id))
        first = notebooks[0] if notebooks else None
        return m.PersonRow(
            project=project,
            user=user,
            state=first.state if first else "no GPU",
            since=first.since if first else None,
            gpu=round(sum(one.gpu for one in notebooks), 3),
            gpu_limit=None if limit.gpu is None else limit.gpu / MILLI,
            turns_today=turns,
            gpu_minutes_today=round(minutes, 1),
            notebook_limit=limit.notebooks,
            pending_limit=limit.pending,
            managed=self._visibility.reaches(identity, "limit_person", project, user),
            notebooks=notebooks,
        )

    def _notebook(self, identity: Identity, record: WorkloadRecord) -> m.PersonNotebook:
        view = self._visibility.shown(identity, self._pending_status.view(record))
        members = self._unit_of_work.cluster.workloads[record.id].members.values()
        held = sum(one.charge.gpu for one in members if one.status in ("running", "bound"))
        since = record.pending_since or record.changed_at
        return m.PersonNotebook(
            id=record.id,
            name=view.name,
            state="no GPU" if record.is_held else m.workload_label(view),
            gpu=held / MILLI,
            since=None if since is None else m.stamp(since),
            position=view.queue_position,
            next_turn=record.id in self._unit_of_work.promoted,
        )

    # -- what managers do --

    def next_turn(self, identity: Identity, id_: str) -> m.WorkloadView:
        """The pending workload comes first in its project, once. Idempotent."""
        record = self._unit_of_work.records.get(id_)
        if record is None or not self._queries.sees(identity, record):
            raise NotFound(f"unknown workload {id_!r}", field="id")
        self._must_manage(identity, "next_turn", record.project, record.user)
        if record.pending_since is None:
            raise Conflict(f"workload {id_!r} does not wait for a GPU", field="id")
        if id_ not in self._unit_of_work.promoted:
            self._promote(identity, record)
        return self._visibility.shown(identity, self._pending_status.view(record))

    def _promote(self, identity: Identity, record: WorkloadRecord) -> None:
        unit_of_work, now = self._unit_of_work, self._unit_of_work.clock()
        text = f"{identity.user} gave it the next turn in project {record.project}."
        with unit_of_work.transaction() as write:
            unit_of_work.cluster.apply(WorkloadPromoted(record.id, promoted=True))
            write.promoted(record.id, now)
            unit_of_work.event(record, "requested", text)
            whose = f"workload {record.id} of {record.user} in {record.project}"
            audit(write, now, identity.user, "next turn", whose, text, **log_fields(record))
        unit_of_work.promoted.add(record.id)
        unit_of_work.publish_change(record)
        unit_of_work.wake()

    def limit_person(self, identity: Identity, body: m.MemberLimit) -> m.People:
        """Sets the own limits of one person. Idempotent. Raises InvalidInput: beyond the policy."""
        if body.project not in self._unit_of_work.loaded.policy.by_name:
            raise InvalidInput(f"unknown project {body.project!r}", field="project")
        self._must_manage(identity, "limit_person", body.project, body.user)
        if not self._is_counted(body.project):
            text = f"project {body.project!r} has no rules between its members"
            raise Conflict(text, field="project")
        people = self._unit_of_work.cluster.people
        before = people.own_limits.get((body.project, body.user), PersonLimit())
        limit = _limit(body, before)
        allowed = people.limits.get(body.project, PersonLimit())
        _check_allowed(limit, allowed)
        unit_of_work, now = self._unit_of_work, self._unit_of_work.clock()
        with unit_of_work.transaction() as write:
            unit_of_work.cluster.apply(PersonLimited(body.project, body.user, limit))
            write.member_limit(MemberLimitRow(body.project, body.user, *limit))
            whose = f"{body.user} in {body.project}"
            audit(write, now, identity.user, "limit person", whose, _words(limit))
        unit_of_work.wake()
        rows = self.people(identity).people
        return m.People(
            people=[r for r in rows if (r.project, r.user) == (body.project, body.user)]
        )

    def _must_manage(self, identity: Identity, route: str, project: str, user: str) -> None:
        if not self._visibility.reaches(identity, route, project, user):
            raise NotAllowed(f"only a manager of project {project!r} or an admin may do this")


def _limit(body: m.MemberLimit, before: PersonLimit) -> PersonLimit:
    """The limits with these changes. Raises InvalidInput."""
    if not body.user or len(body.user) > 1000 or not body.user.isprintable():
        raise InvalidInput("user must have 1 to 1000 printable characters", field="user")
    for name in ("notebooks", "pending"):
        number = getattr(body, name)
        if isinstance(number, int) and not 0 <= number <= MOST:
            raise InvalidInput(f"{name} must be 0 to {MOST}, got {number}", field=name)
    gpu = read_gpu(body.gpu, what="gpu") if isinstance(body.gpu, float | int) else body.gpu
    return PersonLimit(
        before.gpu if gpu is UNSET else gpu,
        before.notebooks if body.notebooks is UNSET else body.notebooks,
        before.pending if body.pending is UNSET else body.pending,
    )


def _check_allowed(limit: PersonLimit, allowed: PersonLimit) -> None:
    for name, own, most in zip(PersonLimit._fields, limit, allowed, strict=True):
        if own is not None and most is not None and own > most:
            text = f"{most / MILLI:g}" if name == "gpu" else str(most)
            raise InvalidInput(f"{name} must be at most {text}, as the policy says", field=name)


def _words(limit: PersonLimit) -> str:
    amounts = (None if limit.gpu is None else limit.gpu / MILLI, limit.notebooks, limit.pending)
    stated = [
        f"{name} {amount:g}"
        for name, amount in zip(PersonLimit._fields, amounts, strict=True)
        if amount is not None
    ]
    return ", ".join(stated) or "as in the policy"
