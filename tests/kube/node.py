"""A real node: kubelet, containerd and a bridge of its own, on the machine of the tests.

Everything that it leaves on the machine has the node's id in its name; `tests.kube.cleanup` removes
it, also after a crash of the tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, TextIO

from tests.kube.api import Api
from tests.kube.assets import CNI_PLUGINS, program
from tests.kube.cleanup import CGROUPS, Leftovers
from tests.kube.control_plane import Addresses, ControlPlane, until
from tests.kube.dns import ClusterDns
from tests.kube.images import PAUSE_IMAGE, image_archive
from tests.workers import free_port

__all__ = ["OneNodeCluster"]

NODE: Final = "node0"
SUBNETS: Final = range(200, 250)
"""Second byte of 10.x.0.0/16; one per cluster of the machine."""
ROOT: Final = Path(__file__).parents[2]


class OneNodeCluster:
    """A control plane and one node whose pods run. Needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._subnet, self._lock = _reserve_subnet()
        self.id = f"gskube{self._subnet}"
        Leftovers(self.id, folder).remove()  # of an earlier run that was killed
        self.gateway = f"10.{self._subnet}.0.1"
        """The machine's own address on the pods' network."""
        service = f"10.{self._subnet}.255.1"
        addresses = Addresses(service, 443, f"10.{self._subnet}.255.0/24")
        self.control_plane = ControlPlane(folder, addresses, heartbeats=True)
        self.processes = self.control_plane.processes
        self.name = NODE
        self._dns: ClusterDns | None = None
        self._cleanup: subprocess.Popen[bytes] | None = None

    @property
    def api(self) -> Api:
        return self.control_plane.api

    # ---- life

    def start(self) -> OneNodeCluster:
        self._cleanup = subprocess.Popen(
            [sys.executable, "-m", "tests.kube.cleanup", self.id, self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=ROOT,
        )
        self._create_network()
        self.control_plane.start()
        self._dns = ClusterDns(self.gateway, self.control_plane.as_admin()).start()
        self._start_containerd()
        self._start_kubelet()
        until(self._ready, "the node is ready", 120)
        return self

    def stop(self) -> None:
        if self._dns is not None:
            self._dns.stop()
        self.control_plane.stop()
        if self._cleanup is not None and self._cleanup.stdin is not None:
            self._cleanup.stdin.close()  # this is the signal; the kernel gives it after a crash
            self._cleanup.wait(120)
        self._lock.close()

    def _ready(self) -> bool:
        if problem := self.processes.exited():
            raise AssertionError(problem)
        node = self.api.get(f"/api/v1/nodes/{NODE}")
        taints = node["spec"].get("taints", [])
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions["Ready"] == "True" and not taints

    def set_gpus(self, count: int) -> None:
        """An extended resource `nvidia.com/gpu`, and the labels of GPU feature discovery."""
        capacity = {"status": {"capacity": {"nvidia.com/gpu": str(count)}}}
        self.api.merge(f"/api/v1/nodes/{NODE}/status", capacity)
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(count)}
        self.control_plane.label_node(NODE, **labels)

    def pids(self, pod: Any) -> set[int]:
        """Processes of a pod's containers, without its sandbox."""
        uid = pod["metadata"]["uid"]
        found: set[int] = set()
        for file in (CGROUPS[0] / self.id).rglob(f"*pod{uid}/*/cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(pid) for pid in file.read_text().split()}
        return {pid for pid in found if _program_of(pid) != "/pause"}

    def kill_pod_processes(self, pod: Any) -> int:
        """SIGKILL to all of them; returns how many there were."""
        pids = self.pids(pod)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    # ---- parts

    def _create_network(self) -> None:
        for command in (
            f"link add {self.id} type bridge",
            f"addr add {self.gateway}/16 dev {self.id}",
            f"addr add {self.control_plane.addresses.host}/32 dev {self.id}",
            f"link set {self.id} up",
        ):
            subprocess.run([_program("ip"), *command.split()], check=True, capture_output=True)
        folder = self.folder / "cni"
        folder.mkdir()
        addresses = {
            "type": "host-local",
            "dataDir": str(self.folder / "cni-addresses"),
            "ranges": [
                [
                    {
                        "subnet": f"10.{self._subnet}.0.0/16",
                        "rangeStart": f"10.{self._subnet}.1.2",
                        "rangeEnd": f"10.{self._subnet}.250.254",
                        "gateway": self.gateway,
                    }
                ]
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": self.id, "hairpinMode": True, "ipam": addresses}
        network = {"cniVersion": "0.4.0", "name": self.id, "plugins": [bridge]}
        (folder / "10-bridge.conflist").write_text(json.dumps(network))

    def _start_containerd(self) -> None:
        self.socket = self.folder / "containerd.sock"
        config = self.folder / "containerd.toml"
        config.write_text(
            f"""\
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-run"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{_program("runc")}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{self.folder}/cni"
"""
        )
        self.processes.start("containerd", [_program("containerd"), "--config", config])
        archive = image_archive(self.folder)
        command = [_program("ctr"), "-a", self.socket, "-n", "k8s.io", "images", "import", archive]
        until(
            lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0,
            "the images are imported",
        )

    def _start_kubelet(self) -> None:
        for controller in CGROUPS:
            if controller.is_dir():
                (controller / self.id).mkdir(exist_ok=True)
        root = self.folder / "kubelet"
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.gateway,
            "port": free_port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "x509": {"clientCAFile": str(self.control_plane.certificates.ca)},
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.id}",
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [self.gateway],
            "clusterDomain": "cluster.local",
            "evictionHard": {"memory.available": "10Mi"},
            "failSwapOn": False,
            # killed containers start again at once, however often
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,  # this machine's rules are not the kubelet's
            "nodeStatusUpdateFrequency": "2s",
            "podLogsDir": str(self.folder / "pod-logs"),
            "registerNode": True,
            "syncFrequency": "2s",
            "volumePluginDir": str(self.folder / "volume-plugins"),
        }
        path = self.folder / "kubelet.json"
        path.write_text(json.dumps(config))
        kubeconfig = self.control_plane.certificates.client(
            "kubelet", f"system:node:{NODE}", "system:nodes"
        )
        self.processes.start(
            "kubelet",
            [
                _program("kubelet"),
                f"--config={path}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={NODE}",
                f"--node-ip={self.gateway}",
                f"--root-dir={root}",
                f"--cert-dir={root}/pki",
            ],
            env={"PATH": f"/usr/sbin:{os.environ.get('PATH', '')}"},
        )


def _program_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    return ""


def _reserve_subnet() -> tuple[int, TextIO]:
    folder = Path(tempfile.gettempdir()) / "gpushare-tests-subnets"
    folder.mkdir(exist_ok=True)
    for number in SUBNETS:
        file = (folder / str(number)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        return number, file
    raise AssertionError("every subnet is in use")


def _program(name: str) -> str:
    found = program(name)
    assert found, f"{name} is missing: `make kube-assets`"
    return found
