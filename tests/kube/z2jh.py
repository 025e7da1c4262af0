"""JupyterHub with KubeSpawner on a test cluster, from values of Zero to JupyterHub.

The Hub runs on the machine, beside the cluster; users' servers run in pods. The chart's meaning of
the values is repeated here as far as docs/examples/z2jh/values.yaml uses it.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kube.images import ENVIRONMENT, HOST_IMAGE, PYTHON, host_mounts
from tests.kube.node import OneNodeCluster
from tests.story.front_end import Rest, eventually
from tests.story.hub_process import PROXY, Person
from tests.workers import free_port

__all__ = ["EXAMPLE", "NAMESPACE", "Hub", "example_values"]

EXAMPLE: Final = Path(__file__).parents[2] / "docs/examples/z2jh/values.yaml"
NAMESPACE: Final = "jupyterhub"
Values = dict[str, Any]
CONFIG: Final = """\
import json

given = json.load(open({given!r}))
hub, user = given["values"]["hub"], given["values"]["singleuser"]

# what the chart makes of the values
named = lambda items: [{{"name": name}} | fields for name, fields in items.items()]
tokens = given["tokens"]
services = [one | {{"api_token": tokens[one["name"]]}} for one in named(hub["services"])]
c.JupyterHub.services = [*services, {{"name": "tester", "api_token": tokens["tester"]}}]
c.JupyterHub.load_roles = named(hub["loadRoles"])
for class_name, traits in hub["config"].items():
    c[class_name].update(traits)
c.KubeSpawner.environment = user["extraEnv"]
c.KubeSpawner.volumes = user["storage"]["extraVolumes"]
c.KubeSpawner.volume_mounts = user["storage"]["extraVolumeMounts"]
c.KubeSpawner.tolerations = user["extraTolerations"]
c.KubeSpawner.profile_list = user["profileList"]
c.KubeSpawner.uid, c.KubeSpawner.gid, c.KubeSpawner.fs_gid = 1000, 100, 100
for name, code in hub["extraConfig"].items():
    exec(compile(code, name, "exec"))

