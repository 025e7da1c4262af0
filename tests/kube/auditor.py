"""What must hold at every moment while parts of a cluster are killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from jupyter_gpushare.kube import names
from tests.kube.lab import Lab
from tests.kube.visitors import NETWORK, Visitor
from tests.kube.z2jh import NAMESPACE as HUB_NAMESPACE

__all__ = ["Auditor"]

GPU_MIB: Final = 81920
LEASE_ENDS_S: Final = 10.0


class Auditor(threading.Thread):
    """Looks at leases, kernels and slots all the time; `wrong` is what it found.

    A lease may outlive its pod by 10 s in which the node's agent is connected to the leader.
    `is_silent`: whether the line between them may be silent, so that the leader cannot know.
    """

    def __init__(
        self, lab: Lab, visitors: Sequence[Visitor], is_silent: Callable[[], bool]
    ) -> None:
        super().__init__(daemon=True)
        self._is_silent = is_silent
        self.lab, self.visitors, self.over = lab, visitors, threading.Event()
        self.wrong: set[str] = set()
        self.looks = self.ended = 0
        self.longest_s = 0.0
        self._api = lab.cluster.control_plane.as_admin()
        self._since: dict[str, float] = {}
        """Kernels with a lease whose pod is gone, and since when."""

    def run(self) -> None:
        while not self.over.wait(0.2):
            for look in (self.look_at_leases, self.look_at_kernels, self.look_at_slots):
                try:
                    look()
                except (*NETWORK, AssertionError):  # nobody answers
                    continue

    def stop(self) -> None:
        self.over.set()
        self.join(60)
        self._api.close()

    def look_at_kernels(self) -> None:
        for visitor in self.visitors:
            for kernel in list(visitor.kernels.values()):
                alive = kernel.process.is_alive()
                if not alive and kernel.pod not in visitor.killed:
                    self.wrong.add(f"kernel {kernel.kernel_id} of {visitor.name} died")

    def look_at_slots(self) -> None:
        nodes = {node["metadata"]["name"]: node for node in self._api.items("/api/v1/nodes")}
        for pod in self._api.items(
            "/api/v1/pods", labelSelector=f"{names.COMPONENT_LABEL}={names.COMPONENT_SLOT}"
        ):
            node = nodes.get(pod["spec"].get("nodeName", ""))
            if node is not None and names.MANAGED_LABEL not in node["metadata"]["labels"]:
                self.wrong.add(f"slot {pod['metadata']['name']} on {node['metadata']['name']}")

    def look_at_leases(self) -> None:
        used: Counter[int] = Counter()
        leases = self.lab.leases()
        for lease in leases:
            for gpu in lease["planned_gpus"]:
                used[gpu] += lease["request_mib"]
        self.looks += 1
        self.wrong |= {f"GPU {gpu}: {mib} MiB" for gpu, mib in used.items() if mib > GPU_MIB}
        self._look_for_late_ones({lease["kernel_id"] for lease in leases})

    def _look_for_late_ones(self, held: set[str]) -> None:
        agents = self.lab.scheduler("GET", "status")["agents"]
        if self._is_silent() or self.lab.cluster.name not in agents:
            self._since.clear()
            return
        path = f"/api/v1/namespaces/{HUB_NAMESPACE}/pods"
        running = {pod["metadata"]["uid"] for pod in self._api.items(path)}
        pods = {kernel: pod for visitor in self.visitors for kernel, pod in visitor.pods.items()}
        late = {one for one in held if one in pods and self._is_gone(pods[one], running)}
        now = time.monotonic()
        self.ended += len(self._since.keys() - late)
        self._since = {one: self._since.get(one, now) for one in late}
        for kernel, since in self._since.items():
            self.longest_s = max(self.longest_s, now - since)
            if now - since > LEASE_ENDS_S:
                self.wrong.add(f"the lease of {kernel} is there {LEASE_ENDS_S} s after its pod")

    def _is_gone(self, uid: str, running: set[str]) -> bool:
        return uid not in running and not self.lab.cluster.pids({"metadata": {"uid": uid}})
