"""Kubernetes pods as this node's processes show them: the pod of a process is a directory above its
cgroup, which the kubelet names by the pod's uid and no container can leave.

The directories of a pod with the uid 0f1e…, by cgroup driver:

    cgroupfs    /kubepods/burstable/pod0f1e…/<container>
    systemd     /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f1e….slice/
                cri-containerd-<container>.scope, or crio-<container>.scope

In cgroup v1 every hierarchy has such a path. A process in a cgroup namespace of its own (an agent
in a container, cgroup v2) sees the directories of other pods behind `/../..`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_gpushare.kernel.simnode import start_of

__all__ = ["has_processes", "host_pids_problem", "pod_in_path", "pod_of"]

PROC: Final = Path("/proc")
POD_DIRECTORY: Final = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice(?::.*)?)?"
)
"""Name of a pod's directory. The second form of the uid is that of static pods. The suffix `:…` is
written by a container runtime whose cgroup driver is not the kubelet's.
"""
USER_SLICE: Final = "user.slice"
"""systemd delegates directories below it to unix users, who may name them as they like."""
HOST_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the first pid namespace: PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h."""
OUTSIDE_OF_POD: Final = "/../.."
"""Two levels above a container's cgroup is no directory of its pod."""


def pod_in_path(path: str) -> str | None:
    """The uid of the pod that this cgroup belongs to; None: of no pod.

    The outermost match counts: directories below it may have been made inside the pod.
    """
    for part in path.split("/"):
        if part == USER_SLICE:
            return None
        if found := POD_DIRECTORY.fullmatch(part):
            uid = found[1]
            return uid.replace("_", "-")
    return None


def pod_of(pid: int | str, proc: Path = PROC) -> str | None:
    """The uid of the pod that this process is in; None: in none, or it has ended.

    `pid` may be "self". Hierarchies of cgroup v1 that name different pods count as none.
    """
    pods = {pod_in_path(path) for path in _cgroup_paths(pid, proc)} - {None}
    return pods.pop() if len(pods) == 1 else None


def has_processes(uid: str, proc: Path = PROC) -> bool:
    """Whether a process of the pod with this uid runs; its own `pause` counts, and what has ended
    and was not waited for does not. Reads all of /proc.
    """
    pids = [int(entry.name) for entry in os.scandir(proc) if entry.name.isdigit()]
    return any(pod_of(pid, proc) == uid and start_of(pid) is not None for pid in pids)


def _cgroup_paths(pid: int | str, proc: Path) -> list[str]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]


def host_pids_problem(proc: Path = PROC, environ: Mapping[str, str] = os.environ) -> str:
    """Why this process cannot see the processes of other pods; "": it can.

    The first process of a namespace of pids decides: in a container that has its own, it belongs to
    the container or to its pod.
    """
    if _inode(proc / "self/ns/pid") == HOST_PID_NAMESPACE:
        return ""
    pod, first = pod_of("self", proc), pod_of(1, proc)
    if pod is not None:
        inside = first == pod
    else:
        outside = any(path.startswith(OUTSIDE_OF_POD) for path in _cgroup_paths(1, proc))
        inside = "KUBERNETES_SERVICE_HOST" in environ and not outside
    return "this pod has a pid namespace of its own; set hostPID: true" if inside else ""


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
