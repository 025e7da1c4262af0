"""Finds the cgroup v2 subtree that was delegated to the agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["AGENT_LEAF", "FOLDER", "SUBTREE_VARIABLE", "find_subtree", "own_subtree"]

FOLDER: Final = "gpushare"
AGENT_LEAF: Final = "agent"
SUBTREE_VARIABLE: Final = "GPUSHARE_CGROUP"
"""Environment variable: the path of a subtree that belongs to the agent."""


def own_subtree(mounts: str, own: str) -> Path | None:
    """The directory of this process in the unified hierarchy; None without one. `mounts`, `own`:
    contents of /proc/self/mountinfo and /proc/self/cgroup.
    """
    inside = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if inside is not None and right.split()[:1] == ["cgroup2"]:
            root, point = left.split()[3:5]
            below = os.path.relpath(inside, root) if root != "/" else inside.lstrip("/")
            return None if below.startswith("..") else Path(point) / below
    return None


def find_subtree(named: str = "", proc: Path = Path("/proc/self")) -> tuple[Path | None, str]:
    """The subtree in which leaves can be created (`named`, if given), or None and the reason."""
    if named:
        return _usable(Path(named))
    try:
        own = own_subtree((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    except OSError as error:
        return None, f"/proc cannot be read ({error.strerror})"
    if own is None:
        problem = "this machine has no cgroup v2 hierarchy"
        return None, f"{problem}; boot with systemd.unified_cgroup_hierarchy=1"
    if own.name == AGENT_LEAF and (own.parent / "cgroup.events").exists():
        own = own.parent  # systemd's DelegateSubgroup, or the leaf of an earlier agent
    if not (own / "cgroup.events").exists():
        problem = "the agent runs in the root cgroup, which belongs to the init system"
        return (
            None,
            f"{problem}; start it as a service with Delegate=yes, or set {SUBTREE_VARIABLE}",
        )
    return _usable(own)


def _usable(subtree: Path) -> tuple[Path | None, str]:
    folder = subtree / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"the agent may not create cgroups below {subtree} ({error.strerror})"
        return None, f"{problem}; delegate it: Delegate=yes in its service"
    if not os.access(folder / "cgroup.procs", os.W_OK):
        problem = f"the agent may not move processes to {folder}"
        return None, f"{problem}; delegate {subtree} to its user"
    return subtree, ""
