"""Judges a cluster for `kube check`: one line per subject, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.reason import counted

from . import names
from .check_facts import ClusterFacts, HubFacts, Unread
from .inventory import Inventory
from .rules import RuleSettings

__all__ = ["CheckResult", "Verdict", "check_cluster"]

Verdict = Literal["ok", "missing", "unknown", "note"]
OLDEST: Final = (1, 32)
"""The oldest version whose tokens always name their node."""
VERSION: Final = re.compile(r"\Av?(\d+)\.(\d+)")
INJECTION: Final = "gpus.injection in the values: runtimeClass, nri, volumeMounts or none"
PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line. `missing`: it does not work without; `unknown`: it may not be read; `note`: a hint
    about another system.
    """

    subject: str
    verdict: Verdict
    message: str
    to_do: str = ""


Results = Iterator[CheckResult]


def check_cluster(facts: ClusterFacts) -> list[CheckResult]:
    """All results, in the order of an installation."""
    checks: tuple[Callable[[ClusterFacts], Results], ...] = (
        _version,
        _permissions,
        _scheduler,
        _agent,
        _injection,
        _slots,
        _nodes,
        _other_schedulers,
        _hubs,
    )
    return [result for check in checks for result in check(facts)]


def _version(facts: ClusterFacts) -> Results:
    text = str(facts.version.get("gitVersion") if isinstance(facts.version, dict) else "")
    found = VERSION.search(text)
    if found is None:
        yield CheckResult("version", "unknown", f"the version {text!r} cannot be read")
    elif (int(found[1]), int(found[2])) < OLDEST:
        message = f"Kubernetes {text}: tokens of agents may not name their node"
        yield CheckResult("version", "missing", message, "upgrade to Kubernetes 1.32 or later")
    else:
        yield CheckResult("version", "ok", f"Kubernetes {text}")


def _permissions(facts: ClusterFacts) -> Results:
    whose = facts.account or "the current user"
    for permission in facts.permissions:
        if isinstance(permission.is_given, Unread):
            yield CheckResult("permission", "unknown", f"{permission}: {permission.is_given.why}")
        elif permission.is_given:
            yield CheckResult("permission", "ok", str(permission))
        else:
            to_do = f"grant it to {whose}; the chart's role gpushare-scheduler has it"
            yield CheckResult("permission", "missing", f"{whose} may not {permission}", to_do)


def _scheduler(facts: ClusterFacts) -> Results:
    what, found = "scheduler", facts.scheduler
    if isinstance(found, Unread):
        yield CheckResult(what, "unknown", found.why)
    elif found is None:
        message = f"no StatefulSet {names.SCHEDULER_NAME} in namespace {facts.namespace}"
        yield CheckResult(
            what, "missing", message, "install the chart (jupyter gpushare kube chart)"
        )
    else:
        wanted = _at(found, "spec", "replicas") or 0
        ready = _at(found, "status", "readyReplicas") or 0
        message = f"{ready} of {counted(wanted, 'replica')} ready"
        is_ok = ready >= 1
        to_do = (
            "" if is_ok else f"kubectl -n {facts.namespace} describe pod -l {_label('scheduler')}"
        )
        yield CheckResult(what, "ok" if is_ok else "missing", message, to_do)


def _agent(facts: ClusterFacts) -> Results:
    if isinstance(facts.agent, Unread):
        yield CheckResult("agent", "unknown", facts.agent.why)
    elif facts.agent is None:
        message = f"no DaemonSet {names.AGENT_NAME} in namespace {facts.namespace}"
        yield CheckResult("agent", "missing", message, "install the chart")


def _injection(facts: ClusterFacts) -> Results:
    """How the agent's container gets the GPUs."""
    if not isinstance(facts.agent, dict):
        return
    spec = _at(facts.agent, "spec", "template", "spec") or {}
    wanted, known = spec.get("runtimeClassName"), facts.runtime_classes
    if isinstance(known, Unread):
        yield CheckResult("injection", "unknown", f"runtime classes: {known.why}")
    elif wanted and wanted not in known:
        message = f'RuntimeClass "{wanted}" does not exist, so agents cannot be created'
        to_do = f"{INJECTION}. With the GPU Operator's NRI plugin: nri"
        yield CheckResult("injection", "missing", message, to_do)
    elif wanted:
        yield CheckResult("injection", "ok", f'RuntimeClass "{wanted}"')
    elif "nvidia" in known and "NVIDIA_VISIBLE_DEVICES" in str(spec):
        message = 'the cluster has a RuntimeClass "nvidia", and agents do not use it'
        yield CheckResult("injection", "note", message, INJECTION)
    else:
        yield CheckResult("injection", "ok", "without a RuntimeClass")


