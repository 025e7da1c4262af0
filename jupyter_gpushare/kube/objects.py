"""Reads nodes and pods of the API server into the few facts that matter here.

Objects are plain JSON of any version: an odd value counts as missing, and nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from . import names

__all__ = ["Condition", "KubeNode", "KubePod", "key_of", "read_node", "read_pod", "version_of"]

REMOVAL_TAINTS: Final = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is removing this node",
    "karpenter.sh/disrupted": "Karpenter is removing this node",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of a node's `status.conditions`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class KubeNode:
    """A node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    is_cordoned: bool = False
    removal: str = ""
    """Why the node is about to be removed; "": it is not."""
    conditions: tuple[Condition, ...] = ()
    gpus: int | None = None
    """Allocatable `nvidia.com/gpu`; None: the node offers none."""
    has_mig: bool = False
    """Whether it offers MIG instances."""

    @property
    def is_managed(self) -> bool:
        """Whether its label gives its GPUs to the scheduler."""
        return self.labels.get(names.MANAGED_LABEL) == names.MANAGED_VALUE


@dataclass(frozen=True, slots=True)
class KubePod:
    """A pod of one of the namespaces that are read."""

    key: str
    uid: str
    node: str
    """Where it runs or, for a pod of a DaemonSet, is to run; "": not known yet."""
    component: str = ""
    """`app.kubernetes.io/component`, for pods of the chart."""
    app: str = ""
    """`app`, else `app.kubernetes.io/name`."""
    slot: str = ""
    is_running: bool = False
    is_ready: bool = False
    message: str = ""
    """Why it does not run, in the API server's words."""


def read_node(raw: Any) -> KubeNode | None:
    """None: not a node."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    name = _text(meta, "name")
    if not name:
        return None
    offered = _map(status, "allocatable")
    return KubeNode(
        name=name,
        labels=_texts(meta, "labels"),
        is_cordoned=spec.get("unschedulable") is True,
        removal=_removal(meta, spec),
        conditions=tuple(_conditions(status)),
        gpus=_count(offered.get(names.GPU_RESOURCE)),
        has_mig=any(
            str(resource).startswith(names.MIG_RESOURCE_PREFIX) and _count(count)
            for resource, count in offered.items()
        ),
    )


def read_pod(raw: Any) -> KubePod | None:
    """None: not a pod."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    key = key_of(raw)
    if not key:
        return None
    labels = _texts(meta, "labels")
    is_chart = labels.get(names.NAME_LABEL) == names.PART_OF
    is_gone = "deletionTimestamp" in meta
    conditions = {condition.type: condition for condition in _conditions(status)}
    running = _text(status, "phase") == "Running" and not is_gone
    ready = conditions.get("Ready")
    return KubePod(
        key=key,
        uid=_text(meta, "uid"),
        node=_text(spec, "nodeName") or _target(spec),
        component=labels.get(names.COMPONENT_LABEL, "") if is_chart else "",
        app=labels.get("app") or labels.get(names.NAME_LABEL, ""),
        slot=labels.get(names.SLOT_LABEL, ""),
        is_running=running,
        is_ready=running and ready is not None and ready.status == "True",
        message="it is being deleted" if is_gone else _why_not_running(status, conditions),
    )


def key_of(raw: Any) -> str:
    """Namespace and name, or the name alone; "": the object has none."""
    meta = _map(raw, "metadata")
    name, namespace = _text(meta, "name"), _text(meta, "namespace")
    return f"{namespace}/{name}" if namespace and name else name


def version_of(raw: Any) -> tuple[str, str]:
    """uid and resourceVersion."""
    meta = _map(raw, "metadata")
    return _text(meta, "uid"), _text(meta, "resourceVersion")


def _removal(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    if "deletionTimestamp" in meta:
        return "the node object is being deleted"
    for taint in _list(spec, "taints"):
        text = REMOVAL_TAINTS.get(_text(taint, "key"))
        if text is not None:
            return text
    return ""


def _target(spec: Mapping[str, Any]) -> str:
    """The node that a DaemonSet's pod is made for: its affinity names exactly one."""
    affinity = _map(_map(spec, "affinity"), "nodeAffinity")
    required = _map(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    for term in _list(required, "nodeSelectorTerms"):
        for each in _list(term, "matchFields"):
            values = _list(each, "values")
            if _text(each, "key") == "metadata.name" and len(values) == 1:
                return values[0] if isinstance(values[0], str) else ""
    return ""


def _why_not_running(status: Mapping[str, Any], conditions: Mapping[str, Condition]) -> str:
    """The most specific message that the API server has."""
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status != "True" and scheduled.message:
        return scheduled.message
    for container in (*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")):
        waiting = _map(_map(container, "state"), "waiting")
        if waiting:
            return _joined(_text(waiting, "reason"), _text(waiting, "message"))
    return _joined(_text(status, "reason"), _text(status, "message"))


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def _conditions(status: Mapping[str, Any]) -> Iterator[Condition]:
    for each in _list(status, "conditions"):
        kind = _text(each, "type")
        if kind:
            yield Condition(
                kind, _text(each, "status"), _text(each, "reason"), _text(each, "message")
            )


def _count(value: Any) -> int | None:
    """A quantity of devices, which is always a plain integer."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _map(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _texts(value: Any, key: str) -> dict[str, str]:
    return {k: v for k, v in _map(value, key).items() if isinstance(v, str)}
