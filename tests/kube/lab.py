"""A whole installation on a test cluster: the chart, simulated GPUs, JupyterHub and its users."""

from __future__ import annotations

import base64
from typing import Any, Final

import httpx

from tests.kube.api import Api
from tests.kube.audit import Verb, granted
from tests.kube.control_plane import until
from tests.kube.helm import Helm, slots_image
from tests.kube.images import ENVIRONMENT, HOST_IMAGE, host_mounts
from tests.kube.node import OneNodeCluster
from tests.kube.z2jh import NAMESPACE as HUB_NAMESPACE
from tests.kube.z2jh import Hub
from tests.story.hub_process import Person

__all__ = ["GPUS", "NAMESPACE", "Lab", "url_of"]

NAMESPACE: Final = "gpushare"
GPUS: Final = 2
POLICY: Final = {
    "departments": [{"name": "research", "pools": {"default": {"gpu": {"quota": GPUS}}}}],
    "projects": [
        {
            "name": name,
            "department": "research",
            "members": [f"group:{name}"],
            "pools": {"default": {"gpu": {"quota": GPUS / 2}}},
        }
        for name in ("vision", "language")
    ],
    "defaults": {"notice": "5s"},
}
GROUPS: Final = {"vision": {"users": ["alice"]}, "language": {"users": ["bob"]}}
STORAGE_CLASS: Final = "test"
Values = dict[str, Any]


