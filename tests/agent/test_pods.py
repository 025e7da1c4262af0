"""Which pod a process belongs to, as cgroup drivers and container runtimes write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from jupyter_gpushare.cli import gpushare
from jupyter_gpushare.core.model.errors import InvalidInput
from node_agent.system import tenancy
from node_agent.system.pods import host_pids_problem, pod_in_path, pod_of
from node_agent.system.process_owner import KubernetesPod, UnixUser, owner_from_key

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
OTHER = "11111111-2222-3333-4444-555555555555"
ESCAPED = UID.replace("-", "_")
CONTAINER = "3a" * 32
SCOPE = f"cri-containerd-{CONTAINER}.scope"
PATHS = {
    "cgroupfs, best effort": f"/kubepods/besteffort/pod{UID}/{CONTAINER}",
    "cgroupfs, guaranteed": f"/kubepods/pod{UID}/{CONTAINER}",
    "cgroupfs, CRI-O": f"/kubepods/burstable/pod{UID}/crio-{CONTAINER}",
    "systemd, containerd": "/kubepods.slice/kubepods-burstable.slice"
    f"/kubepods-burstable-pod{ESCAPED}.slice/{SCOPE}",
    "systemd, guaranteed": f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/{SCOPE}",
    "systemd, CRI-O": "/kubepods.slice/kubepods-besteffort.slice"
    f"/kubepods-besteffort-pod{ESCAPED}.slice/crio-{CONTAINER}.scope/container",
    "two drivers": "/system.slice/containerd.service"
    f"/kubepods-burstable-pod{ESCAPED}.slice:cri-containerd:{CONTAINER}",
    "below a configured root": f"/kubelet/kubepods/besteffort/pod{UID}/{CONTAINER}",
    "kind": f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{ESCAPED}.slice/{SCOPE}",
    "from a cgroup namespace": f"/../../pod{UID}/{CONTAINER}",
    "from another class": f"/../../../burstable/pod{UID}/{CONTAINER}",
    "named inside of the pod": f"/kubepods/pod{UID}/{CONTAINER}/kubepods/pod{OTHER}/x",
}
NO_POD = {
    "the root": "/",
    "a service": "/system.slice/kubelet.service",
    "another container": f"/docker/{CONTAINER}",
    "its own pod, from a cgroup namespace": f"/../{CONTAINER}",
    "outside of its cgroup namespace": "/../../../init.scope",
    "a user of the host": f"/user.slice/user-1000.slice/user@1000.service/pod{UID}/x",
    "not a uid": "/kubepods/besteffort/pod1234/x",
    "part of a name": f"/kubepods/xpod{UID}y/x",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_pod_in_the_path_of_a_cgroup(path: str):
    assert pod_in_path(path) == UID


@pytest.mark.parametrize("path", NO_POD.values(), ids=NO_POD)
def test_paths_without_a_pod(path: str):
    assert pod_in_path(path) is None


def test_a_static_pod_has_a_hash_as_its_uid():
    assert pod_in_path(f"/kubepods/burstable/pod{'5f' * 16}/{CONTAINER}") == "5f" * 16


def process(proc: Path, pid: int | str, *lines: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    folder.joinpath("cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_all_hierarchies_that_name_a_pod_agree(tmp_path: Path):
    pod = f"/kubepods/besteffort/pod{UID}/{CONTAINER}"
    process(tmp_path, 2, f"0::{pod}")
    process(tmp_path, 3, f"12:memory:{pod}", f"1:name=systemd:{pod}", "0::/")
    process(tmp_path, 4, f"12:memory:{pod}", f"4:cpu,cpuacct:/kubepods/pod{OTHER}/x", "0::/")
    found = [pod_of(pid, tmp_path) for pid in (2, 3, 4, 5)]
    assert found == [UID, UID, None, None], "version 2, hybrid, two pods, no such process"


def test_an_owner_is_found_again_by_its_key():
    for owner in (UnixUser(1000), KubernetesPod(UID)):
        assert owner_from_key(owner.key) == owner


POD = f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}"
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
NAMESPACES = {
    "a pod, cgroup v1": ((POD, POD), IN_CLUSTER, False),
    "its sandbox, cgroup v1": ((POD, f"{POD}2"), IN_CLUSTER, False),
    "the host's pids, cgroup v1": ((POD, "0::/"), IN_CLUSTER, True),
    "a pod, cgroup v2": (("0::/", "0::/"), IN_CLUSTER, False),
    "its sandbox, cgroup v2": (("0::/", f"0::/../{CONTAINER}"), IN_CLUSTER, False),
    "the host's pids, cgroup v2": (("0::/", "0::/../../../../init.scope"), IN_CLUSTER, True),
    "no pod": (("0::/", "0::/"), {}, True),
}


@pytest.mark.parametrize(("paths", "environ", "fits"), NAMESPACES.values(), ids=NAMESPACES)
def test_whether_a_container_has_the_pids_of_its_host(tmp_path: Path, paths, environ, fits):
    own, first = paths
    process(tmp_path, "self", own)
    process(tmp_path, 1, first)
    problem = host_pids_problem(tmp_path, environ)
    assert (problem == "") == fits, problem
    assert fits or "hostPID: true" in problem


def run_agent(tmp_path: Path) -> BaseException | None:
    argv = ["agent", "--users", "pods", "--simulate", "1", "--scheduler", "http://x"]
    return CliRunner().invoke(gpushare, [*argv, "--state-dir", str(tmp_path)]).exception


@pytest.mark.parametrize(
    ("uid", "problem", "words"),
    [(1000, "", "only root"), (0, "set hostPID: true", "belongs to: set hostPID")],
)
def test_an_agent_that_cannot_serve_pods_says_why(tmp_path, monkeypatch, uid, problem, words):
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr(tenancy, "host_pids_problem", lambda: problem)
    error = run_agent(tmp_path)
    assert isinstance(error, InvalidInput)
    assert error.field == "--users"
    assert words in error.message


def test_the_name_of_the_node_is_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    assert tenancy.tenancy_of("pods").node_name() == "gpu-7"
    assert tenancy.tenancy_of("own").node_name() != "gpu-7", "a name that other tools use too"
