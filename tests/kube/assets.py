"""The programs of a real Kubernetes cluster: where they are, and why a test cannot have one.

`make kube-assets` builds the ones of Kubernetes and Helm into `.venv/kube`; Debian has the others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["CONTROL_PLANE", "NODE", "missing", "program"]

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
NODE: Final = ("kubelet", "containerd", "ctr", "runc", "ip")
CNI_PLUGINS: Final = Path("/usr/lib/cni")
BUILT: Final = Path(sys.prefix) / "kube"


def program(name: str) -> str | None:
    """The path of a program: `KUBEBUILDER_ASSETS` first, then PATH, then `make kube-assets`."""
    folders = (os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH"), "/usr/sbin", BUILT)
    return shutil.which(name, path=os.pathsep.join(str(folder) for folder in folders if folder))


def missing(*, node: bool = False, helm: bool = False) -> str:
    """The reason why this machine cannot run a control plane, or a node too; "" if it can."""
    if sys.platform != "linux":
        return "requires Linux"
    if node and os.geteuid() != 0:
        return "requires root: a kubelet mounts volumes and creates cgroups"
    if node and not _can_mount():
        return "requires the permission to mount: this may be a container"
    names = (*CONTROL_PLANE, *(NODE if node else ()), *(("helm",) if helm else ()))
    absent = [name for name in names if program(name) is None]
    if node and not (CNI_PLUGINS / "bridge").exists():
        absent.append("CNI plugins")
    return f"requires {', '.join(absent)}: run `make kube-assets`" if absent else ""


def _can_mount() -> bool:
    if (unshare := shutil.which("unshare")) is None:
        return False
    tried = subprocess.run([unshare, "--mount", "true"], check=False, capture_output=True)
    return tried.returncode == 0
