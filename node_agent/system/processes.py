"""Which processes are a kernel's, and how they are ended. A process is (pid, start time) and a
pidfd, never a pid alone.

Jupyter signals only the kernel's process group; children that called `setsid` and workers that
outlive their parent would keep GPU memory. So a kernel's tree is: its main process, everything
below it by parent, and every process that carries the mark of this launch in its environment; of
these, those of its user. Nothing outside that tree is ever signalled.
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

from jupyter_gpushare.simnode import start_of

__all__ = [
    "MARKER",
    "SELF_TEST",
    "ProcessId",
    "WatchedProcess",
    "belongs",
    "here",
    "identify",
    "kill_tree",
    "others_of",
    "parent_of",
    "started",
    "tree_of",
]

MARKER: Final = "GPUSHARE_LAUNCH"
"""Environment variable; one value per launch, so that what is left of an old launch is never mixed
up with the new kernel.
"""
SELF_TEST: Final = "gpushare-self-test"
"""The mark of the agent's own toys: nobody's memory, and gone in a moment."""
YOUNG_S: Final = 60.0
ROUNDS: Final = 20
"""A process may fork while its tree is killed: look again until nothing is left, but not for ever.
"""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for good: the pid may be used again, the pair may not."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        return start_of(self.pid) == self.start


def started(pid: int) -> ProcessId | None:
    """The process that has this pid now; None when there is none."""
    start = start_of(pid)
    return None if start is None else ProcessId(pid, start)


def here(pid: int, launch: str, uid: int | None = None) -> ProcessId | None:
    """The process that its server calls `pid`: ours by that number when it carries the mark of this
    launch (or none can be asked for), else the marked one that has the number in its own pid
    namespace: a server in a container counts differently.

    Only a process of the user `uid` (None: ours) is ever found, whatever number is named.
    """
    found = _here(pid, launch, uid)
    return found if found is not None and belongs(found, uid) else None


def _here(pid: int, launch: str, uid: int | None) -> ProcessId | None:
    mark = f"{MARKER}={launch}".encode()
    if not launch or _carries(pid, mark):
        return started(pid)
    inside = [
        one
        for one in _pids()
        if _carries(one, mark) and _numbers(one)[-1:] == [pid] and _is_of(one, uid)
    ]
    return (
        started(inside[0])
        if len(inside) == 1
        else started(pid)
        if not inside and _is_unmarked(pid)
        else None
    )


def belongs(ident: ProcessId, uid: int | None = None) -> bool:
    """Whether this process is one of the user's (None: ours) that still runs."""
    return _is_of(ident.pid, uid) and ident.is_alive()


def _is_of(pid: int, uid: int | None) -> bool:
    """As the operating system judges who may signal whom: by real and saved user id (kill(2)). Not
    by the owner of its folder in /proc, which is root's as soon as a process may not be dumped, nor
    by the effective one alone: a program that is root's for a moment stays its caller's. What
    `sudo` has made root's in all three is not.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    ids = next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])
    return len(ids) == 4 and str(os.getuid() if uid is None else uid) in (ids[0], ids[2])


def _is_unmarked(pid: int) -> bool:
    """A launcher that empties the environment (`env -i`, `sudo`) takes the mark away: the number
    has to do, but only for a process of our own namespace that has just begun. Another machine's or
    container's number would hit somebody who has been here for long.
    """
    start = start_of(pid)
    age = (
        None
        if start is None
        else time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
    )
    try:
        marked = f"{MARKER}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        marked = False
    return age is not None and age < YOUNG_S and len(_numbers(pid)) == 1 and not marked


def _numbers(pid: int) -> list[int]:
    """Its pids from our namespace inwards, as the kernel of the operating system says; empty when
    it is gone.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next(
        (
            [int(number) for number in line.split()[1:]]
            for line in lines
            if line.startswith("NSpid:")
        ),
        [],
    )


