"""Processes of several pid namespaces in one file. A process has its pid as its number if it shares
the namespace of the node's agent; otherwise the inode of its own namespace stands above the pid.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .model import start_of

__all__ = ["ProcessNumbers", "pid_namespace"]

PID_BITS: Final = 22
"""No pid is larger: PID_MAX_LIMIT in Linux' include/linux/threads.h."""
PID_MASK: Final = (1 << PID_BITS) - 1


def pid_namespace(pid: int | str = "self") -> int:
    """The inode of a process's pid namespace; 0: it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


class ProcessNumbers:
    """As this process sees them. `home`: the agent's namespace; 0: that of this process."""

    def __init__(self, home: int) -> None:
        self._own = pid_namespace()
        self._home = home or self._own
        self._pids: dict[tuple[int, int], int] = {}
        """Pids here of processes in other namespaces, by number and start time."""

    def number_of(self, pid: int) -> int:
        """The number of a process of this namespace."""
        return pid if self._own == self._home else self._own << PID_BITS | pid

    def pid_of(self, number: int, start: int) -> int | None:
        """The pid that a process has here; None: it has ended, or cannot be seen from here."""
        namespace, pid = number >> PID_BITS, number & PID_MASK
        if (namespace or self._home) == self._own:
            return pid if start_of(pid) == start else None
        if self._own != self._home:
            return None
        found = self._pids.get((number, start))
        if found is None or start_of(found) != start:
            found = _find(namespace, pid, start)
            self._pids = {key: here for key, here in self._pids.items() if key[0] != number}
            if found is not None:
                self._pids[number, start] = found
        return found

    def has_ended(self, number: int, start: int) -> bool:
        """Whether the process is certainly over. Only the agent can tell for other namespaces."""
        can_tell = self._own == self._home or number >> PID_BITS == self._own
        return can_tell and self.pid_of(number, start) is None


def _find(namespace: int, pid: int, start: int) -> int | None:
    """The process with this pid in that namespace."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or start_of(int(name)) != start:
            continue
        if _innermost_pid(name) == pid and pid_namespace(name) == namespace:
            return int(name)
    return None


def _innermost_pid(pid: str) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None