# this machine
c.JupyterHub.load_roles.append(
    {{
        "name": "tester",
        "scopes": ["admin:users", "admin:servers", "tokens", "list:users"],
        "services": ["tester"],
    }}
)
c.JupyterHub.bind_url = given["url"]
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = given["hub_url"]
c.JupyterHub.db_url = "sqlite:///" + given["folder"] + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = given["folder"] + "/cookie_secret"
c.JupyterHub.load_groups = given["groups"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.should_start = False # a process of its own, as in the chart
c.ConfigurableHTTPProxy.api_url = given["proxy_api"]
c.ConfigurableHTTPProxy.auth_token = given["tokens"]["proxy"]
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = given["namespace"]
c.KubeSpawner.image, c.KubeSpawner.image_pull_policy = given["image"], "Never"
c.KubeSpawner.cmd = [given["python"], "-m", "jupyterhub.singleuser"]
c.KubeSpawner.args = ["--ServerApp.jpserver_extensions={{'jupyter_gpushare': True}}"]
c.KubeSpawner.environment |= given["environment"]
c.KubeSpawner.volumes += given["volumes"]
c.KubeSpawner.volume_mounts += given["mounts"]
c.KubeSpawner.delete_grace_period = 2
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.KubeSpawner.k8s_api_request_timeout = 60 # a server that cannot be asked about is stopped
c.JupyterHub.log_level = "WARN"
"""


def example_values() -> Values:
    return yaml.safe_load(EXAMPLE.read_text())


class Hub:
    """`groups`: of the Hub, as `JupyterHub.load_groups`. `scheduler_url`: as the Hub's own process
    reaches it; pods use the name in the values.
    """

    def __init__(
        self, folder: Path, cluster: OneNodeCluster, groups: Values, run_dir: Path, simulated: Path
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.cluster, self.groups = folder, cluster, groups
        self.values = example_values()
        self.port, self._proxy_port = free_port(), free_port()
        self.url = f"http://{cluster.gateway}:{free_port()}"
        self.tokens = {name: secrets.token_hex(16) for name in ("gpushare", "proxy", "tester")}
        self.rest = Rest(self.port, self.tokens["tester"], "/hub/api/")
        self._directories = {"/run/gpushare": run_dir, "/run/gpushare-simulated": simulated}
        self.people: dict[str, Person] = {}

    def start(self, scheduler_url: str) -> Hub:
        (self.folder / "given.json").write_text(json.dumps(self._given()))
        config = self.folder / "hub_config.py"
        config.write_text(CONFIG.format(given=str(self.folder / "given.json")))
        environment = {
            "KUBECONFIG": str(self.cluster.control_plane.kubeconfig),
            "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
            "GPUSHARE_SCHEDULER": scheduler_url,
        }
        self._start_proxy()
        command = [PYTHON, "-m", "jupyterhub", "-f", config]
        self.cluster.processes.start("jupyterhub", command, environment)
        eventually(lambda: self.rest.rest("GET", "users") is not None, "the Hub answers", 120)
        return self

    def _start_proxy(self) -> None:
        self.cluster.processes.start(
            "proxy",
            [
                PROXY,
                "--ip=127.0.0.1",
                f"--port={self.port}",
                "--api-ip=127.0.0.1",
                f"--api-port={self._proxy_port}",
                f"--error-target={self.url}/hub/error",
            ],
            {"CONFIGPROXY_AUTH_TOKEN": self.tokens["proxy"]},
        )

    def person(self, name: str, profile: str = "gpu") -> Person:
        """Starts the server of a member of a group."""
        token = self.rest.rest("POST", f"users/{name}/tokens", {"expires_in": 7200})["token"]
        made = self.people[name] = Person(self.port, token, name)
        self.rest.rest("POST", f"users/{name}/server", {"profile": profile})
        eventually(lambda: self.is_ready(name), f"{name}'s server is up", 120)
        return made

    def stop(self, name: str) -> None:
        self.rest.rest("DELETE", f"users/{name}/server")
        what = f"{name}'s server is stopped"
        eventually(lambda: not self.rest.rest("GET", f"users/{name}")["servers"], what, 60)

    def is_ready(self, name: str) -> bool:
        return bool(self.rest.rest("GET", f"users/{name}")["server"])

    def has_checked_servers(self) -> bool:
        """Whether a Hub that was started again has found out which servers run."""
        found = [self.rest.rest("GET", f"users/{name}")["servers"] for name in self.people]
        return all(server["ready"] for servers in found for server in servers.values())

    def pod(self, name: str) -> Values | None:
        """The pod of a user's server."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        pods = self.cluster.api.items(path, labelSelector=f"hub.jupyter.org/username={name}")
        return pods[0] if pods else None

    def _given(self) -> Values:
        volumes, mounts = host_mounts()
        volumes.append({"name": "simulated", "hostPath": {"path": "/run/gpushare-simulated"}})
        mounts.append({"name": "simulated", "mountPath": "/run/gpushare-simulated"})
        for volume in (*self.values["singleuser"]["storage"]["extraVolumes"], *volumes):
            path = volume["hostPath"]["path"]  # this machine's own folders are not ours
            volume["hostPath"]["path"] = str(self._directories.get(path, path))
        return {
            "folder": str(self.folder),
            "values": self.values,
            "tokens": self.tokens,
            "url": f"http://127.0.0.1:{self.port}/",
            "hub_url": self.url,
            "proxy_api": f"http://127.0.0.1:{self._proxy_port}",
            "groups": self.groups,
            "namespace": NAMESPACE,
            "image": HOST_IMAGE,
            "python": PYTHON,
            "environment": ENVIRONMENT,
            "volumes": volumes,
            "mounts": mounts,
        }
