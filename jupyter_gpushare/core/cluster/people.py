"""People of projects with rules between their members: what they hold and have used, per pool.

Every change of what a person holds charges the time since the last change, so charges are exact
(`PeopleLedger.now`, which the caller advances). Changes can be undone through the undo log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ..fairness.people import AWAY, EVERYBODY, PersonUsage, Standing
from ..model.model import MembersPolicy, PersonLimit, Policy
from .undo_log import UndoLog

__all__ = ["PeopleLedger", "PeopleSnapshot", "PersonBound", "PoolPeople"]

NO_RULES: Final = MembersPolicy()


class PersonBound(NamedTuple):
    """A limit of a person, and what the person holds of it; milli-GPU."""

    limit: int
    held: int


class PeopleSnapshot(NamedTuple):
    """Those who wait, at one moment (ms). `standings` is empty where people have no order."""

    now: int
    standings: Mapping[str, Standing]
    bounds: Mapping[str, tuple[PersonBound, ...]]


class PoolPeople:
    """The people of one project in one pool."""

    __slots__ = ("_ledger", "active", "held", "limit", "pool", "project", "rules", "usage", "waits")

    def __init__(self, ledger: PeopleLedger, project: str, pool: str) -> None:
        self._ledger, self.project, self.pool = ledger, project, pool
        self.rules, self.limit = NO_RULES, PersonLimit()
        self.usage: dict[str, PersonUsage] = {}
        self.held: Counter[str] = Counter()
        """Milli-GPU, with what is promised."""
        self.waits: dict[str, int] = {}
        """Since when (ms) each person waits; fixed at the start of a cycle."""
        self.active: dict[str, int] = {}
        """When each person waited or held a share last (ms), at the start of a cycle; people who
        have been away since are left out.
        """

    @property
    def is_fair(self) -> bool:
        """Whether people are served in the order of their usage."""
        return self.rules.fairness == "equal"

    def weight(self, user: str) -> int:
        return self.rules.weights.get(user, EVERYBODY)

    def hold(self, user: str, milli_gpu: int) -> None:
        """Adds to what a person holds, or removes from it. The time until now is charged before
        (`settle`).
        """
        self.held[user] += milli_gpu
        self._ledger.held[self.project][user] += milli_gpu
        self.usage.setdefault(user, PersonUsage(at=self._ledger.now))
        if not self.held[user]:
            del self.held[user]

    def used(self, user: str, now: int | None = None) -> PersonUsage:
        """The usage until now, or until a later time (ms)."""
        known, now = self.usage.get(user), self._ledger.now if now is None else now
        if known is None:
            return PersonUsage(at=now)
        return known.until(now, self.held[user], self.rules.half_life)

    def settle(self, user: str) -> None:
        """Charges the time until now."""
        self.set(user, self.used(user))

    def set(self, user: str, usage: PersonUsage) -> None:
        """Sets the usage of a person."""
        before = self.usage.get(user)
        if usage != before:
            self._ledger.undo_log.push(self._restore, user, before)
            self.usage[user] = usage
            self._ledger.changed[self.project, self.pool, user] = None

    def forget(self, user: str) -> None:
        """Removes somebody who holds nothing, whose usage has decayed."""
        self.usage.pop(user, None)

    def _restore(self, user: str, usage: PersonUsage | None) -> None:
        if usage is None:
            del self.usage[user]
        else:
            self.usage[user] = usage

    def begin_cycle(self, waits: Mapping[str, int]) -> None:
        """Fixes who is waiting, and since when. A person who was away starts at the least usage of
        those who were not.
        """
        undo, now = self._ledger.undo_log, self._ledger.now
        active = {user: at for user, at in self.active.items() if now - at <= AWAY}
        newcomers = [user for user in waits if user not in active]
        if newcomers and active:
            least = min(self.used(user).per_weight(self.weight(user)) for user in active)
            for user in newcomers:
                self.set(user, self.used(user).at_least(least, self.weight(user)))
        undo.assign(self, "waits", waits)
        undo.assign(self, "active", active | dict.fromkeys([*waits, *self.held], now))

    def standing(self, user: str) -> Standing:
        """The person's place in the order now."""
        now = self._ledger.now
        waits = self.waits.get(user, now)
        return Standing(self.used(user), self.weight(user), self.held[user], waits)

    def score(self, user: str) -> int:
        """The smallest is served first."""
        return self.standing(user).score(self._ledger.now)

    def snapshot(self, users: Iterable[str]) -> PeopleSnapshot:
        """These people now."""
        named = list(users)
        return PeopleSnapshot(
            self._ledger.now,
            {user: self.standing(user) for user in named} if self.is_fair else {},
            {user: tuple(self.bounds(user)) for user in named},
        )

    def bounds(self, user: str) -> Iterator[PersonBound]:
        """The limits of a person that apply in this pool: of the pool, and of all pools."""
        if self.limit.gpu is not None:
            yield PersonBound(self.limit.gpu, self.held[user])
        limit = self._ledger.limit(self.project, user).gpu
        if limit is not None:
            yield PersonBound(limit, self._ledger.held[self.project][user])


class PeopleLedger:
    """All `PoolPeople` of a cluster, also those whose project has lost its rules. `now` in ms."""

    def __init__(self, undo_log: UndoLog) -> None:
        self.undo_log = undo_log
        self.now = 0
        self.pools: dict[tuple[str, str], PoolPeople] = {}
        self.held: dict[str, Counter[str]] = {}
        """Milli-GPU in all pools, by project and user."""
        self.limits: dict[str, PersonLimit] = {}
        """Limits that count in all pools together, by project."""
        self.own_limits: dict[tuple[str, str], PersonLimit] = {}
        """Limits of single people by project and user, in addition to those."""
        self.changed: dict[tuple[str, str, str], None] = {}
        """Project, pool and user whose usage has changed, for the caller to store; also where the
        change was undone.
        """
        self._policy = Policy()
        self.is_used = False
        """Whether any project has rules between its members."""

    def use(self, policy: Policy) -> None:
        """Takes over a policy; `of` follows it."""
        self._policy = policy
        ruled = [p for p in policy.projects if p.members_policy or p.pool_members_policies]
        self.is_used = bool(ruled)
        self.limits = {p.name: p.members_policy.limit for p in ruled if p.members_policy}

    def limit_person(self, who: tuple[str, str], limit: PersonLimit) -> None:
        """Sets the own limit of a person (project, user); an empty one removes it."""
        self.own_limits[who] = limit
        if limit == PersonLimit():
            del self.own_limits[who]

    def limit(self, project: str, user: str) -> PersonLimit:
        """What a person may have in all pools of the project together."""
        bounds = zip(
            self.limits.get(project, PersonLimit()),
            self.own_limits.get((project, user), PersonLimit()),
            strict=True,
        )
        return PersonLimit(
            *(min((b for b in both if b is not None), default=None) for both in bounds)
        )

    def advance(self, now: int) -> None:
        """Time passes."""
        if now > self.now:
            self.undo_log.assign(self, "now", now)

    def of(self, project: str, pool: str) -> PoolPeople | None:
        """The people of a project in a pool; None: it has no rules between them there."""
        known = self._policy.by_name.get(project)
        rules = None if known is None else known.members_policy_in(pool)
        if known is None or rules is None:
            return None
        self.held.setdefault(project, Counter())
        people = self.pools.get((project, pool))
        if people is None:
            people = self.pools[project, pool] = PoolPeople(self, project, pool)
        people.rules = rules
        own = known.pool_members_policies.get(pool)
        people.limit = PersonLimit() if own is None else own.limit
        return people
