"""A cgroup v2 leaf for every launch of a kernel, where this agent may make some: whoever is in it
is the kernel's, however it was forked.

Only below a subtree that was delegated to the agent (systemd's `Delegate=yes`, a container's own
cgroup namespace, or one that was named): the root of the machine's hierarchy belongs to its init
system. Kernels are started by Jupyter servers and moved here right after; what they fork later is
born here. Where that is not allowed, the process tree in `processes` says who belongs to a kernel,
as before.

Rules of cgroup v2 that shape this file (https://docs.kernel.org/admin-guide/cgroup-v2.html): a
process may be moved only by who may write the `cgroup.procs` of the common ancestor; controllers go
to children only from a cgroup that has no processes of its own; `cgroup.kill` exists since Linux
5.14, before that a frozen cgroup is killed one by one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["Cgroups", "find_subtree", "own_subtree"]

FOLDER: Final = "gpushare"
OURS: Final = "agent"
NAMED: Final = "GPUSHARE_CGROUP"
"""Environment variable: the path of a subtree that belongs to the agent."""
CONTROLLERS: Final = ("dmem", "misc")
"""What the driver counts device memory with; both may be absent."""
ROUNDS: Final = 20
FREEZE_S: Final = 1.0
GONE_S: Final = 5.0


def own_subtree(mounts: str, own: str) -> Path | None:
    """Where this process is in the unified hierarchy; None: there is none. `mounts`, `own`:
    /proc/self/mountinfo and /proc/self/cgroup.
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
    """The subtree in which leaves may be made, or None and why not."""
    if named:
        return _usable(Path(named))
    try:
        own = own_subtree((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    except OSError as error:
        return None, f"/proc cannot be read ({error.strerror})"
    if own is None:
        return (
            None,
            "this machine has no cgroup v2 hierarchy; boot with systemd.unified_cgroup_hierarchy=1",
        )
    if own.name == OURS and (own.parent / "cgroup.events").exists():
        own = own.parent  # systemd's DelegateSubgroup, or where an earlier agent put itself
    if not (own / "cgroup.events").exists():
        return (
            None,
            f"the agent runs in the root cgroup, which is the init system's; start it as a service with Delegate=yes, or set {NAMED}",
        )
    return _usable(own)


def _usable(subtree: Path) -> tuple[Path | None, str]:
    folder = subtree / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        return (
            None,
            f"the agent may not make cgroups below {subtree} ({error.strerror}); delegate it: Delegate=yes in its service",
        )
    if not os.access(folder / "cgroup.procs", os.W_OK):
        return (
            None,
            f"the agent may not move processes into {folder}; delegate {subtree} to its user",
        )
    return subtree, ""


class Cgroups:
    """The leaves of this agent. `subtree` None: none can be made, and `problem` says why. Every
    method is harmless then.
    """

    def __init__(self, subtree: Path | None, problem: str = "") -> None:
        self._folder = None if subtree is None else subtree / FOLDER
        self.problem = problem
        if subtree is not None and self._folder is not None:
            _step_aside(subtree)
            self._pass_on(subtree, self._folder)

    @classmethod
    def here(cls) -> Cgroups:
        """Of this machine."""
        return cls(*find_subtree(os.environ.get(NAMED, "")))

    @staticmethod
    def _pass_on(*chain: Path) -> None:
        """Give the controllers to the leaves. Not being able to is no problem yet: the driver says
        whether it needs them.
        """
        for cgroup in chain:
            for name in CONTROLLERS:
                with contextlib.suppress(OSError):
                    if name in (cgroup / "cgroup.controllers").read_text().split():
                        _write(cgroup / "cgroup.subtree_control", f"+{name}")

    # ---- leaves ----------------------------------------------------------------------------------

    def make(self, launch: str) -> str:
        """A fresh leaf for a launch, as an absolute path; "" where that is not possible."""
        if self._folder is None or not launch or "/" in launch:
            return ""
        leaf = self._folder / launch
        try:
            leaf.mkdir(exist_ok=True)
        except OSError as error:
            self.problem = f"no cgroup could be made in {self._folder} ({error.strerror})"
            return ""
        return str(leaf)

    def join(self, leaf: str, pids: Iterable[int]) -> bool:
        """Move processes in; whether all who still live are there now. What is forked from now on
        is born inside.
        """
        moved = bool(leaf)
        for pid in pids if leaf else ():
            try:
                _write(Path(leaf) / "cgroup.procs", str(pid))
            except ProcessLookupError:
                continue
            except OSError as error:
                moved = False
                self.problem = (
                    f"the agent may not move a kernel into {leaf} ({error.strerror}): it must run as root, or in the same delegated cgroup "
                    "as the Jupyter server"
                )
        return moved

    def members(self, leaf: str) -> list[int]:
        """Pids of everybody in it and below it, by number."""
        return sorted(_listed(leaf) - {0, os.getpid()}) if leaf else []

    def leaves(self) -> list[str]:
        """Every leaf there is, also those of an earlier life."""
        if self._folder is None:
            return []
        return sorted(entry.path for entry in os.scandir(self._folder) if entry.is_dir())

    def leaf_of(self, pid: int) -> str:
        """The leaf that a process is in already; "" for none."""
        return next((leaf for leaf in self.leaves() if pid in _listed(leaf)), "")

    def remove(self, leaf: str) -> bool:
        """Take an empty leaf away; False: somebody is still inside. The driver's limits must be
        zeroed before (`limits`).
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

    # ---- the end ---------------------------------------------------------------------------------

    def kill(self, leaf: str, timeout_s: float = GONE_S) -> bool:
        """SIGKILL to everybody inside, also those who are being forked; whether nobody is left.
        Blocks: called in a thread.
        """
        if not leaf or not Path(leaf).is_dir():
            return True
        deadline = time.monotonic() + timeout_s
        for _ in range(ROUNDS):
            if not self._kill_at_once(Path(leaf)):
                self._kill_frozen(Path(leaf))
            while (
                (left := self._alive(leaf))
                and time.monotonic() < deadline
                and (Path(leaf) / "cgroup.kill").exists()
            ):
                time.sleep(0.005)
            if not left:
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        return not self._alive(leaf)

    @staticmethod
    def _kill_at_once(leaf: Path) -> bool:
        try:
            _write(leaf / "cgroup.kill", "1")
        except OSError:
            return False
        return True

    def _kill_frozen(self, leaf: Path) -> None:
        """Nobody forks while frozen, so a list of everybody is a list of everybody."""
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
        """A zombie is listed until its parent takes notice; it holds nothing any more."""
        return [pid for pid in self.members(leaf) if not _is_zombie(pid)]


def _step_aside(subtree: Path) -> None:
    """A cgroup with processes of its own passes no controllers on; if it is only us, we go into a
    leaf, as systemd's DelegateSubgroup does.
    """
    with contextlib.suppress(OSError):
        if (subtree / "cgroup.procs").read_text().split() == [str(os.getpid())]:
            (subtree / OURS).mkdir(exist_ok=True)
            _write(subtree / OURS / "cgroup.procs", str(os.getpid()))


def _until_frozen(leaf: Path) -> None:
    deadline = time.monotonic() + FREEZE_S
    while "frozen 1" not in (leaf / "cgroup.events").read_text() and time.monotonic() < deadline:
        time.sleep(0.002)


def _kill_in(pid: int, leaf: Path) -> None:
    """The pidfd is opened first and the membership asked after, so that a pid used again by a
    stranger is never hit.
    """
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
    """Appended: in a cgroup it makes no difference, and a folder that stands in for one remembers
    everybody. Never makes the file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)
