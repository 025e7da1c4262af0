"""Slots: Kubernetes itself keeps ordinary GPU pods off managed nodes. On a real control plane with
nodes without a kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpushare.kube import names
from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import Helm

pytestmark = pytest.mark.timeout(600)

NAMESPACE = "slots-test"
SLOTS = f"{names.COMPONENT_LABEL}={names.COMPONENT_SLOT}"


class Lab:
    """A cluster with the chart's slots, and pods that ask for GPUs."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.cluster, self.api = control_plane, control_plane.api

    def slots(self, node: str) -> list[Any]:
        """The slot pods that are bound to a node and not being deleted."""
        pods = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=SLOTS)
        return [pod for pod in pods if pod["spec"].get("nodeName") == node]

    def wanted(self, node: str) -> list[Any]:
        """All slot pods for a node, bound or not."""
        pods = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=SLOTS)
        return [pod for pod in pods if f"'{node}'" in str(pod["spec"]["affinity"])]

    def full(self, node: str, gpus: int) -> tuple[int, int] | None:
        """(slots, other pods) that hold GPUs of a node; None: a GPU is free."""
        pods = self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        holders = [pod for pod in pods if "nvidia.com/gpu" in str(pod["spec"]["containers"])]
        slots = [pod for pod in holders if names.SLOT_LABEL in pod["metadata"].get("labels", {})]
        return (len(slots), len(holders) - len(slots)) if len(holders) >= gpus else None

    def manage(self, node: str, *, managed: bool = True) -> None:
        self.cluster.label_node(node, **{names.MANAGED_LABEL: "true" if managed else None})

    def ordinary_pod(self, name: str, node: str, gpus: int = 1) -> dict[str, Any]:
        """A pod of another team that asks Kubernetes for GPUs of a node."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}},
                    }
                ],
            },
        }

    def phase(self, pod: dict[str, Any]) -> tuple[str | None, str]:
        """(node, why it is not scheduled)."""
        now = self.api.get(self.api.path(pod))
        conditions = now.get("status", {}).get("conditions", [])
        why = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
        return now["spec"].get("nodeName"), "".join(why)


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane, helm: Helm, tmp_path_factory) -> Iterator[Lab]:
    control_plane.api.namespace(NAMESPACE)
    installed = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    installed.install({"gpus": {"maxPerNode": 4}}, NAMESPACE)
    for name, gpus in (("slots-a", 4), ("slots-b", 2), ("slots-cpu", 0)):
        control_plane.add_node(name, gpus=gpus)
    yield Lab(control_plane)
    for name in ("slots-a", "slots-b", "slots-cpu"):
        control_plane.api.delete(f"/api/v1/nodes/{name}")
    installed.uninstall(NAMESPACE)


def test_a_label_reserves_every_gpu_and_its_removal_releases_them(lab: Lab):
    for node in ("slots-a", "slots-b", "slots-cpu"):
        lab.manage(node)
    until(lambda: len(lab.slots("slots-a")) == 4, "four slots", 10)
    until(lambda: len(lab.slots("slots-b")) == 2, "two slots", 10)
    assert lab.slots("slots-cpu") == []
    ordinary = lab.ordinary_pod("ordinary", "slots-a")
    lab.api.apply(ordinary)
    until(lambda: "Insufficient nvidia.com/gpu" in lab.phase(ordinary)[1], "the pod has to wait")
    assert lab.phase(ordinary)[0] is None
    lab.manage("slots-a", managed=False)
    until(lambda: not lab.slots("slots-a"), "no slots", 2)
    until(lambda: lab.phase(ordinary)[0] == "slots-a", "the pod gets a GPU")
    lab.manage("slots-a")  # one GPU is taken
    until(lambda: len(lab.slots("slots-a")) == 3, "three slots")
    [waiting] = [pod for pod in lab.wanted("slots-a") if not pod["spec"].get("nodeName")]
    until(lambda: "Insufficient nvidia.com/gpu" in lab.phase(waiting)[1], "the reason is known")
    assert lab.phase(ordinary)[0] == "slots-a", "slots evict nobody"
    lab.api.remove(ordinary)
    until(lambda: len(lab.slots("slots-a")) == 4, "the slot gets the GPU that became free")


def test_ordinary_pods_never_get_a_gpu_of_a_ready_node(lab: Lab):
    """They keep asking while slots are deleted: the node has a gap, and is not ready in it. Then
    each GPU has one holder.
    """
    lab.manage("slots-b")
    until(lambda: len(lab.slots("slots-b")) == 2, "two slots", 10)
    pods = [lab.ordinary_pod(f"greedy-{number}", "slots-b") for number in range(3)]
    lab.api.apply(*pods)
    until(lambda: all(lab.phase(pod)[1] for pod in pods), "the pods have to wait")
    for _ in range(5):
        lab.api.delete(lab.api.path(lab.slots("slots-b")[0]), gracePeriodSeconds=0)
        slots, others = until(lambda: lab.full("slots-b", 2), "every GPU has a holder")
        assert slots + others == 2
        for pod in pods:  # those that got a GPU of the gap end
            if lab.phase(pod)[0]:
                lab.api.remove(pod)
                until(lambda: lab.full("slots-b", 2), "another holder")
                lab.api.apply(pod)
        until(lambda: lab.full("slots-b", 2) == (2, 0), "slots hold both GPUs")
    for pod in pods:
        lab.api.remove(pod)
    until(lambda: len(lab.slots("slots-b")) == 2, "two slots again")


def test_a_failed_slot_comes_back(lab: Lab):
    lab.manage("slots-b")
    until(lambda: len(lab.slots("slots-b")) == 2, "two slots", 10)
    before = {pod["metadata"]["uid"] for pod in lab.slots("slots-b")}
    lab.cluster.set_pod_status(lab.slots("slots-b")[0], phase="Failed")
    until(
        lambda: len({p["metadata"]["uid"] for p in lab.slots("slots-b")} - before) == 1,
        "a new slot",
    )


def test_an_upgrade_releases_no_gpu(
    lab: Lab, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
):
    lab.manage("slots-b")
    until(lambda: len(lab.slots("slots-b")) == 2, "two slots", 10)
    before = {pod["metadata"]["uid"] for pod in lab.slots("slots-b")}
    helm = Helm(tmp_path_factory.mktemp("upgrade"), control_plane.kubeconfig)
    helm.install({"gpus": {"maxPerNode": 4}, "slots": {"image": {"tag": "3.11"}}}, NAMESPACE)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-slot-0"

    def is_observed() -> bool:
        slot = control_plane.api.get(path)
        return slot["status"].get("observedGeneration") == slot["metadata"]["generation"]

    until(is_observed, "the new template is known")
    assert {pod["metadata"]["uid"] for pod in lab.slots("slots-b")} == before
