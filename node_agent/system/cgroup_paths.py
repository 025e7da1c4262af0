"""Directories of other processes' cgroups. In a cgroup namespace (an agent in a container, with
cgroup v2) /proc shows paths that begin at the agent's own cgroup, `/../../kubepods…`, while the
host's hierarchy may be mounted as a whole.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

__all__ = ["cgroup_directory", "cgroup_path"]

PROC = Path("/proc")


def cgroup_path(pid: int | str, controller: str, proc: Path = PROC) -> str:
    """The path of a process in the hierarchy of a cgroup v1 controller, or in that of cgroup v2
    (""), as /proc shows it to this process; "": it has none.
    """
    for line in _lines(proc / str(pid) / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return ""


def cgroup_directory(path: str, root: Path, controller: str, proc: Path = PROC) -> Path | None:
    """The directory of the cgroup with this path (`cgroup_path`), where the hierarchy is mounted on
    `root`; None: it is outside of what is mounted.
    """
    start = _namespace_start(root, controller, proc)
    found = Path(os.path.normpath(start / path.lstrip("/")))
    return found if found.is_relative_to(root) else None


@lru_cache(maxsize=8)
def _namespace_start(root: Path, controller: str, proc: Path) -> Path:
    """Where the paths in /proc begin: at the root, or where this process is. It stays there."""
    if cgroup_path("self", controller, proc) != "/":
        return root
    pid = str(os.getpid())
    for folder, _, files in os.walk(root):
        if "cgroup.procs" in files and pid in _lines(Path(folder) / "cgroup.procs"):
            return Path(folder)
    return root


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
