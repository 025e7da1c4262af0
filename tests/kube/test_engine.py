"""The scheduler beside a real control plane: nodes, slots, cordons, permissions, outages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.engine import EngineConfig
from tests.kube.control_plane import ControlPlane
from tests.kube.kubernetes_scheduler import Kubernetes, add_pod, until_async

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMESPACE = "engine-test"
MANAGED = {names.MANAGED_LABEL: "true"}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.api.namespace(NAMESPACE)
    for account in (names.AGENT_ACCOUNT, names.SCHEDULER_ACCOUNT, "other"):
        _account(control_plane, account)
    for name in ("engine0", "engine1"):
        control_plane.add_node(name, gpus=2, **MANAGED)
    _permit(control_plane)
    yield control_plane
    for name in ("engine0", "engine1", "engine2"):
        control_plane.api.delete(f"/api/v1/nodes/{name}")


def _account(cluster: ControlPlane, name: str) -> None:
    cluster.api.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
    )


def _permit(cluster: ControlPlane, *, pods: bool = True, reviews: bool = True) -> None:
    """The roles of the chart, or fewer."""
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    if reviews:
        rules.append(
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["tokenreviews"],
                "verbs": ["create"],
            }
        )
    ours = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}] if pods else []
    group = "rbac.authorization.k8s.io"
    for kind, given in (("ClusterRole", rules), ("Role", ours)):
        place = {} if kind == "ClusterRole" else {"namespace": NAMESPACE}
        meta = {"name": NAMESPACE, **place}
        subject = {
            "kind": "ServiceAccount",
            "name": names.SCHEDULER_ACCOUNT,
            "namespace": NAMESPACE,
        }
        role = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "rules": given}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": kind, "name": NAMESPACE},
            "subjects": [subject],
        }
        cluster.api.apply(role, binding)


@pytest.fixture
def agents(cluster: ControlPlane) -> Iterator[dict[str, str]]:
    """Node -> token of the agent's pod there."""
    tokens = {}
    for node in ("engine0", "engine1"):
        pod = add_pod(
            cluster, NAMESPACE, f"agent-{node}", node, names.COMPONENT_AGENT, names.AGENT_ACCOUNT
        )
        cluster.set_pod_status(pod)
        tokens[node] = _token(cluster, pod)
    yield tokens
    for node in tokens:
        cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/agent-{node}")


def _token(cluster: ControlPlane, pod: Any, audience: str = names.AUDIENCE) -> str:
    account = pod["spec"]["serviceAccountName"]
    return cluster.account_token(NAMESPACE, account, audience=audience, pod=pod)


def slots(cluster: ControlPlane, node: str, count: int) -> None:
    for i in range(count):
        pod = add_pod(cluster, NAMESPACE, f"slot-{i}-{node}", node, names.COMPONENT_SLOT)
        cluster.set_pod_status(pod)


def remove_slot(cluster: ControlPlane, node: str, slot: int) -> None:
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/slot-{slot}-{node}")


def kubeconfig(cluster: ControlPlane) -> Path:
    token = cluster.account_token(NAMESPACE, names.SCHEDULER_ACCOUNT)
    return cluster.certificates.with_token(f"scheduler-{len(token)}", token)


CONFIG = EngineConfig(NAMESPACE)


def test_nodes_slots_and_cordons(
    cluster: ControlPlane, agents: dict[str, str], tmp_path: Path
) -> None:
    async def run() -> None:
        account = kubeconfig(cluster)
        async with (
            Kubernetes.beside(cluster, tmp_path, CONFIG, account) as kubernetes,
            kubernetes.agent("engine0", agents["engine0"]),
        ):
            row = await kubernetes.until_reasons("engine0", "GPUs not reserved")
            assert row.reason_details["GPUs not reserved"].startswith("slots hold 0 of 2 GPUs")
            slots(cluster, "engine0", 2)
            row = await kubernetes.until_reasons("engine0")
            assert row.status == "Ready"
            cluster.api.merge("/api/v1/nodes/engine0", {"spec": {"unschedulable": True}})
            await kubernetes.until_reasons("engine0", "scheduling disabled")
            cluster.api.merge("/api/v1/nodes/engine0", {"spec": {"unschedulable": None}})
            await kubernetes.until_reasons("engine0")
            cluster.set_node_status("engine0", ready=False)
            row = await kubernetes.until_reasons("engine0", "Kubernetes node not ready")
            assert row.reason_details["Kubernetes node not ready"].startswith("set by a test")
            cluster.set_node_status("engine0")
            await kubernetes.until_reasons("engine0")
            remove_slot(cluster, "engine0", 1)
            row = await kubernetes.until_reasons("engine0", "GPUs not reserved")
            remove_slot(cluster, "engine0", 0)
            await until_async(
                lambda: any("engine1" in one for one in kubernetes.status().problems),
                "a managed node without a connected agent is named",
            )

    asyncio.run(run())


