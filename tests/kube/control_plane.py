"""A real control plane: etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

Nodes are objects without a kubelet, unless `tests.kube.node` adds a real one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.kube.api import Api, Refused
from tests.kube.assets import program
from tests.kube.certificates import Certificates
from tests.kube.processes import Processes
from tests.workers import free_port

__all__ = ["Addresses", "AuditEvent", "ControlPlane", "until"]

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
START_S: Final = 120.0


def until(condition: Callable[[], Any], what: str, within: float = 120.0) -> Any:
    """The first true result; the last false one is part of the failure. Failed requests count as
    false.
    """
    deadline, answer = time.monotonic() + within, None
    while time.monotonic() < deadline:
        try:
            if answer := condition():
                return answer
        except (Refused, OSError, KeyError, StopIteration, httpx.HTTPError) as error:
            answer = error
        time.sleep(0.05)
    raise AssertionError(f"not within {within:.0f} s: {what}; last result: {answer!r}")


@dataclass(frozen=True)
class Addresses:
    """Where the API server listens."""

    host: str
    port: int
    services: str
    """The address range of Services; its first address is that of the API server's own Service."""

    @classmethod
    def loopback(cls) -> Addresses:
        return cls("127.0.0.1", free_port(), "10.0.0.0/24")

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"


@dataclass(frozen=True)
class AuditEvent:
    """One request in the audit log of the API server."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    uri: str

    @classmethod
    def parse(cls, line: str) -> AuditEvent:
        event = json.loads(line)
        target = event.get("objectRef", {})
        resource = target.get("resource", "")
        if target.get("subresource"):
            resource += f"/{target['subresource']}"
        return cls(
            event["user"].get("username", ""),
            event["verb"],
            resource,
            target.get("namespace", ""),
            target.get("name", ""),
            event.get("responseStatus", {}).get("code", 0),
            event["requestURI"],
        )


class ControlPlane:
    """Starts at once, in a folder of its own. `stop` ends all processes."""

    def __init__(
        self, folder: Path, addresses: Addresses | None = None, *, heartbeats: bool = False
    ) -> None:
        """`heartbeats`: nodes without a heartbeat become NotReady, as with kubelets."""
        self.folder = folder
        self._node_grace = "20s" if heartbeats else "24h"
        self.addresses = addresses or Addresses.loopback()
        folder.mkdir(parents=True, exist_ok=True)
        self.processes = Processes(folder)
        self.certificates = Certificates(
            folder / "certificates", self.addresses.url, self.addresses.host
        )
        self.kubeconfig = self.certificates.client("admin", "admin", "system:masters")
        self.api = self.as_admin()
        self._audit = folder / "audit.log"
        self.restricted: set[str] = set()
        """Namespaces whose scheduler has fewer permissions in some test than the chart gives it."""

    # ---- clients

    def as_admin(self) -> Api:
        """A client of its own, for another thread."""
        return Api(
            self.addresses.url, self.certificates.ca, certificate=self.certificates.files("admin")
        )

    def as_bearer(self, token: str) -> Api:
        return Api(self.addresses.url, self.certificates.ca, token=token)

    def account_token(
        self, namespace: str, account: str, *, audience: str = "", pod: Any = None
    ) -> str:
        """A token of a service account, bound to a pod (an object) if one is given."""
        spec: dict[str, Any] = {"audiences": [audience] if audience else []}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": meta["name"],
                "uid": meta["uid"],
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return self.api.create(path, {"spec": spec})["status"]["token"]

    # ---- life

    def start(self) -> ControlPlane:
        etcd = self._start_etcd()
        self._start_api_server(etcd)
        until(self._ready, "the API server is ready", START_S)
        self._start_controllers()
        until(
            lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"),
            "the controllers run",
            START_S,
        )
        return self

    def stop(self) -> None:
        self.api.close()
        self.processes.kill_all()

    def _ready(self) -> bool:
        if problem := self.processes.exited():
            raise AssertionError(problem)
        return self.api.call("GET", "/readyz")["text"] == "ok"

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.processes.start(
            "etcd",
            [
                _program("etcd"),
                "--data-dir",
                self.folder / "etcd",
                "--unsafe-no-fsync",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            ],
        )
        return client

    def _start_api_server(self, etcd: str) -> None:
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        files, at = self.certificates, self.addresses
        certificate, key = files.files("server")
        client_certificate, client_key = files.files("admin")
        options = {
            "etcd-servers": etcd,
            "bind-address": at.host,
            "secure-port": at.port,
            # The address of the Service `kubernetes`; nothing uses it, and it must not be loopback.
            "advertise-address": "192.0.2.1",
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": at.services,
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "client-ca-file": files.ca,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": files.account_key,
            "service-account-signing-key-file": files.account_key,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": client_certificate,
            "kubelet-client-key": client_key,
            "audit-policy-file": policy,
            "audit-log-path": self._audit,
            "audit-log-mode": "blocking-strict",
            "max-requests-inflight": 2000,
            "max-mutating-requests-inflight": 1000,
        }
        self.processes.start("kube-apiserver", [_program("kube-apiserver"), *_flags(options)])

    def _start_controllers(self) -> None:
        files = self.certificates
        scheduler = files.client("scheduler", "system:kube-scheduler")
        self.processes.start(
            "kube-scheduler",
            [
                _program("kube-scheduler"),
                f"--kubeconfig={scheduler}",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=500",
                "--kube-api-burst=500",
            ],
        )
        options = {
            "kubeconfig": files.client("controllers", "system:kube-controller-manager"),
            "leader-elect": "false",
            "secure-port": 0,
            "service-account-private-key-file": files.account_key,
            "root-ca-file": files.ca,
            "node-monitor-grace-period": self._node_grace,
            # Without it the node and DaemonSet controllers have no permissions, and only their
            # log says so.
            "use-service-account-credentials": "true",
            "kube-api-qps": 500,
            "kube-api-burst": 500,
        }
        command = [_program("kube-controller-manager"), *_flags(options)]
        self.processes.start("kube-controller-manager", command)

    def restart_api_server(self) -> None:
        """SIGKILL and start; returns when it is ready."""
        self.processes.kill("kube-apiserver")
        self.processes.start_again("kube-apiserver")
        until(self._ready, "the API server is ready again", START_S)

    # ---- nodes without a kubelet

    def add_node(self, name: str, *, gpus: int = 0, **labels: str) -> None:
        """A ready node with the labels of NVIDIA's GPU feature discovery. Its pods are bound, and
        start only if a test says so (`set_pod_status`).
        """
        known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        if gpus:
            known |= {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(gpus)}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": known | labels},
        }
        self.api.create("/api/v1/nodes", body)
        self.set_node_status(name, gpus=gpus)
        # the node controller taints a node that it has not seen ready yet
        self.api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def set_node_status(self, name: str, *, gpus: int | None = None, ready: bool = True) -> None:
        reason = "KubeletReady" if ready else "KubeletNotReady"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {
            "type": "Ready",
            "status": str(ready),
            "reason": reason,
            "message": f"set by a test: {reason}",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status: dict[str, Any] = {"conditions": [condition]}
        if gpus is not None:
            capacity = {"cpu": "32", "memory": "256Gi", "pods": "110"}
            if gpus:
                capacity["nvidia.com/gpu"] = str(gpus)
            status |= {"capacity": capacity, "allocatable": capacity}
        self.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})

    def label_node(self, name: str, **labels: str | None) -> None:
        """Sets labels; None removes one. A key may have a slash: `**{"a/b": "c"}`."""
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})

    def set_pod_status(self, pod: Any, *, phase: str = "Running", ip: str = "") -> None:
        """Plays the kubelet for one pod."""
        meta = pod["metadata"]
        condition = {"type": "Ready", "status": str(phase == "Running")}
        status = {"phase": phase, "conditions": [condition], "podIP": ip}
        if ip:
            status["podIPs"] = [{"ip": ip}]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        self.api.merge(path, {"status": status})

    # ---- audit

    def audit(self, user: str = "") -> Iterator[AuditEvent]:
        """All requests so far, or those of users whose name begins with `user`."""
        with self._audit.open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n") and (event := AuditEvent.parse(line)).user.startswith(user):
                    yield event

    def logs(self, size: int = 3000) -> str:
        files = sorted(self.folder.glob("*.log"))
        shown = (path for path in files if path != self._audit)
        texts = (f"==== {path.name}\n{path.read_text(errors='replace')[-size:]}" for path in shown)
        return "\n".join(texts)


def _program(name: str) -> str:
    found = program(name)
    assert found, f"{name} is missing: `make kube-assets`"
    return found


def _flags(options: dict[str, object]) -> list[str]:
    return [f"--{name}={os.fspath(v) if isinstance(v, Path) else v}" for name, v in options.items()]