def parent_of(pid: int) -> int:
    """Parent pid; 0 when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text[text.rindex(")") + 2 :].split()[1])
    except (OSError, ValueError):
        return 0


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _carries(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def tree_of(launch: str, main: ProcessId | None, uid: int | None = None) -> set[ProcessId]:
    """Every living process of a launch that is the user's (None: ours): below its main process, or
    marked (no mark: only those below). Never the caller itself.
    """
    return {ident for ident in _below(launch, main, uid) if belongs(ident, uid)}


def others_of(launch: str, main: ProcessId | None, uid: int | None = None) -> set[ProcessId]:
    """Those below its main process that are somebody else's by now (`sudo`): not ours to signal,
    but ours to speak of.
    """
    return {
        ident
        for ident in _below(launch, main, uid)
        if ident.is_alive() and not _is_of(ident.pid, uid)
    }


def _below(launch: str, main: ProcessId | None, uid: int | None) -> set[ProcessId]:
    """Whoever is marked and the user's, and all below: also through parents that are somebody
    else's.
    """
    pids = _pids()
    marker = f"{MARKER}={launch}".encode()
    members = {pid for pid in pids if launch and _carries(pid, marker) and _is_of(pid, uid)}
    if main is not None and main.is_alive():
        members.add(main.pid)
    members.discard(os.getpid())
    parents = {pid: parent_of(pid) for pid in pids}
    grown = bool(members)
    while grown:  # ends: every round but the last adds at least one pid
        more = {
            pid
            for pid, parent in parents.items()
            if parent in members and pid not in members and pid != os.getpid()
        }
        members |= more
        grown = bool(more)
    return {ident for pid in members if (ident := started(pid)) is not None}


def identify(
    pid: int, uid: int, launch: str, main: ProcessId | None, owner: int | None = None
) -> bool:
    """Whether a peer of the socket is this kernel: its owner's (None: ours), and in the kernel's
    process tree.
    """
    if uid != (os.getuid() if owner is None else owner):
        return False
    if main is not None and pid == main.pid:
        return main.is_alive()
    if launch and _carries(pid, f"{MARKER}={launch}".encode()) and _is_of(pid, owner):
        return True
    return any(member.pid == pid for member in tree_of(launch, main, owner))


def kill_one(ident: ProcessId, uid: int | None = None) -> None:
    """SIGKILL to exactly this process of the user (None: ours): the pidfd is opened first and
    checked after, so that a pid used again is never hit, nor a process that became somebody else's.
    """
    try:
        fd = os.pidfd_open(ident.pid)
    except OSError:
        return
    try:
        if belongs(ident, uid):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)


async def kill_tree(
    launch: str, main: ProcessId | None, uid: int | None = None, *, timeout_s: float = 5.0
) -> bool:
    """Kill the kernel's whole tree, as far as it is the user's (None: ours); True when nothing of
    it is left.

    Looks again after each round, for what was forked meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    for _ in range(ROUNDS):
        tree = await asyncio.to_thread(tree_of, launch, main, uid)
        if not tree:
            return True
        for ident in tree:
            kill_one(ident, uid)
        while any(ident.is_alive() for ident in tree) and loop.time() < deadline:  # noqa: ASYNC110 - processes are no events
            await asyncio.sleep(0.005)
        if loop.time() >= deadline:
            break
    return not await asyncio.to_thread(tree_of, launch, main, uid)


class WatchedProcess:
    """A process whose end is announced by its pidfd. `gone` is called once, in the event loop."""

    def __init__(self, ident: ProcessId, gone: Callable[[], None]) -> None:
        self.ident = ident
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        try:
            self._fd = os.pidfd_open(ident.pid)
        except OSError:
            self._loop.call_soon(gone)
            return
        if ident.is_alive():
            self._loop.add_reader(self._fd, self._readable)
        else:
            self.close()
            self._loop.call_soon(gone)

    def _readable(self) -> None:
        self.close()
        self._gone()

    def close(self) -> None:
        """Stop watching; the process goes on."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
