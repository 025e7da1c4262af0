"""The audit log of a cluster against the permissions of the chart, after all tests on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from jupyter_gpushare.kube import names
from tests.kube.control_plane import ControlPlane

__all__ = ["Verb", "assert_only_granted", "granted", "used"]

ACCOUNT: Final = "system:serviceaccount:"


class Verb(NamedTuple):
    """`namespace`: "" in the whole cluster."""

    namespace: str
    resource: str
    verb: str


def granted(objects: Iterable[dict[str, Any]]) -> set[Verb]:
    """What the roles among the objects of the chart allow the scheduler."""
    return {
        Verb(item["metadata"].get("namespace", ""), resource, verb)
        for item in objects
        for rule in item.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(
    cluster: ControlPlane, namespace: str, account: str = names.SCHEDULER_ACCOUNT
) -> set[Verb]:
    """What a service account has asked for, and was given."""
    user = f"{ACCOUNT}{namespace}:{account}"
    return {
        Verb(event.namespace, event.resource, event.verb)
        for event in cluster.audit(user)
        if event.code != 403
    }


def assert_only_granted(cluster: ControlPlane) -> None:
    """No request of a scheduler was refused, and agents asked for nothing. Tests that take
    permissions away name their namespace in `cluster.restricted`.

    What was granted before may be refused for a moment: an API server that was started again
    answers before it has read the roles.
    """
    granted: set[tuple[str, ...]] = set()
    wrong = []
    for event in cluster.audit(ACCOUNT):
        namespace, _, account = event.user.removeprefix(ACCOUNT).partition(":")
        asked = (event.user, event.verb, event.resource, event.namespace)
        if account == names.AGENT_ACCOUNT:
            wrong.append(event)
        elif namespace in cluster.restricted or account != names.SCHEDULER_ACCOUNT:
            continue
        elif event.code != 403:
            granted.add(asked)
        elif asked not in granted:
            wrong.append(event)
    assert wrong == [], f"{len(wrong)} requests that the chart's roles do not allow"
