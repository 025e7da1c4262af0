"""Nodes and pods as the API server writes them, for tests."""

from __future__ import annotations

from typing import Any

from jupyter_gpushare.kube import names

__all__ = ["NAMESPACE", "agent_pod", "node", "operator_pod", "slot_pod"]

NAMESPACE = "gpushare"


def node(
    name: str,
    *,
    gpus: int | None = 2,
    managed: bool = True,
    ready: str = "True",
    cordoned: bool = False,
    version: int = 1,
    labels: dict[str, str] | None = None,
    conditions: list[dict[str, str]] | None = None,
    allocatable: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    """A node of a GPU Operator cluster."""
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    if gpus is not None:
        all_labels.setdefault(names.GPU_COUNT_LABEL, str(gpus))
    if managed:
        all_labels[names.MANAGED_LABEL] = names.MANAGED_VALUE
    words = {"True": "kubelet is posting ready status"}.get(ready, "container runtime is down")
    listed = [{"type": "Ready", "status": ready, "reason": "KubeletReady", "message": words}]
    offered = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    if gpus is not None:
        offered[names.GPU_RESOURCE] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": all_labels,
        },
        "spec": {
            **({"unschedulable": True} if cordoned else {}),
            **({"taints": taints} if taints else {}),
        },
        "status": {
            "allocatable": {**offered, **(allocatable or {})},
            "conditions": [*listed, *(conditions or [])],
        },
    }


def _pod(
    name: str,
    node_name: str,
    labels: dict[str, str],
    *,
    running: bool,
    message: str,
    version: int,
    namespace: str = NAMESPACE,
    uid: str = "",
) -> dict[str, Any]:
    """A pod of a DaemonSet: while it is pending, only its affinity names the node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    scheduled = {"type": "PodScheduled", "status": "True"}
    if not running:
        scheduled = {"type": "PodScheduled", "status": "False", "message": message}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": labels,
        },
        "spec": {"affinity": affinity, **({"nodeName": node_name} if running else {})},
        "status": {
            "phase": "Running" if running else "Pending",
            "conditions": [scheduled, {"type": "Ready", "status": str(running)}],
        },
    }


def slot_pod(
    node_name: str, slot: int, *, running: bool = True, message: str = "", version: int = 1
) -> dict[str, Any]:
    """A slot pod of the chart."""
    labels = {
        names.NAME_LABEL: names.PART_OF,
        names.COMPONENT_LABEL: names.COMPONENT_SLOT,
        names.SLOT_LABEL: str(slot),
    }
    name = f"{names.SLOT_NAME.format(slot)}-{node_name}"
    return _pod(name, node_name, labels, running=running, message=message, version=version)


def agent_pod(
    node_name: str, *, running: bool = True, message: str = "", version: int = 1, uid: str = ""
) -> dict[str, Any]:
    """An agent's pod of the chart."""
    labels = {names.NAME_LABEL: names.PART_OF, names.COMPONENT_LABEL: names.COMPONENT_AGENT}
    name = f"{names.AGENT_NAME}-{node_name}"
    return _pod(name, node_name, labels, running=running, message=message, version=version, uid=uid)


def operator_pod(node_name: str, app: str, *, running: bool = True) -> dict[str, Any]:
    """A pod of the GPU Operator."""
    return _pod(
        f"{app}-{node_name}",
        node_name,
        {"app": app},
        running=running,
        message="",
        version=1,
        namespace="gpu-operator",
    )
