"""Applies the table of permissions to an identity and the policy: who sees and changes which
workloads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotAllowed

from ..policy.policy_file import LoadedPolicy
from ..state.admission import is_manager, projects_of
from .identity import Identity
from .permissions import Caller, reach

__all__ = ["Authorization", "without_names"]


class Authorization:
    """Uses the policy in force at each call; `loaded` returns it."""

    def __init__(self, loaded: Callable[[], LoadedPolicy]) -> None:
        self._loaded = loaded
        self._rules: tuple[LoadedPolicy | None, object] = (None, None)
        self._of: LoadedPolicy | None = None
        self._known: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        """Projects by user, for the policy `_of`; streams look this up for every listener and
        frame.
        """

    @property
    def rules(self) -> object:
        """An object that is replaced whenever permissions may have changed."""
        if self._loaded() is not self._rules[0]:
            self._rules = (self._loaded(), object())
        return self._rules[1]

    def groups_changed(self) -> None:
        """The groups of users have changed."""
        self._rules = (None, None)

    def caller(self, identity: Identity) -> Caller:
        """The column of the permission table: a person whom the policy lists as admin is one."""
        listed = (
            identity.scope == "person"
            and bool(identity.user)
            and self._loaded().admin.is_admin(identity.user, identity.groups)
        )
        return "admin" if listed else identity.scope

    def is_admin(self, identity: Identity) -> bool:
        return self.caller(identity) == "admin"

    def must_be_admin(self, identity: Identity) -> None:
        """Raises NotAllowed."""
        if not self.is_admin(identity):
            raise NotAllowed("only an admin may do this")

    def promoted(self, identity: Identity) -> Identity:
        """The identity with the scope that the policy grants."""
        return dataclasses.replace(identity, scope="admin") if self.is_admin(identity) else identity

    def projects(self, identity: Identity) -> frozenset[str]:
        """Projects of which the caller (or a user of the server) is a member. Admins are members
        only where they are listed.
        """
        return frozenset[str]().union(
            *(self._projects_of(user, groups) for user, groups in identity.people())
        )

    def manages(self, identity: Identity, project: str) -> bool:
        """Whether the caller (or a user of the server) is a manager of the project."""
        known = self._loaded().policy.by_name.get(project)
        return known is not None and any(
            is_manager(known, user, groups) for user, groups in identity.people()
        )

    def managed(self, identity: Identity) -> list[str]:
        """The projects that the caller manages, in the order of the policy; an admin's are all."""
        names = [project.name for project in self._loaded().policy.projects]
        is_admin = self.is_admin(identity)
        return [name for name in names if is_admin or self.manages(identity, name)]

    def _projects_of(self, user: str, groups: tuple[str, ...]) -> frozenset[str]:
        loaded = self._loaded()
        if loaded is not self._of or len(self._known) > 10_000:
            self._of, self._known = loaded, {}
        key = user, groups
        if key not in self._known:
            self._known[key] = frozenset(projects_of(loaded.policy, user, groups))
        return self._known[key]

    def reaches(self, identity: Identity, thing: str, project: str, user: str) -> bool:
        """Whether the caller may access an object of this user and project through a route (or
        thing) of the permission table.
        """
        far = reach(thing, self.caller(identity))
        if far == "everything":
            return True
        if far == "nothing":
            return False
        if far != "own" and self.manages(identity, project):
            return True
        if far == "manages":
            return False
        if identity.serves_all_users or any(user == own for own, _ in identity.people()):
            return True
        return far == "projects" and project in self.projects(identity)

    def sees_names(self, identity: Identity, user: str, project: str) -> bool:
        """Whether the names of this user's notebooks in this project are shown."""
        return self.reaches(identity, "notebook names", project, user)

    def shown(self, identity: Identity, view: m.WorkloadView) -> m.WorkloadView:
        """The workload as this caller may see it. Managers see its name, but not its command."""
        if not self.sees_names(identity, view.user, view.project):
            return without_names(view)
        return view if self.sees_contents(identity, view.user) else replace(view, command=None)

    def sees_contents(self, identity: Identity, user: str) -> bool:
        """Whether commands, output and events of this user's workloads are shown."""
        return self.reaches(identity, "logs", "", user)


def without_names(view: m.WorkloadView) -> m.WorkloadView:
    """A workload without its name and command, which only its owner may see."""
    pods = [
        replace(pod, lease=replace(pod.lease, name=""))
        if pod.lease is not None and pod.lease.name
        else pod
        for pod in view.pods
    ]
    return replace(view, name="", pods=pods, command=None)