class Lab:
    """Alice is in the group vision, Bob in language; each project has half of the GPUs."""

    replicas = 1
    """Schedulers."""

    def __init__(self, cluster: OneNodeCluster) -> None:
        self.cluster = cluster
        self.run_dir, self.state_dir, self.simulated, self.volume = (
            cluster.folder / name for name in ("run", "state", "simulated", "volume")
        )
        self.hub = Hub(cluster.folder / "hub", cluster, GROUPS, self.run_dir, self.simulated)
        self._http = httpx.Client(timeout=20)
        self._token = ""
        self._urls: list[str] = []
        self.helm = Helm(cluster.folder, cluster.control_plane.kubeconfig)

    @property
    def api(self) -> Api:
        return self.cluster.api

    # ---- start

    def start(self) -> Lab:
        self._prepare()
        self.helm.install(self.values(), NAMESPACE)
        self.cluster.set_gpus(GPUS)
        labels = {"gpushare.jupyter.org/managed": "true"}
        self.cluster.control_plane.label_node(self.cluster.name, **labels)
        until(self.are_schedulers_ready, "the scheduler's pods run", 120)
        self.hub.start(",".join(self.scheduler_urls()))
        until(self.is_ready, "the node is ready", 120)
        return self

    def _prepare(self) -> None:
        for name in (NAMESPACE, HUB_NAMESPACE):
            self.api.namespace(name)
            path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            until(lambda: self.api.get(path), f"namespace {name}")  # noqa: B023
        self.volume.mkdir(parents=True)
        self.volume.chmod(0o777)
        token = base64.b64encode(self.hub.tokens["gpushare"].encode()).decode()
        self.api.apply(
            {  # as the GPU Operator's
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": "nvidia"},
                "handler": "runc",
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "scheduler"},
                "spec": {
                    "capacity": {"storage": "8Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": STORAGE_CLASS,
                    "hostPath": {"path": str(self.volume)},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "gpushare-hub", "namespace": NAMESPACE},
                "data": {"token": token},
            },
        )

    def values(self) -> Values:
        """Values of the chart: programs of this machine in the containers, own directories."""
        repository, tag = HOST_IMAGE.rsplit(":", 1)
        volumes, mounts = host_mounts()
        own = {key: value for key, value in ENVIRONMENT.items() if key != "HOME"}
        program = {
            "extraEnv": [{"name": key, "value": value} for key, value in own.items()],
            "extraVolumes": volumes,
            "extraVolumeMounts": mounts,
        }
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "gpus": {"maxPerNode": 4},
            "slots": slots_image(),
            "policy": POLICY,
            "scheduler": program
            | {
                "storage": {"className": STORAGE_CLASS},
                "hub": {"apiUrl": f"{self.hub.url}/hub/api", "existingSecret": "gpushare-hub"},
            },
            "agent": program
            | {
                "simulate": f"A100:{GPUS}",
                "directories": {
                    "run": str(self.run_dir),
                    "state": str(self.state_dir),
                    "simulated": str(self.simulated),
                },
            },
        }

    def stop(self) -> None:
        self._http.close()

    # ---- what there is

    def pods(self, component: str) -> list[Values]:
        selector = f"app.kubernetes.io/component={component}"
        return self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)

    def scheduler_urls(self) -> list[str]:
        """Of its pods, once all of them have run; their names are known to pods only."""
        found = [url_of(pod) for pod in self.pods("scheduler") if pod["status"].get("podIP")]
        return found if len(found) == self.replicas else []

    def are_schedulers_ready(self) -> bool:
        pods = self.pods("scheduler")
        return len(pods) == self.replicas and all(is_pod_ready(pod) for pod in pods)

    def scheduler(self, verb: str, path: str, body: object = None) -> Values:
        """A call to the leader as the administrator. Asks Kubernetes for addresses only if they are
        not known. Raises httpx.HTTPError.
        """
        urls = self._urls or until(self.scheduler_urls, "the schedulers run", 120)
        if not self._token:
            secret = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/gpushare-admin")
            self._token = base64.b64decode(secret["data"]["token"]).decode()
        headers = {"Authorization": f"Bearer {self._token}"}
        problem: Exception | None = None
        for url in urls:
            try:
                address = f"{url}/api/v1/{path}"
                answer = self._http.request(verb, address, json=body, headers=headers)
                answer.raise_for_status()
            except httpx.HTTPError as error:  # a standby, or it was killed
                problem = error
            else:
                self._urls = urls
                return answer.json()
        self._urls = []  # pods may have other addresses now
        assert problem is not None
        raise problem

    def node(self) -> Values:
        """The node as the scheduler shows it. Raises StopIteration."""
        nodes = self.scheduler("GET", "nodes")["nodes"]
        return next(node for node in nodes if node["name"] == self.cluster.name)

    def is_ready(self) -> bool:
        node = self.node()
        return node["status"] == "Ready" and len(node["devices"]) == GPUS

    def user(self, name: str) -> Person:
        """With a server, started again if its pod is gone."""
        if (known := self.hub.people.get(name)) is not None:
            if self.hub.pod(name) is not None:
                return known
            self.hub.stop(name)
        return self.hub.person(name)

    def granted(self) -> set[Verb]:
        """What the chart's roles grant."""
        return granted(self.helm.render(self.values(), NAMESPACE))

    def leases(self) -> list[Values]:
        """All allocations in force."""
        workloads = self.scheduler("GET", "workloads")["workloads"]
        pods = [pod for one in workloads for pod in one["pods"]]
        return [pod["lease"] for pod in pods if pod["lease"]]

    def logs(self) -> str:
        """Of the pods and the Hub, for the failure of a test."""
        texts = []
        for component in ("scheduler", "agent"):
            for pod in self.pods(component):
                name = pod["metadata"]["name"]
                texts.append(f"==== {name}\n{self.api.log(NAMESPACE, name)[-6000:]}")
        for name in self.hub.people:
            if pod := self.hub.pod(name):
                text = self.api.log(HUB_NAMESPACE, pod["metadata"]["name"])
                texts.append(f"==== server of {name}\n{text[-6000:]}")
        texts.append(f"==== Hub\n{self.cluster.processes.log('jupyterhub', 3000)}")
        return "\n".join(texts)


def url_of(pod: Values) -> str:
    return f"http://{pod['status']['podIP']}:8470"


def is_pod_ready(pod: Values) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
