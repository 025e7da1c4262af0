"""`kube check` on clusters that are not there: what is judged how."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.check_facts import ClusterFacts, HubFacts, Permission, Unread
from jupyter_gpushare.kube.checks import CheckResult, check_cluster
from jupyter_gpushare.kube.objects import read_node, read_pod

from .api_objects import agent_pod, node, slot_pod


def good_facts() -> ClusterFacts:
    """A cluster where everything is there."""
    found_node = read_node(node("n0"))
    pods = [read_pod(pod) for pod in (slot_pod("n0", 0), slot_pod("n0", 1), agent_pod("n0"))]
    assert found_node is not None
    return ClusterFacts(
        "gpushare",
        version={"gitVersion": "v1.34.2"},
        permissions=[Permission("list", "nodes", is_given=True)],
        nodes=[found_node],
        pods=[pod for pod in pods if pod is not None],
        agent={"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}},
        scheduler={"spec": {"replicas": 1}, "status": {"readyReplicas": 1}},
        slots=[{}, {}],
        priority_class={},
        runtime_classes={"nvidia"},
        groups={"apps"},
        hubs=[HubFacts("jhub", {}, [hub_policy(), user_policy()])],
    )


def hub_policy(**peer: Any) -> dict[str, Any]:
    access = {"podSelector": {"matchLabels": {names.HUB_ACCESS_LABEL: "true"}}}
    anywhere = {"namespaceSelector": {"matchLabels": {}}}
    return {
        "spec": {
            "podSelector": {"matchLabels": {"app": "jupyterhub", "component": "hub"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": 8081}], "from": [peer or (access | anywhere)]}],
        }
    }


def user_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    to = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gpushare"}}}
    return {
        "spec": {
            "podSelector": {"matchLabels": {"component": "singleuser-server"}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": list(rules) or [{"ports": [{"port": 8470}], "to": [to]}],
        }
    }


def wrong(facts: ClusterFacts) -> list[CheckResult]:
    return [result for result in check_cluster(facts) if result.verdict != "ok"]


def test_a_complete_cluster() -> None:
    assert wrong(good_facts()) == []


@pytest.mark.parametrize(
    ("gpus", "message"), [(2, "2 GPUs, agent ready"), (0, "agent ready"), (None, "agent ready")]
)
def test_a_node_without_a_device_plugin_has_no_count(gpus: int | None, message: str) -> None:
    facts = good_facts()
    found = read_node(node("n0", gpus=gpus))
    assert found is not None
    facts.nodes, facts.slots = [found], facts.slots if gpus else []
    shown = {result.subject: result.message for result in check_cluster(facts)}
    assert shown["node n0"] == message


INTERNET = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}
ANYWHERE = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}
NODES = {
    "shared": node("n0", labels={names.SHARING_LABEL: "mps"}),
    "unlabelled": node("n0", managed=False),
    "larger": node("n0", gpus=3),
}


@pytest.mark.parametrize(
    ("changes", "subject", "message", "to_do"),
    [
        ({"version": {"gitVersion": "v1.31.9"}}, "version", "may not name", "1.32"),
        (
            {"permissions": [Permission("watch", "pods", "", "gpushare")]},
            "permission",
            "may not",
            "",
        ),
        ({"scheduler": None}, "scheduler", "no StatefulSet", "chart"),
        ({"scheduler": {"spec": {"replicas": 2}}}, "scheduler", "0 of 2 replicas", "describe"),
        ({"agent": None}, "agent", "no DaemonSet", "chart"),
        ({"runtime_classes": set()}, "injection", "does not exist", "nri"),
        ({"priority_class": None}, "slots", "PriorityClass", "again"),
        ({"nodes": [read_node(NODES["unlabelled"])]}, "nodes", "no node has", "kubectl label"),
        ({"nodes": [read_node(NODES["shared"])]}, "node n0", "several times", "turn time-slicing"),
        ({"nodes": [read_node(NODES["larger"])]}, "node n0", "slots hold 2 of 3", "end the pods"),
        ({"pods": []}, "node n0", "no agent pod", ""),
        (
            {"hubs": [HubFacts("jhub", {}, [hub_policy(podSelector={})])]},
            "JupyterHub jhub",
            "out",
            "",
        ),
        (
            {"hubs": [HubFacts("jhub", {}, [user_policy(INTERNET)])]},
            "JupyterHub jhub",
            "servers",
            "",
        ),
        (
            {"hubs": [HubFacts("jhub", {"pod-security.kubernetes.io/enforce": "baseline"}, [])]},
            "JupyterHub jhub",
            "hostPath",
            "privileged",
        ),
    ],
)
def test_what_is_missing(changes: dict[str, Any], subject: str, message: str, to_do: str) -> None:
    facts = good_facts()
    for name, value in changes.items():
        setattr(facts, name, value)
    found = [result for result in wrong(facts) if result.verdict == "missing"]
    assert [result.subject for result in found] == [subject]
    assert message in found[0].message
    assert to_do in found[0].to_do


@pytest.mark.parametrize(
    "policies", [[], [user_policy(ANYWHERE)], [user_policy({"ports": [{"port": 8470}]})]]
)
def test_network_policies_that_let_users_out(policies: list[Any]) -> None:
    facts = good_facts()
    facts.hubs = [HubFacts("jhub", {}, policies)]
    assert wrong(facts) == []


def test_other_systems_are_notes() -> None:
    facts = good_facts()
    facts.groups, facts.slots = {"scheduling.run.ai", "kueue.x-k8s.io"}, []
    found = {result.subject: result.verdict for result in wrong(facts)}
    assert found == {"KAI": "note", "Kueue": "note", "slots": "note"}


def test_what_may_not_be_read_is_unknown_and_not_missing() -> None:
    facts = good_facts()
    refused = Unread("forbidden")
    facts.nodes = facts.pods = facts.agent = facts.scheduler = facts.slots = refused
    facts.runtime_classes = facts.groups = facts.hubs = refused
    facts.permissions = [Permission("list", "nodes", is_given=refused)]
    assert {result.verdict for result in wrong(facts)} == {"unknown"}