def test_tokens_of_agents(cluster: ControlPlane, agents: dict[str, str], tmp_path: Path) -> None:
    async def run() -> None:
        async with Kubernetes.beside(cluster, tmp_path, CONFIG, kubeconfig(cluster)) as kubernetes:
            await until_async(lambda: kubernetes.engine.pods.is_synced, "pods are listed")
            whoami = await kubernetes.running.client(agents["engine0"]).whoami()
            assert (whoami.user, whoami.scope, whoami.source) == ("engine0", "agent", "kubernetes")
            why = await kubernetes.refusal("engine1", agents["engine0"])
            assert "the token of 'engine0' is not valid for node 'engine1'" in why
            pod = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/agent-engine0")
            other_audience = _token(cluster, pod, "")
            assert "token is needed" in await kubernetes.refusal("engine0", other_audience)
            other = add_pod(cluster, NAMESPACE, "other", "engine0", "", "other")
            why = await kubernetes.refusal("engine0", _token(cluster, other))
            assert why == (
                f"system:serviceaccount:{NAMESPACE}:other is not the service account of the agents"
            )
            unbound = cluster.account_token(NAMESPACE, names.AGENT_ACCOUNT, audience=names.AUDIENCE)
            assert "does not name its node" in await kubernetes.refusal("engine0", unbound)
            assert "token is needed" in await kubernetes.refusal("engine0", unbound + "x")
            own = kubernetes.running.token("engine1", "agent")
            async with kubernetes.agent("engine1", own):
                pass
            cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/other")

    asyncio.run(run())


def test_a_connection_ends_with_its_pod(
    cluster: ControlPlane, agents: dict[str, str], tmp_path: Path
) -> None:
    async def run() -> None:
        async with Kubernetes.beside(cluster, tmp_path, CONFIG, kubeconfig(cluster)) as kubernetes:
            connected = kubernetes.running.server.service.platform.connected
            async with kubernetes.agent("engine1", agents["engine1"]):
                await until_async(lambda: kubernetes.engine.inventory.pods, "pods are listed")
                cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/agent-engine1")
                await until_async(lambda: connected() == set(), "the connection has ended")
            why = await kubernetes.refusal("engine1", agents["engine1"])
            assert "token is needed" in why, "although the API server may still accept it"

    asyncio.run(run())


def test_a_deleted_node_leaves(cluster: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        cluster.add_node("engine2", gpus=2, **MANAGED)
        async with Kubernetes.beside(cluster, tmp_path, CONFIG, kubeconfig(cluster)) as kubernetes:
            own = kubernetes.running.token("engine2", "agent")
            async with kubernetes.agent("engine2", own):
                await kubernetes.until_reasons("engine2", "GPUs not reserved")
                cluster.label_node("engine2", **{names.MANAGED_LABEL: None})
                await kubernetes.until_reasons("engine2", "not managed")
                cluster.api.delete("/api/v1/nodes/engine2")
                await kubernetes.until_reasons("engine2", "node deleted")

            async def is_gone() -> bool:
                return await kubernetes.node("engine2") is None

            await until_async(is_gone, "the node is forgotten")

    asyncio.run(run())


def test_a_missing_permission_is_named(
    cluster: ControlPlane, agents: dict[str, str], tmp_path: Path
) -> None:
    async def run() -> None:
        account = kubeconfig(cluster)
        async with Kubernetes.beside(cluster, tmp_path, CONFIG, account) as kubernetes:
            why = await kubernetes.refusal("engine0", agents["engine0"])
            review = 'no permission: verb "create", resource "tokenreviews.authentication.k8s.io"'
            assert why.startswith(review)
            await until_async(lambda: len(kubernetes.status().problems) >= 2, "both are named")
            problems = " ".join(kubernetes.status().problems)
            assert 'verb "list", resource "pods" in namespace "engine-test"' in problems
            assert review in problems
            async with kubernetes.agent("engine0", kubernetes.running.token("engine0", "agent")):
                row = await kubernetes.until_reasons("engine0", "GPUs not reserved")
                assert "no permission" in row.reason_details["GPUs not reserved"]

    cluster.restricted.add(NAMESPACE)
    _permit(cluster, pods=False, reviews=False)
    try:
        asyncio.run(run())
    finally:
        _permit(cluster)


def test_an_expired_version_and_an_outage(
    cluster: ControlPlane, agents: dict[str, str], tmp_path: Path
) -> None:
    """A restarted API server no longer has the version at which a watch would continue."""

    async def run() -> None:
        account = kubeconfig(cluster)
        async with (
            Kubernetes.beside(cluster, tmp_path, CONFIG, account) as kubernetes,
            kubernetes.agent("engine0", agents["engine0"]),
        ):
            slots(cluster, "engine0", 2)
            await kubernetes.until_reasons("engine0")
            lists = kubernetes.engine.nodes.lists
            cluster.processes.kill("kube-apiserver")
            away = await until_async(
                lambda: kubernetes.status().unreachable_since, "the outage is noticed"
            )
            assert away
            assert await kubernetes.reasons("engine0") == [], "what is known stays"
            ask = kubernetes.running.of("alice")
            view = await ask.submit(asking_on("engine0"))
            await until_async(lambda: is_granted(ask, view.id), "granted in the outage")
            cluster.processes.start_again("kube-apiserver")
            await until_async(lambda: kubernetes.status().unreachable_since is None, "it is back")
            for slot in range(2):
                remove_slot(cluster, "engine0", slot)
            await kubernetes.until_reasons("engine0", "GPUs not reserved")
            assert kubernetes.engine.nodes.lists >= lists

    asyncio.run(run())


def asking_on(node: str) -> Any:
    from jupyter_gpushare import messages as m

    return m.WorkloadRequest(id="w1", pods=[m.PodRequest(name="kernel", gpu=0.5, nodes=[node])])


async def is_granted(client: Any, id_: str) -> bool:
    return (await client.workload(id_)).pods[0].lease is not None
