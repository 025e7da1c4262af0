"""What follows from nodes and pods: which nodes are managed, and their conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.platform_node import PlatformNode
from jupyter_gpushare.core.model.reason import counted

from . import names
from .objects import KubeNode, KubePod

__all__ = ["RuleSettings", "agent_problem", "describe", "slot_problem"]

PRESSURES: Final = {
    "DiskPressure": NodeCondition.DISK_PRESSURE,
    "MemoryPressure": NodeCondition.MEMORY_PRESSURE,
    "PIDPressure": NodeCondition.PID_PRESSURE,
    "NetworkUnavailable": NodeCondition.NETWORK_UNAVAILABLE,
}
LONGEST_MESSAGE: Final = 500
"""Characters of a message of the API server that are shown."""


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """`reserve`: slot pods hold the GPUs of managed nodes. `pods_problem`: why the pods of our
    namespace are not known; `sees_operator`: the GPU Operator's pods are known.
    """

    reserve: bool = True
    pods_problem: str = ""
    sees_operator: bool = False


def describe(node: KubeNode, pods: Sequence[KubePod], settings: RuleSettings) -> PlatformNode:
    """The node for the scheduler. `pods`: those on it, of the namespaces that are read."""
    if not node.is_managed:
        message = f"the label {names.MANAGED_LABEL}={names.MANAGED_VALUE} is missing"
        return PlatformNode(node.labels, {NodeCondition.NOT_MANAGED: message}, is_managed=False)
    found = dict(_basic(node))
    if settings.reserve:
        problem = settings.pods_problem or slot_problem(node, pods)
        if problem:
            found[NodeCondition.GPUS_NOT_RESERVED] = problem
    if settings.sees_operator:
        found |= _operator(node, pods)
    cut = {condition: message[:LONGEST_MESSAGE] for condition, message in found.items()}
    return PlatformNode(node.labels, cut)


def _basic(node: KubeNode) -> Iterator[tuple[NodeCondition, str]]:
    if node.is_cordoned or node.removal:
        message = node.removal or "the node is cordoned in Kubernetes (kubectl uncordon)"
        yield NodeCondition.SCHEDULING_DISABLED, message
    for condition in node.conditions:
        message = condition.message or condition.reason or f"{condition.type}={condition.status}"
        if condition.type == "Ready" and condition.status != "True":
            yield NodeCondition.KUBERNETES_NOT_READY, message
        elif condition.type in PRESSURES and condition.status == "True":
            yield PRESSURES[condition.type], message


def slot_problem(node: KubeNode, pods: Sequence[KubePod]) -> str:
    """Why slot pods do not hold all GPUs of a managed node; "": they do."""
    shared = node.labels.get(names.SHARING_LABEL, "none")
    if shared not in ("", "none"):
        return f"the device plugin offers each GPU several times (sharing strategy {shared})"
    if node.has_mig:
        return "the node offers MIG instances, which cannot be shared"
    if not node.gpus:
        return f"the node offers no {names.GPU_RESOURCE}: the device plugin does not run there"
    slots = [pod for pod in pods if pod.component == names.COMPONENT_SLOT]
    running = sum(pod.is_running for pod in slots)
    if running == node.gpus:
        return ""
    if running > node.gpus:
        return f"{running} slots run for {counted(node.gpus, 'allocatable GPU')}"
    held = f"slots hold {running} of {counted(node.gpus, 'GPU')}"
    waiting = sorted((pod.key, pod.message) for pod in slots if not pod.is_running)
    if waiting:
        key, message = waiting[0]
        return f"{held}; {key.rpartition('/')[2]}: {message or 'it is not running yet'}"
    if names.GPU_COUNT_LABEL not in node.labels:
        return f"{held}; the node has no label {names.GPU_COUNT_LABEL}"
    return f"{held}; no further slot pod exists (label {names.GPU_COUNT_LABEL}, gpus.maxPerNode)"


def _operator(node: KubeNode, pods: Sequence[KubePod]) -> Iterator[tuple[NodeCondition, str]]:
    """Parts of the GPU Operator that the node is labelled for and that are not ready."""
    for label, apps, condition in (
        (names.DEPLOY_TOOLKIT_LABEL, (names.TOOLKIT_APP,), NodeCondition.MISSING_CONTAINER_TOOLKIT),
        (
            names.DEPLOY_DCGM_EXPORTER_LABEL,
            names.DCGM_EXPORTER_APPS,
            NodeCondition.MISSING_DCGM_EXPORTER,
        ),
    ):
        here = [pod for pod in pods if pod.app in apps]
        if node.labels.get(label) != "true" or any(pod.is_ready for pod in here):
            continue
        words = "; ".join(f"{pod.key}: {pod.message or 'not ready'}" for pod in here)
        yield condition, words or f"no pod {apps[0]} runs on the node"


def agent_problem(node: KubeNode, pods: Sequence[KubePod], is_connected: bool) -> str:
    """Why a managed node has no agent; "": it has one."""
    if is_connected:
        return ""
    agents = [pod for pod in pods if pod.component == names.COMPONENT_AGENT]
    if not agents:
        return f"node {node.name}: no agent pod (DaemonSet {names.AGENT_NAME})"
    agent = max(agents, key=lambda pod: (pod.is_running, pod.key))
    name = agent.key.rpartition("/")[2]
    if agent.is_running:
        return f"node {node.name}: agent {name} runs, but is not connected; see its log"
    return f"node {node.name}: agent {name} does not run: {agent.message or 'not started yet'}"
