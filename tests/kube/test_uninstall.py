"""`helm uninstall` leaves nothing but data volumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import Helm

pytestmark = pytest.mark.timeout(600)
NAMESPACE = "uninstall-test"
VALUES = {
    "gpus": {"maxPerNode": 2, "injection": "none"},
    "admissionPolicy": {"enabled": True},
    "gpuOperatorNamespace": "uninstall-operator",
}
IGNORED = {"events", "endpointslices", "endpoints", "leases", "kube-root-ca.crt"}


def every_object(cluster: ControlPlane) -> set[str]:
    """Names of all objects of all kinds, those of the system too."""
    api, found = cluster.api, set()
    groups = [
        f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"]
    ]
    for group in ("/api/v1", *groups):
        for kind in api.get(group)["resources"]:
            if "list" not in kind["verbs"] or kind["name"] in IGNORED:
                continue
            for item in api.items(f"{group}/{kind['name']}"):
                meta = item["metadata"]
                if meta["name"] not in IGNORED:
                    found.add(f"{kind['name']}/{meta.get('namespace', '')}/{meta['name']}")
    return found


def test_uninstall_leaves_the_volume(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, helm: Helm
):
    api = control_plane.api
    for name in (NAMESPACE, "uninstall-operator"):
        api.namespace(name)
        until(lambda: api.items(f"/api/v1/namespaces/{name}/serviceaccounts"), name)  # noqa: B023
    before = every_object(control_plane)
    control_plane.add_node("uninstall-n0", gpus=2, **{"gpushare.jupyter.org/managed": "true"})
    installed = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    installed.install(VALUES, NAMESPACE)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def bound(component: str) -> list[Any]:
        found = api.items(pods, labelSelector=f"app.kubernetes.io/component={component}")
        return [pod for pod in found if pod["spec"].get("nodeName")]

    until(lambda: len(bound("slot")) == 2, "the slots are bound")
    until(lambda: bound("agent"), "the agent is bound")
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    until(lambda: api.items(claims), "the scheduler has a volume claim")
    installed.uninstall(NAMESPACE)
    until(lambda: not bound("slot"), "slots are gone", 10)
    for pod in api.items(pods):  # the node has no kubelet that would end them
        api.delete(api.path(pod), gracePeriodSeconds=0)
    api.delete("/api/v1/nodes/uninstall-n0")
    kept = f"persistentvolumeclaims/{NAMESPACE}/state-gpushare-scheduler-0"
    until(lambda: every_object(control_plane) - before == {kept}, "only the volume claim is left")
