"""Determines which kernel a process belongs to. Reads /proc; caches results by pid and start time.

A process belongs to a kernel when it is its main process, descends from it, carries the marker of
this launch in its environment, is in its cgroup, or is in its session (a child whose parent ended
and whose environment was cleared). A marker of an earlier launch makes a process foreign: the
remains of that launch are being ended, and must not be attributed to the new kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_gpushare.kernel.simnode import start_of

from ...policy.memory_accounting import ENDED, FOREIGN
from ...system.processes import MARKER, SELF_TEST, ProcessId, is_owned_by, tree_of
from .model import KernelProcesses

__all__ = ["ProcessAttribution"]

MAX_GENERATIONS: Final = 64
"""Parents that are followed: a loop in /proc (a pid that was reused while we read) must end."""
CGROUPS: Final = "/sys/fs/cgroup"
CACHE_SIZE: Final = 4096
"""Cached processes; above this number, those that ended are dropped."""


class ProcessAttribution:
    """The owners of processes. Thread-safe."""

    def __init__(self) -> None:
        self._kernels: Mapping[str, KernelProcesses] = {}
        self._cache: dict[int, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def track(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """Replace the kernels; foreign processes are examined again."""
        with self._lock:
            if kernels == self._kernels:
                return
            changed = {name for name, old in self._kernels.items() if kernels.get(name) != old}
            self._kernels = dict(kernels)
            # A process of a kernel that ended or was relaunched is still no foreign process.
            cache = {}
            for pid, (start, owner) in self._cache.items():
                if owner:
                    cache[pid] = start, ENDED if owner in changed else owner
            self._cache = cache

    def owner_of(self, pid: int) -> tuple[int, str]:
        """(start time, owner) of a pid that the driver lists; ENDED with the last known start time
        for a process that has ended.

        A pid that never existed here is foreign: it may belong to an invisible pid namespace.
        """
        start = start_of(pid)
        with self._lock:
            known, kernels = self._cache.get(pid), self._kernels
        if start is None:
            return (known[0], ENDED) if known else (0, FOREIGN)
        if known and known[0] == start and known[1] != ENDED:
            return known
        found = start, self._find(pid, start, kernels)
        with self._lock:
            if kernels is self._kernels:
                self._remember(pid, found)
        return found

    def _remember(self, pid: int, found: tuple[int, str]) -> None:
        if len(self._cache) >= CACHE_SIZE:
            self._cache = {
                pid: known for pid, known in self._cache.items() if start_of(pid) == known[0]
            }
        self._cache[pid] = found

    def members(self, kernel_id: str) -> list[ProcessId]:
        """All living processes of a kernel by pid, with or without a GPU."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            return []
        main = ProcessId(*kernel.main) if kernel.main else None
        return sorted(tree_of(kernel.launch, main, kernel.owner), key=lambda process: process.pid)

    @staticmethod
    def _find(pid: int, start: int, kernels: Mapping[str, KernelProcesses]) -> str:
        mains = {kernel.main: name for name, kernel in kernels.items() if kernel.main is not None}
        if (pid, start) in mains:
            return mains[pid, start]
        marker = _marker(pid)
        if marker == SELF_TEST:
            return ENDED
        if marker is not None:
            return _by_marker(marker, ProcessId(pid, start), kernels)
        return _by_parent(pid, mains) or _by_cgroup(pid, kernels) or FOREIGN


def _by_marker(marker: str, process: ProcessId, kernels: Mapping[str, KernelProcesses]) -> str:
    """The kernel whose launch has this marker, for processes of its owner only."""
    for name, kernel in kernels.items():
        if kernel.launch and kernel.launch == marker:
            return name if is_owned_by(process, kernel.owner) else FOREIGN
    return FOREIGN


def _marker(pid: int) -> str | None:
    """The launch named by the environment of a process; None: no marker, or not readable."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARKER}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def _parent_and_session(pid: int) -> tuple[int, int]:
    """Zeros for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0, 0
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), int(fields[3])


def _by_parent(pid: int, mains: Mapping[tuple[int, int], str]) -> str:
    """The kernel whose main process is an ancestor, or leads the session."""
    pids = {main[0]: (main[1], name) for main, name in mains.items()}
    parent, session = _parent_and_session(pid)
    for leader in (session, parent):
        if leader in pids and start_of(leader) == pids[leader][0]:
            return pids[leader][1]
    for _ in range(MAX_GENERATIONS):
        if parent <= 1:
            break
        parent, _session = _parent_and_session(parent)
        if parent in pids and start_of(parent) == pids[parent][0]:
            return pids[parent][1]
    return ""


def _by_cgroup(pid: int, kernels: Mapping[str, KernelProcesses]) -> str:
    leaves = {}
    for name, kernel in kernels.items():
        if kernel.leaf:
            leaves[kernel.leaf.removeprefix(CGROUPS)] = name
    if not leaves:
        return ""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    for leaf, name in leaves.items():
        if path == leaf or path.startswith(f"{leaf}/"):
            return name
    return ""
