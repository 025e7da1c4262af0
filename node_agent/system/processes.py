"""Which processes belong to a kernel, and how they are ended. A process is identified by (pid,
start time) and signalled by a pidfd, never by a pid alone.

Jupyter signals only the kernel's process group; children that called `setsid`, and workers that
outlive their parent, would keep GPU memory. The process tree of a kernel is therefore: its main
process, all descendants, and every process that carries the marker of this launch in its
environment; of these, the processes of the kernel's owner. Nothing else is ever signalled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.kernel.simnode import start_of

from .process_owner import ProcessOwner, agent_user

__all__ = [
    "MARKER",
    "PROXY_MARKER",
    "SELF_TEST",
    "ProcessId",
    "WatchedProcess",
    "find_launched",
    "foreign_descendants",
    "is_kernel_process",
    "is_owned_by",
    "is_proxy_process",
    "kill_process",
    "kill_tree",
    "process_at",
    "tree_of",
]

MARKER: Final = "GPUSHARE_LAUNCH"
"""Environment variable with one value per launch, so that the remains of an old launch are never
attributed to the new kernel.
"""
PROXY_MARKER: Final = "GPUSHARE_PROXY_OF"
"""Environment variable of the proxy that gates a kernel: the kernel's id. The proxy is not part of
the kernel's process tree, and is neither frozen nor killed with it.
"""
SELF_TEST: Final = "gpushare-self-test"
"""Marker of the agent's own test processes, which belong to no kernel."""
YOUNG_S: Final = 60.0
KILL_ROUNDS: Final = 20
"""Processes may fork while their tree is killed: repeat until none is left, but not endlessly."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies one process: pids are reused, pairs of pid and start time are not."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        """Whether this process still runs (a zombie does not)."""
        return start_of(self.pid) == self.start


def process_at(pid: int) -> ProcessId | None:
    """The process that has this pid now; None without one."""
    start = start_of(pid)
    return None if start is None else ProcessId(pid, start)


def find_launched(pid: int, launch: str, owner: ProcessOwner | None = None) -> ProcessId | None:
    """The process that its server reported as `pid`: the one with this pid here if it carries the
    marker of the launch (or there is no marker), otherwise the marked one with this pid in its own
    pid namespace, as for a server in a container.

    Finds only processes of this owner (None: the agent's user), whatever pid was reported.
    """
    owner = owner or agent_user()
    found = _find_launched(pid, launch, owner)
    return found if found is not None and is_owned_by(found, owner) else None


def _find_launched(pid: int, launch: str, owner: ProcessOwner) -> ProcessId | None:
    marker = _marker(launch)
    if not launch or _carries(pid, marker):
        return process_at(pid)
    in_namespaces = [pid_here for pid_here in _pids() if _is_launched(pid_here, pid, marker, owner)]
    if len(in_namespaces) == 1:
        return process_at(in_namespaces[0])
    if not in_namespaces and _is_young_and_unmarked(pid):
        return process_at(pid)
    return None


def _is_launched(pid: int, pid_in_namespace: int, marker: bytes, owner: ProcessOwner) -> bool:
    """Whether this process carries the marker, and has this pid in its own namespace."""
    is_same = _namespace_pids(pid)[-1:] == [pid_in_namespace]
    return is_same and _carries(pid, marker) and owner.owns(pid)


def is_owned_by(process: ProcessId, owner: ProcessOwner | None = None) -> bool:
    """Whether this process runs and belongs to this owner (None: the agent's user)."""
    return (owner or agent_user()).owns(process.pid) and process.is_alive()


def _is_young_and_unmarked(pid: int) -> bool:
    """A launcher that clears the environment (`env -i`, `sudo`) removes the marker. The pid alone
    is accepted then, but only for a process of this namespace that has just started: a pid of
    another machine or container would name an unrelated process.
    """
    start = start_of(pid)
    if start is None:
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
    try:
        marked = f"{MARKER}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        marked = False
    return age < YOUNG_S and len(_namespace_pids(pid)) == 1 and not marked


def _namespace_pids(pid: int) -> list[int]:
    """Its pids from this namespace to its own; empty for a process that has ended."""
    for line in _status(pid):
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return []


def _parent_of(pid: int) -> int:
    """0 when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text[text.rindex(")") + 2 :].split()[1])
    except (OSError, ValueError):
        return 0


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _marker(launch: str) -> bytes:
    return f"{MARKER}={launch}".encode()


def _carries(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def tree_of(
    launch: str, main: ProcessId | None, owner: ProcessOwner | None = None
) -> set[ProcessId]:
    """All living processes of a launch that belong to this owner (None: the agent's user):
    descendants of its main process, and marked ones (without a launch: only descendants). Never
    the caller.
    """
    owner = owner or agent_user()
    return {process for process in _descendants(launch, main, owner) if is_owned_by(process, owner)}


def foreign_descendants(
    launch: str, main: ProcessId | None, owner: ProcessOwner | None = None
) -> set[ProcessId]:
    """Descendants that run as another user by now (`sudo`): reported, but never signalled."""
    owner = owner or agent_user()
    found = set()
    for process in _descendants(launch, main, owner):
        if process.is_alive() and not owner.owns(process.pid):
            found.add(process)
    return found


def _descendants(launch: str, main: ProcessId | None, owner: ProcessOwner) -> set[ProcessId]:
    """Marked processes of the owner, and all their descendants, also those of others."""
    pids, own_pid = _pids(), os.getpid()
    members = set()
    for pid in pids:
        if launch and _carries(pid, _marker(launch)) and owner.owns(pid):
            members.add(pid)
    if main is not None and main.is_alive():
        members.add(main.pid)
    members.discard(own_pid)
    parents = {pid: _parent_of(pid) for pid in pids if pid != own_pid}
    added = set(members)
    while added:
        added = {pid for pid, parent in parents.items() if parent in members} - members
        members |= added
    return {process for pid in members if (process := process_at(pid)) is not None}


def is_kernel_process(
    pid: int, launch: str, main: ProcessId | None, owner: ProcessOwner | None = None
) -> bool:
    """Whether a process of this owner (None: the agent's user) is in the kernel's process tree."""
    owner = owner or agent_user()
    if main is not None and pid == main.pid:
        return main.is_alive()
    if launch and _carries(pid, _marker(launch)) and owner.owns(pid):
        return True
    return any(member.pid == pid for member in tree_of(launch, main, owner))


def is_proxy_process(pid: int, kernel_id: str, owner: ProcessOwner | None = None) -> bool:
    """Whether a process of this owner (None: the agent's user) was started as the proxy of a
    kernel.
    """
    is_marked = _carries(pid, f"{PROXY_MARKER}={kernel_id}".encode())
    return is_marked and (owner or agent_user()).owns(pid)


def kill_process(process: ProcessId, owner: ProcessOwner | None = None) -> None:
    """SIGKILL to this process of its owner (None: the agent's user). The pidfd is opened first and
    checked afterwards, so that neither a reused pid nor a process of another owner is hit.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if is_owned_by(process, owner):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)


async def kill_tree(
    launch: str,
    main: ProcessId | None,
    owner: ProcessOwner | None = None,
    *,
    timeout_s: float = 5.0,
) -> bool:
    """Kill all processes of a kernel that belong to its owner (None: the agent's user); True when
    none is left. Repeats for processes that were forked meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    for _ in range(KILL_ROUNDS):
        tree = await asyncio.to_thread(tree_of, launch, main, owner)
        if not tree:
            return True
        for process in tree:
            kill_process(process, owner)
        await _until_ended(tree, deadline)
        if loop.time() >= deadline:
            break
    return not await asyncio.to_thread(tree_of, launch, main, owner)


async def _until_ended(processes: set[ProcessId], deadline: float) -> None:
    loop = asyncio.get_running_loop()
    # polled: the end of a process that is not a child is no event
    while any(one.is_alive() for one in processes) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class WatchedProcess:
    """Calls `ended` once, in the event loop, when a process ends."""

    def __init__(self, ident: ProcessId, ended: Callable[[], None]) -> None:
        self.ident = ident
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        try:
            self._fd = os.pidfd_open(ident.pid)
        except OSError:
            self._loop.call_soon(ended)
            return
        if ident.is_alive():
            self._loop.add_reader(self._fd, self._readable)
        else:
            self.close()
            self._loop.call_soon(ended)

    def _readable(self) -> None:
        self.close()
        self._ended()

    def close(self) -> None:
        """Stop watching; the process continues."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
