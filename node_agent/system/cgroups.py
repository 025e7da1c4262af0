"""A cgroup v2 leaf for every launch of a kernel, where the agent may create cgroups: every process
in it belongs to the kernel, however it was forked.

Only below a subtree that was delegated to the agent (systemd's `Delegate=yes`, a container's own
cgroup namespace, or a configured path): the root of the hierarchy belongs to the init system.
Jupyter servers start kernels, which are moved to their leaf right afterwards; later forks are born
there. Where cgroups are not allowed, the process tree (`processes`) defines the kernel.

Relevant rules of cgroup v2 (https://docs.kernel.org/admin-guide/cgroup-v2.html): moving a process
requires write access to `cgroup.procs` of the common ancestor; controllers are delegated to
children only by a cgroup without processes of its own; `cgroup.kill` exists since Linux 5.14, and
before that, the processes of a frozen cgroup are killed one by one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .subtree import AGENT_LEAF, FOLDER, SUBTREE_VARIABLE, find_subtree

__all__ = ["Cgroups"]

CONTROLLERS: Final = ("dmem", "misc")
"""Controllers by which the driver accounts device memory; both are optional."""
KILL_ROUNDS: Final = 20
FREEZE_TIMEOUT_S: Final = 1.0
KILL_TIMEOUT_S: Final = 5.0


class Cgroups:
    """The leaves of this agent. Without a `subtree`, `problem` says why, and no method has an
    effect.
    """

    def __init__(self, subtree: Path | None, problem: str = "") -> None:
        self._folder = None if subtree is None else subtree / FOLDER
        self.problem = problem
        if subtree is not None and self._folder is not None:
            _move_agent_to_leaf(subtree)
            _delegate_controllers(subtree, self._folder)

    @classmethod
    def detect(cls) -> Cgroups:
        """Those of this machine."""
        return cls(*find_subtree(os.environ.get(SUBTREE_VARIABLE, "")))

    # ---- leaves ----------------------------------------------------------------------------------

    def make(self, launch: str) -> str:
        """Create a leaf for a launch; returns its absolute path, or "" when that is impossible."""
        if self._folder is None or not launch or "/" in launch:
            return ""
        leaf = self._folder / launch
        try:
            leaf.mkdir(exist_ok=True)
        except OSError as error:
            self.problem = f"no cgroup can be created in {self._folder} ({error.strerror})"
            return ""
        return str(leaf)

    def join(self, leaf: str, pids: Iterable[int]) -> bool:
        """Move processes to the leaf; returns whether all living ones are there now."""
        moved = bool(leaf)
        for pid in pids if leaf else ():
            try:
                _write(Path(leaf) / "cgroup.procs", str(pid))
            except ProcessLookupError:
                continue
            except OSError as error:
                moved = False
                self.problem = (
                    f"the agent may not move a kernel to {leaf} ({error.strerror}): it must run as "
                    "root, or in the same delegated cgroup as the Jupyter server"
                )
        return moved

    def members(self, leaf: str) -> list[int]:
        """Sorted pids of all processes in the leaf and below it."""
        return sorted(_listed(leaf) - {0, os.getpid()}) if leaf else []

    def leaves(self) -> list[str]:
        """All leaves, including those of an earlier agent."""
        if self._folder is None:
            return []
        return sorted(entry.path for entry in os.scandir(self._folder) if entry.is_dir())

    def leaf_of(self, pid: int) -> str:
        """The leaf that contains a process; "" without one."""
        return next((leaf for leaf in self.leaves() if pid in _listed(leaf)), "")

    def remove(self, leaf: str) -> bool:
        """Delete a leaf; False while it contains processes. Limits of the driver must be removed
        first.
        """
        if not leaf:
            return True
        for folder, _, _ in os.walk(leaf, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    # ---- killing ---------------------------------------------------------------------------------

    def kill(self, leaf: str, timeout_s: float = KILL_TIMEOUT_S) -> bool:
        """SIGKILL to all processes in the leaf, also those that are being forked; returns whether
        none is left. Blocks; call it in a thread.
        """
        if not leaf or not Path(leaf).is_dir():
            return True
        deadline = time.monotonic() + timeout_s
        for _ in range(KILL_ROUNDS):
            if not _kill_at_once(Path(leaf)):
                self._kill_frozen(Path(leaf))
            if self._all_ended(leaf, deadline):
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        return not self._alive(leaf)

    def _all_ended(self, leaf: str, deadline: float) -> bool:
        """Waits only where `cgroup.kill` reached every process."""
        has_kill = (Path(leaf) / "cgroup.kill").exists()
        while alive := self._alive(leaf):
            if not has_kill or time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        return not alive

    def _kill_frozen(self, leaf: Path) -> None:
        """A frozen cgroup cannot fork, so the list of its processes is complete."""
        with contextlib.suppress(OSError):
            _write(leaf / "cgroup.freeze", "1")
            _until_frozen(leaf)
        try:
            for pid in self.members(str(leaf)):
                _kill_in(pid, leaf)
        finally:
            with contextlib.suppress(OSError):
                _write(leaf / "cgroup.freeze", "0")

    def _alive(self, leaf: str) -> list[int]:
        """Zombies are listed until their parent reaps them, but hold no resources."""
        return [pid for pid in self.members(leaf) if not _is_zombie(pid)]


def _delegate_controllers(*chain: Path) -> None:
    """Make the controllers available in the leaves. A failure is not a problem yet: whether the
    controllers are needed depends on the driver.
    """
    for cgroup in chain:
        for name in CONTROLLERS:
            with contextlib.suppress(OSError):
                if name in (cgroup / "cgroup.controllers").read_text().split():
                    _write(cgroup / "cgroup.subtree_control", f"+{name}")


def _move_agent_to_leaf(subtree: Path) -> None:
    """A cgroup with processes of its own delegates no controllers. If the agent is the only one, it
    moves to a leaf, like systemd's DelegateSubgroup.
    """
    with contextlib.suppress(OSError):
        if (subtree / "cgroup.procs").read_text().split() == [str(os.getpid())]:
            (subtree / AGENT_LEAF).mkdir(exist_ok=True)
            _write(subtree / AGENT_LEAF / "cgroup.procs", str(os.getpid()))


def _kill_at_once(leaf: Path) -> bool:
    try:
        _write(leaf / "cgroup.kill", "1")
    except OSError:
        return False
    return True


def _until_frozen(leaf: Path) -> None:
    deadline = time.monotonic() + FREEZE_TIMEOUT_S
    while "frozen 1" not in (leaf / "cgroup.events").read_text() and time.monotonic() < deadline:
        time.sleep(0.002)


def _kill_in(pid: int, leaf: Path) -> None:
    """The pidfd is opened before membership is checked, so that a reused pid is never hit."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if pid in _listed(leaf):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def _listed(leaf: str | Path) -> set[int]:
    found: set[int] = set()
    for folder, _, _ in os.walk(leaf):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
    return found


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text[text.rindex(")") + 2] in "ZX"


def _write(path: Path, text: str) -> None:
    """Appends and never creates the file. A cgroup ignores the difference; in tests, a directory
    that replaces a cgroup keeps all processes.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)
