"""Reads everything that `kube check` judges. What may not be read is an error message instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from . import names
from .api_client import ApiError, ClusterApi, Resource
from .objects import KubeNode, KubePod, read_node, read_pod

__all__ = ["ClusterFacts", "HubFacts", "Permission", "Unread", "read_facts"]

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that could not be read, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission of the scheduler, and whether it has it."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    is_given: bool | Unread = False

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{place}"


@dataclass(frozen=True, slots=True)
class HubFacts:
    """One JupyterHub of Zero to JupyterHub."""

    namespace: str
    labels: dict[str, Any] | Unread
    """Of the namespace."""
    policies: list[Any] | Unread
    """Network policies there."""


@dataclass(slots=True)
class ClusterFacts:
    """The cluster, as far as it could be read. Objects are raw; None: does not exist."""

    namespace: str
    version: Any = None
    account: str = ""
    """Whose permissions were asked for; "": the caller's."""
    permissions: list[Permission] = field(default_factory=list)
    nodes: list[KubeNode] | Unread = field(default_factory=list)
    pods: list[KubePod] | Unread = field(default_factory=list)
    agent: Any = None
    """The DaemonSet of the agents."""
    scheduler: Any = None
    """The StatefulSet."""
    slots: list[Any] | Unread = field(default_factory=list)
    """DaemonSets of slots."""
    priority_class: Any = None
    runtime_classes: set[str] | Unread = field(default_factory=set)
    groups: set[str] | Unread = field(default_factory=set)
    """API groups of the cluster."""
    hubs: list[HubFacts] | Unread = field(default_factory=list)


async def read_facts(api: ClusterApi, namespace: str, operator_namespace: str = "") -> ClusterFacts:
    """Reads a cluster. Raises ApiError: the API server does not respond."""
    facts = ClusterFacts(namespace)
    facts.version = await api.call("VersionApi", "get_code")
    await _read_permissions(api, facts, operator_namespace)
    facts.nodes = await _tried(_objects(api, Resource("nodes"), read_node))
    facts.pods = await _tried(_objects(api, Resource("pods", namespace), read_pod))
    apps = "AppsV1Api"
    named = "read_namespaced_daemon_set"
    facts.agent = await _found(api.call(apps, named, names.AGENT_NAME, namespace))
    named = "read_namespaced_stateful_set"
    facts.scheduler = await _found(api.call(apps, named, names.SCHEDULER_NAME, namespace))
    every = await _items(api.call(apps, "list_namespaced_daemon_set", namespace))
    facts.slots = every if isinstance(every, Unread) else [one for one in every if _is_slot(one)]
    one_class = api.call("SchedulingV1Api", "read_priority_class", names.PRIORITY_CLASS)
    facts.priority_class = await _found(one_class)
    classes = await _items(api.call("NodeV1Api", "list_runtime_class"))
    facts.runtime_classes = classes if isinstance(classes, Unread) else {_name(o) for o in classes}
    groups = await _tried(api.call("ApisApi", "get_api_versions"))
    if isinstance(groups, Unread):
        facts.groups = groups
    else:
        facts.groups = {str(group.get("name")) for group in groups.get("groups") or ()}
    facts.hubs = await _read_hubs(api)
    return facts


async def _read_permissions(api: ClusterApi, facts: ClusterFacts, operator_namespace: str) -> None:
    """Of the scheduler's account if the caller may ask for it, else the caller's own."""
    wanted = [Permission(verb, "nodes") for verb in ("list", "watch")]
    wanted += [Permission("create", "tokenreviews", "authentication.k8s.io")]
    for namespace in dict.fromkeys((facts.namespace, operator_namespace)):
        if namespace:
            verbs = ("list", "watch")
            wanted += [Permission(verb, "pods", namespace=namespace) for verb in verbs]
    if not api.is_in_cluster:
        facts.account = f"system:serviceaccount:{facts.namespace}:{names.SCHEDULER_ACCOUNT}"
    for permission in wanted:
        answer = await _tried(_review(api, permission, facts.account))
        if isinstance(answer, Unread) and facts.account:
            facts.account = ""
            answer = await _tried(_review(api, permission, ""))
        given = answer
        if not isinstance(answer, Unread):
            given = bool((answer.get("status") or {}).get("allowed"))
        facts.permissions.append(
            Permission(
                permission.verb, permission.resource, permission.group, permission.namespace, given
            )
        )


def _review(api: ClusterApi, permission: Permission, account: str) -> Awaitable[Any]:
    asked = {"verb": permission.verb, "resource": permission.resource, "group": permission.group}
    if permission.namespace:
        asked["namespace"] = permission.namespace
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: dict[str, Any] = {"resourceAttributes": asked}
    if account:
        spec |= {"user": account, "groups": _groups(account)}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    method = "create_subject_access_review" if account else "create_self_subject_access_review"
    return api.call("AuthorizationV1Api", method, body=body)


def _groups(account: str) -> list[str]:
    """The groups of a service account."""
    namespace = account.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


async def _read_hubs(api: ClusterApi) -> list[HubFacts] | Unread:
    selector = "app=jupyterhub,component=hub"
    listed = api.call("CoreV1Api", "list_pod_for_all_namespaces", label_selector=selector)
    pods = await _items(listed)
    if isinstance(pods, Unread):
        return pods
    found = []
    for namespace in sorted({str(pod["metadata"].get("namespace")) for pod in pods}):
        space = await _tried(api.call("CoreV1Api", "read_namespace", namespace))
        labels = space if isinstance(space, Unread) else space["metadata"].get("labels") or {}
        listed = api.call("NetworkingV1Api", "list_namespaced_network_policy", namespace)
        found.append(HubFacts(namespace, labels, await _items(listed)))
    return found


async def _objects(api: ClusterApi, resource: Resource, read: Callable[[Any], Any]) -> list[Any]:
    found, continue_ = [], ""
    while True:
        page = await api.page(resource, continue_, PAGE)
        found += [value for raw in page.get("items") or () if (value := read(raw)) is not None]
        continue_ = (page.get("metadata") or {}).get("continue") or ""
        if not continue_:
            return found


async def _tried(request: Awaitable[Any]) -> Any:
    """The answer, or why there is none."""
    try:
        return await request
    except ApiError as error:
        return Unread(error.message)


async def _found(request: Awaitable[Any]) -> Any:
    """The object; None: it does not exist."""
    try:
        return await request
    except ApiError as error:
        return None if error.status == 404 else Unread(error.message)


async def _items(request: Awaitable[Any]) -> list[Any] | Unread:
    answer = await _tried(request)
    return answer if isinstance(answer, Unread) else list(answer.get("items") or ())


def _name(raw: Any) -> str:
    return str(raw["metadata"].get("name"))


def _is_slot(raw: Any) -> bool:
    template = ((raw.get("spec") or {}).get("template") or {}).get("metadata") or {}
    return names.SLOT_LABEL in (template.get("labels") or {})
