"""The test cluster itself: what the other tests of this folder rely on."""

from __future__ import annotations

import pytest

from tests.kube.api import Api, Refused
from tests.kube.control_plane import ControlPlane, until
from tests.kube.images import PYTHON, host_pod
from tests.kube.node import OneNodeCluster

pytestmark = pytest.mark.timeout(600)


def test_a_pod_is_bound_to_a_node_without_a_kubelet(control_plane: ControlPlane):
    api = control_plane.api
    control_plane.add_node("cluster-n0", gpus=2)
    api.namespace("cluster-test")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "cluster-test"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "cluster-n0"},
            "containers": [
                {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ],
        },
    }
    api.apply(pod)
    path = api.path(pod)
    until(lambda: api.get(path)["spec"].get("nodeName") == "cluster-n0", "the pod is bound")
    control_plane.set_pod_status(api.get(path))
    assert api.get(path)["status"]["phase"] == "Running"
    api.delete(path, gracePeriodSeconds=0)
    api.delete("/api/v1/nodes/cluster-n0")


def test_the_api_server_can_be_killed(control_plane: ControlPlane):
    control_plane.restart_api_server()
    assert control_plane.api.get("/api/v1/namespaces/default")


def test_a_container_runs_this_python_as_another_user(one_node_cluster: OneNodeCluster):
    """It reaches the API server by the address of its Service, and a headless Service by name."""
    api = one_node_cluster.api
    code = (
        "import jupyter_gpushare, os, socket; "
        "socket.create_connection((os.environ['KUBERNETES_SERVICE_HOST'], 443), 10); "
        "print('uid', os.getuid(), socket.gethostbyname('test.default.svc.cluster.local'))"
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "test"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": "kubernetes-test"},
            "ports": [{"port": 80}],
        },
    }
    pod = host_pod("python", [PYTHON, "-c", code], app="kubernetes-test")
    pod["spec"]["restartPolicy"] = "OnFailure"  # the Service may know its address a moment later
    api.apply(service, pod)
    until(lambda: api.get(api.path(pod))["status"]["phase"] == "Succeeded", "the pod ran")
    address = api.get(api.path(pod))["status"]["podIP"]
    assert api.log("default", "python").split("\n")[-2] == f"uid 1000 {address}"
    for item in (pod, service):
        api.remove(item)


def test_a_pod_starts_again_after_a_kill_of_the_kubelet(one_node_cluster: OneNodeCluster):
    api = one_node_cluster.api
    pod = host_pod("sleeper", ["/pause"])
    api.apply(pod)
    until(lambda: api.get(api.path(pod))["status"]["phase"] == "Running", "the pod runs")
    one_node_cluster.processes.kill("kubelet")
    one_node_cluster.processes.start_again("kubelet")
    api.delete(api.path(pod), gracePeriodSeconds=1)
    until(lambda: gone(api, api.path(pod)), "the kubelet ends the pod")


def gone(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except Refused as error:
        return error.code == 404
    return False