def _slots(facts: ClusterFacts) -> Results:
    if isinstance(facts.slots, Unread):
        yield CheckResult("slots", "unknown", facts.slots.why)
    elif not facts.slots:
        message = "no slot DaemonSets: other pods can be given the GPUs of managed nodes"
        yield CheckResult("slots", "note", message, "intended with gpus.reserve: false")
    elif facts.priority_class is None:
        message = f"no PriorityClass {names.PRIORITY_CLASS}: slots cannot be created"
        yield CheckResult("slots", "missing", message, "install the chart again")
    else:
        yield CheckResult("slots", "ok", f"up to {counted(len(facts.slots), 'GPU')} per node")


def _nodes(facts: ClusterFacts) -> Results:
    if isinstance(facts.nodes, Unread):
        yield CheckResult("nodes", "unknown", facts.nodes.why)
        return
    inventory = _inventory(facts)
    managed = inventory.managed()
    if not managed:
        message = f"no node has the label {names.MANAGED_LABEL}={names.MANAGED_VALUE}"
        to_do = f"kubectl label node NODE {names.MANAGED_LABEL}={names.MANAGED_VALUE}"
        yield CheckResult("nodes", "missing", message, to_do)
    for node in managed:
        described = inventory.describe(node.name)
        assert described is not None
        problems = [f"{condition}: {text}" for condition, text in described.conditions.items()]
        pods = inventory.on_node(node.name)
        agents = [pod for pod in pods if pod.component == names.COMPONENT_AGENT]
        if not isinstance(facts.pods, Unread) and not any(pod.is_ready for pod in agents):
            problems += inventory.agent_problems(set(inventory.nodes) - {node.name})
        reserved = NodeCondition.GPUS_NOT_RESERVED in described.conditions
        if problems:
            to_do = _node_hint(node.labels) if reserved else ""
            yield CheckResult(f"node {node.name}", "missing", "; ".join(problems), to_do)
        else:
            gpus = f"{counted(node.gpus, 'GPU')}, " if node.gpus else ""
            yield CheckResult(f"node {node.name}", "ok", f"{gpus}agent ready")


def _inventory(facts: ClusterFacts) -> Inventory:
    unread = f"pods: {facts.pods.why}" if isinstance(facts.pods, Unread) else ""
    inventory = Inventory(RuleSettings(reserve=bool(facts.slots), pods_problem=unread))
    for node in facts.nodes if isinstance(facts.nodes, list) else ():
        inventory.put_node(node.name, node)
    for pod in facts.pods if isinstance(facts.pods, list) else ():
        inventory.put_pod(pod.key, pod)
    return inventory


def _node_hint(labels: Any) -> str:
    if labels.get(names.SHARING_LABEL, "none") not in ("", "none"):
        return "turn time-slicing or MPS off in the device plugin's configuration of this node"
    if names.GPU_COUNT_LABEL not in labels:
        return f"label the node with {names.GPU_COUNT_LABEL}=NUMBER, or set gpus.countLabel"
    return "end the pods that hold GPUs of this node (kubectl describe node), then the slots start"


def _other_schedulers(facts: ClusterFacts) -> Results:
    if isinstance(facts.groups, Unread):
        yield CheckResult("other schedulers", "unknown", facts.groups.why)
        return
    if any(group.endswith(("scheduling.run.ai", "kai.scheduler")) for group in facts.groups):
        message = "KAI is installed: it may refuse pods that state NVIDIA_VISIBLE_DEVICES"
        to_do = f"exempt the namespaces {facts.namespace} and JupyterHub's from its admission"
        yield CheckResult("KAI", "note", message, to_do)
    if "kueue.x-k8s.io" in facts.groups:
        message = "Kueue is installed: it may hold back pods without a queue name"
        to_do = f"exclude {facts.namespace} and JupyterHub's by managedJobsNamespaceSelector"
        yield CheckResult("Kueue", "note", message, to_do)


