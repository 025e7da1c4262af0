"""The optional ValidatingAdmissionPolicy: GPUs and the agent's folder only where allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kube.api import Refused
from tests.kube.control_plane import ControlPlane, until
from tests.kube.helm import Helm

pytestmark = pytest.mark.timeout(600)
NAMESPACE, ALLOWED, OTHER = "policy-test", "policy-hub", "policy-other"
DEVICES = {"name": "NVIDIA_VISIBLE_DEVICES"}

REFUSED: dict[str, dict[str, Any]] = {
    "all GPUs": {"env": [DEVICES | {"value": "all"}]},
    "one GPU": {"env": [DEVICES | {"value": "GPU-1"}]},
    "by reference": {
        "env": [DEVICES | {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]
    },
    "in an init container": {"init": [DEVICES | {"value": "all"}]},
    "the folder of the socket": {"path": "/run/gpushare"},
    "with a slash": {"path": "/run/gpushare/"},
    "the socket": {"path": "/run/gpushare/agent.sock"},
    "by the other name of /run": {"path": "/var/run/gpushare"},
    "with empty parts": {"path": "//run/./gpushare"},
    "the agent's journal": {"path": "/var/lib/gpushare"},
    "simulated GPUs": {"path": "/run/gpushare-simulated"},
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "void": {"env": [DEVICES | {"value": "void"}]},
    "another variable": {"env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]},
    "another folder": {"path": "/run/gpushare-other"},
    "nothing": {},
}


def pod(env: Any = (), init: Any = (), path: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    spec: dict[str, Any] = {"containers": [container | {"env": list(env)}]}
    if init:
        spec["initContainers"] = [container | {"name": "init", "env": list(init)}]
    if path:
        spec["volumes"] = [{"name": "folder", "hostPath": {"path": path}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asking"}, "spec": spec}


@pytest.fixture(scope="module")
def policy(control_plane: ControlPlane, helm: Helm, tmp_path_factory) -> Iterator[ControlPlane]:
    api = control_plane.api
    for name in (NAMESPACE, ALLOWED, OTHER):
        api.namespace(name)
        until(lambda: api.items(f"/api/v1/namespaces/{name}/serviceaccounts"), name)  # noqa: B023
    installed = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    values = {
        "gpus": {"maxPerNode": 1},
        "agent": {"simulate": "A100:1"},
        "admissionPolicy": {"enabled": True, "allowedNamespaces": [ALLOWED]},
    }
    installed.install(values, NAMESPACE)
    until(lambda: refusal(control_plane, OTHER, pod(path="/run/gpushare")), "the policy applies")
    yield control_plane
    installed.uninstall(NAMESPACE)


def refusal(cluster: ControlPlane, namespace: str, asked: dict[str, Any]) -> str:
    """The message of the API server; "": the pod would be accepted."""
    try:
        cluster.api.apply(asked, namespace=namespace, dry_run=True)
    except Refused as error:
        assert error.code in (403, 422), error
        return str(error)
    return ""


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_other_namespaces(policy: ControlPlane, asked: dict[str, Any]):
    assert "admissionPolicy.allowedNamespaces of gpushare" in refusal(policy, OTHER, pod(**asked))
    for namespace in (NAMESPACE, ALLOWED):
        assert refusal(policy, namespace, pod(**asked)) == ""


@pytest.mark.parametrize("asked", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_everywhere(policy: ControlPlane, asked: dict[str, Any]):
    assert refusal(policy, OTHER, pod(**asked)) == ""


def test_a_container_that_is_added_to_a_running_pod(policy: ControlPlane):
    api, running = policy.api, pod()
    running["metadata"] |= {"name": "running", "namespace": OTHER}
    api.apply(running)
    path = f"{api.path(running)}/ephemeralcontainers"

    def add(value: str) -> None:
        """Again if the pod has changed meanwhile."""
        env = [DEVICES | {"value": value}]
        while True:
            changed = api.get(path)
            changed["spec"]["ephemeralContainers"] = [
                {"name": "debug", "image": "none", "env": env}
            ]
            try:
                api.call("PUT", path, changed)
                return
            except Refused as error:
                if "has been modified" not in str(error):
                    raise

    with pytest.raises(Refused, match="NVIDIA_VISIBLE_DEVICES may not be set"):
        add("all")
    add("void")
    api.remove(running)
