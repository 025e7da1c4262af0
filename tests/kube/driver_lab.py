"""The installation on a node with the fake NVIDIA driver (tests/fake_driver) instead of simulated
GPUs. Containers find it by hostPath volumes, as the container toolkit gives them the real one.
"""

from __future__ import annotations

from typing import Any

from tests.fake_driver.fake_gpu_machine import FakeGpuMachine
from tests.kube.lab import Lab
from tests.kube.node import OneNodeCluster

__all__ = ["DriverLab"]

HOST_PROC = "/host-proc"
"""The driver knows processes by their pids on the node."""
Values = dict[str, Any]


class DriverLab(Lab):
    """`machine` has as many GPUs as the node."""

    def __init__(self, cluster: OneNodeCluster, machine: FakeGpuMachine) -> None:
        super().__init__(cluster)
        self.simulated.mkdir(parents=True)  # users' pods mount it
        machine.folder.chmod(0o755)
        machine.path.chmod(0o666)
        machine.libraries.chmod(0o755)
        self._environment = machine.environment()
        paths = [("driver-state", str(machine.folder)), ("driver", str(machine.libraries))]
        self._volumes = [{"name": name, "hostPath": {"path": path}} for name, path in paths]
        self._mounts = [{"name": name, "mountPath": path} for name, path in paths]
        proc = {"name": "host-proc", "hostPath": {"path": "/proc"}}
        proc_mount = {"name": "host-proc", "mountPath": HOST_PROC, "readOnly": True}
        user = self.hub.values["singleuser"]
        user["extraEnv"] |= self._environment | {"GPUSHARE_FAKE_HOST_PROC": HOST_PROC}
        user["storage"]["extraVolumes"] += [*self._volumes, proc]
        user["storage"]["extraVolumeMounts"] += [*self._mounts, proc_mount]

    def values(self) -> Values:
        values = super().values()
        agent = values["agent"]
        own = [{"name": name, "value": value} for name, value in self._environment.items()]
        values["agent"] = agent | {
            "simulate": "",
            "extraEnv": [*agent["extraEnv"], *own],
            "extraVolumes": [*agent["extraVolumes"], *self._volumes],
            "extraVolumeMounts": [*agent["extraVolumeMounts"], *self._mounts],
        }
        return values