def _hubs(facts: ClusterFacts) -> Results:
    if isinstance(facts.hubs, Unread):
        yield CheckResult("JupyterHub", "unknown", facts.hubs.why)
        return
    if not facts.hubs:
        yield CheckResult("JupyterHub", "note", "no JupyterHub (app=jupyterhub) was found")
    for hub in facts.hubs:
        yield from _hub(hub, facts.namespace)


def _hub(hub: HubFacts, namespace: str) -> Results:
    what = f"JupyterHub {hub.namespace}"
    enforced = "" if isinstance(hub.labels, Unread) else _enforced(hub.labels)
    if enforced:
        message = f"the namespace enforces {enforced}, which refuses the socket's hostPath volume"
        yield CheckResult(
            what, "missing", message, "set pod-security.kubernetes.io/enforce=privileged"
        )
    if isinstance(hub.policies, Unread):
        yield CheckResult(what, "unknown", f"network policies: {hub.policies.why}")
        return
    if not _admits_scheduler(hub.policies):
        message = "its network policy keeps the scheduler out"
        to_do = "hub.networkPolicy.interNamespaceAccessLabels: accept"
        yield CheckResult(what, "missing", message, to_do)
    if not _lets_users_out(hub.policies, namespace):
        message = "its network policy keeps users' servers from the scheduler"
        to_do = (
            f"singleuser.networkPolicy.egress: port {names.SCHEDULER_PORT} of namespace {namespace}"
        )
        yield CheckResult(what, "missing", message, to_do)
    elif _admits_scheduler(hub.policies):
        yield CheckResult(what, "ok", "network policies let scheduler and users' servers through")


def _enforced(labels: dict[str, Any]) -> str:
    level = str(labels.get("pod-security.kubernetes.io/enforce", ""))
    return level if level in ("baseline", "restricted") else ""


def _admits_scheduler(policies: list[Any]) -> bool:
    """Whether pods of another namespace with the Hub's access label reach the Hub."""
    rules, is_open = _rules(policies, "hub", "Ingress")
    for rule in rules:
        peers = rule.get("from")
        if not peers:
            return True
        for peer in peers:
            wanted = _at(peer, "podSelector", "matchLabels") or {}
            if "namespaceSelector" in peer and set(wanted) <= {names.HUB_ACCESS_LABEL}:
                return True
    return is_open


def _lets_users_out(policies: list[Any], namespace: str) -> bool:
    """Whether users' servers reach the scheduler's port. Rules for all of the internet do not
    count if they exclude private addresses.
    """
    rules, is_open = _rules(policies, "singleuser-server", "Egress")
    for rule in rules:
        ports = rule.get("ports")
        if ports and names.SCHEDULER_PORT not in [port.get("port") for port in ports]:
            continue
        peers = rule.get("to")
        if not peers or any(_reaches(peer, namespace) for peer in peers):
            return True
    return is_open


def _reaches(peer: dict[str, Any], namespace: str) -> bool:
    if "ipBlock" in peer:
        return not set(PRIVATE) & set(peer["ipBlock"].get("except") or ())
    if "namespaceSelector" not in peer:
        return False  # pods of the Hub's own namespace
    wanted = _at(peer, "namespaceSelector", "matchLabels") or {}
    return all(
        key == "kubernetes.io/metadata.name" and value == namespace for key, value in wanted.items()
    )


def _rules(policies: list[Any], component: str, direction: str) -> tuple[list[Any], bool]:
    """The rules of all policies for these pods; whether no policy restricts them."""
    found: list[Any] = []
    is_open = True
    for policy in policies:
        spec = policy.get("spec") or {}
        selected = _at(spec, "podSelector", "matchLabels") or {}
        applies = selected.get("component", component) == component
        if applies and direction in (spec.get("policyTypes") or ("Ingress",)):
            is_open = False
            found += spec.get(direction.lower()) or ()
    return found, is_open


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _label(component: str) -> str:
    return f"{names.COMPONENT_LABEL}={component}"
