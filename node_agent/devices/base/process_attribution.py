"""Whose a process is: one of our kernels', or a stranger's. Reads /proc; remembers what it found,
by pid and start time.

A process is a kernel's when it is its main process, is below it by parent, carries the mark of this
launch in its environment, is in its cgroup, or is in its session (a child whose parent died and
whose environment was emptied). The marks of an earlier launch make a stranger: what is left of it
is being ended, and must not be mixed up with the new kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_gpushare.simnode import start_of

from ...policy.memory_accounting import GONE, STRANGER
from ...system.processes import MARKER, SELF_TEST, ProcessId, belongs, tree_of
from .model import KernelProcesses

__all__ = ["ProcessAttribution"]

DEEPEST: Final = 64
"""Generations of parents that are looked at: a loop in /proc (a pid used again while we read) must
end.
"""
CGROUPS: Final = "/sys/fs/cgroup"
MOST: Final = 4096
"""Processes that are remembered: those that ended are forgotten when there are more."""


class ProcessAttribution:
    """Answers for the GPUs' process lists. From any thread."""

    def __init__(self) -> None:
        self._kernels: Mapping[str, KernelProcesses] = {}
        self._found: dict[int, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def follow(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """These are the kernels from now on; strangers are looked at again."""
        with self._lock:
            if kernels == self._kernels:
                return
            gone = {name for name, kin in self._kernels.items() if kernels.get(name) != kin}
            self._kernels = dict(kernels)
            # Who was a kernel's and has ended is still told from a stranger, also after the kernel
            # was relaunched.
            self._found = {
                pid: (known[0], GONE) if known[1] in gone else known
                for pid, known in self._found.items()
                if known[1]
            }

    def of(self, pid: int) -> tuple[int, str]:
        """(start time, owner) of a pid that the driver lists. Of one that has ended: GONE, with the
        start time that it had.

        A pid that we have never seen alive is a stranger's: it may live in a namespace that we do
        not see.
        """
        start = start_of(pid)
        with self._lock:
            known, kernels = self._found.get(pid), self._kernels
        if start is None:
            return (known[0], GONE) if known else (0, STRANGER)
        if known and known[0] == start and known[1] != GONE:
            return known
        found = start, self._find(pid, start, kernels)
        with self._lock:
            if kernels is self._kernels:
                self._remember(pid, found)
        return found

    def _remember(self, pid: int, found: tuple[int, str]) -> None:
        if len(self._found) >= MOST:
            self._found = {
                pid: known for pid, known in self._found.items() if start_of(pid) == known[0]
            }
        self._found[pid] = found

    def members(self, kernel_id: str) -> list[ProcessId]:
        """Every living process of a kernel, also those without a GPU, by pid."""
        kin = self._kernels.get(kernel_id)
        if kin is None:
            return []
        return sorted(
            tree_of(kin.launch, ProcessId(*kin.main) if kin.main else None, kin.uid),
            key=lambda one: one.pid,
        )

    @staticmethod
    def _find(pid: int, start: int, kernels: Mapping[str, KernelProcesses]) -> str:
        mains = {kin.main: name for name, kin in kernels.items() if kin.main is not None}
        if (pid, start) in mains:
            return mains[pid, start]
        launches = {kin.launch: name for name, kin in kernels.items() if kin.launch}
        mark = _mark(pid)
        if mark == SELF_TEST:
            return GONE
        if mark is not None:  # marked: a kernel of ours, or what is left of one
            name = launches.get(mark, "")
            return name if name and belongs(ProcessId(pid, start), kernels[name].uid) else STRANGER
        return _by_parent(pid, mains) or _by_cgroup(pid, kernels) or STRANGER


def _mark(pid: int) -> str | None:
    """The launch that a process belongs to by its environment; None: it carries no mark, or is not
    ours to read.
    """
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARKER}=".encode()
    return next(
        (
            entry[len(prefix) :].decode(errors="replace")
            for entry in environ.split(b"\0")
            if entry.startswith(prefix)
        ),
        None,
    )


def _line(pid: int) -> tuple[int, int]:
    """(parent, session) of a process; zeros when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0, 0
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), int(fields[3])


def _by_parent(pid: int, mains: Mapping[tuple[int, int], str]) -> str:
    """The kernel whose main process is above it, or leads its session."""
    pids = {main[0]: (main[1], name) for main, name in mains.items()}
    above, session = _line(pid)
    for leader in (session, above):
        if leader in pids and start_of(leader) == pids[leader][0]:
            return pids[leader][1]
    for _ in range(DEEPEST):
        if above <= 1:
            break
        above, _session = _line(above)
        if above in pids and start_of(above) == pids[above][0]:
            return pids[above][1]
    return ""


def _by_cgroup(pid: int, kernels: Mapping[str, KernelProcesses]) -> str:
    leaves = {kin.leaf.removeprefix(CGROUPS): name for name, kin in kernels.items() if kin.leaf}
    if not leaves:
        return ""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    return next(
        (name for leaf, name in leaves.items() if path == leaf or path.startswith(f"{leaf}/")), ""
    )
