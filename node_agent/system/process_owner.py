"""Whose a process is: a unix user's, or a Kubernetes pod's. One protocol, so that nothing else asks
which of them an agent serves.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .pods import has_processes, pod_of

__all__ = ["KubernetesPod", "ProcessOwner", "UnixUser", "agent_user", "owner_from_key"]

POD_PREFIX = "pod-"


class ProcessOwner(Protocol):
    """Who may own kernels. Values: equal owners are the same owner, and they can be dict keys."""

    @property
    def key(self) -> str:
        """Identifies the owner in the journal and in names."""

    @property
    def kind(self) -> str:
        """What it is, in messages."""

    @property
    def account_name(self) -> str:
        """Its name in the machine's list of users; "" without one."""

    def owns(self, pid: int) -> bool:
        """Whether the process with this pid, at this moment, is this owner's. False without one."""

    def is_gone(self) -> bool:
        """Whether it has ended for good: nothing of it can register a kernel again."""


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A user of the machine; shown as `user 1000`."""

    uid: int

    @property
    def key(self) -> str:
        """The number of the user."""
        return str(self.uid)

    @property
    def kind(self) -> str:
        """For messages."""
        return "user"

    @property
    def account_name(self) -> str:
        """By the machine's list of users."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return ""

    def owns(self, pid: int) -> bool:
        """By the rule of kill(2): real or saved user id. Not by the owner of its directory in
        /proc, which is root for every process that cannot be dumped, nor by the effective user id
        alone: a setuid program still belongs to its caller. After `sudo`, all three are root.
        """
        for line in _status(pid):
            if line.startswith("Uid:"):
                real, _effective, saved, _filesystem = line.split()[1:]
                return str(self.uid) in (real, saved)
        return False

    def is_gone(self) -> bool:
        """They may log in again at any time."""
        return False

    def __str__(self) -> str:
        return f"user {self.uid}"


@dataclass(frozen=True, slots=True)
class KubernetesPod:
    """A pod of this node; all of its containers, whatever the unix users inside."""

    uid: str

    @property
    def key(self) -> str:
        """Unlike the number of any user."""
        return POD_PREFIX + self.uid

    @property
    def kind(self) -> str:
        """For messages."""
        return "pod"

    @property
    def account_name(self) -> str:
        """Users inside have names of their own, which mean nothing here."""
        return ""

    def owns(self, pid: int) -> bool:
        """By the cgroup, which only the container runtime chooses."""
        return pod_of(pid) == self.uid

    def is_gone(self) -> bool:
        """A pod whose containers are started again keeps a process meanwhile."""
        return not has_processes(self.uid)

    def __str__(self) -> str:
        return f"pod {self.uid}"


def agent_user() -> UnixUser:
    """The user that this agent runs as."""
    return UnixUser(os.getuid())


def owner_from_key(key: str) -> ProcessOwner:
    """The owner with this key. Raises ValueError for other text."""
    if key.startswith(POD_PREFIX):
        return KubernetesPod(key.removeprefix(POD_PREFIX))
    return UnixUser(int(key))


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return []
