"""Whom an agent serves: its own unix user, all users of the machine, or all pods of a Kubernetes
node. What differs between them is decided here and nowhere else.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Final, Literal, Protocol

from jupyter_gpushare.core.model.errors import InvalidInput

from .peers import Peer, credentials_of, peer_pod
from .pods import host_pids_problem
from .process_owner import ProcessOwner, UnixUser, agent_user

__all__ = ["Tenancy", "UserScope", "tenancy_of"]

UserScope = Literal["own", "all", "pods"]
PUBLIC_DIR: Final = Path("/run/gpushare")
"""Where the socket is when more than one user is served."""


class Tenancy(Protocol):
    """One of the scopes of `--users`."""

    is_shared: bool
    """Whether other unix users than the agent's may connect."""
    has_token_files: bool
    """Whether the agent writes the tokens of kernels to files; else their servers do."""
    has_unix_names: bool
    """Whether the names of the machine's users are those at the scheduler."""
    no_cgroups: str
    """Why kernels get no cgroups of their own; "": they do where that is possible."""
    no_commands: str
    """Why batch commands cannot run; "": they can."""

    def check(self) -> None:
        """Raises InvalidInput when this process may not serve them."""

    def node_name(self) -> str:
        """Name of this node, unless another one is configured."""

    def identify(self, sock: socket.socket) -> Peer:
        """Who has connected."""

    def default_owner(self) -> ProcessOwner | None:
        """The owner of a kernel that no server has registered; None: it has none."""

    def socket_dir(self, state_dir: Path) -> Path:
        """Where the socket is, unless another place is configured."""

    def files_dir(self, state_dir: Path, socket_dir: Path) -> Path:
        """Where files are that kernels open."""


def _host_name() -> str:
    return platform.node() or "localhost"


class _OwnUser:
    is_shared, has_token_files, has_unix_names = False, True, False
    no_cgroups, no_commands = "", ""

    def check(self) -> None:
        """Everyone may."""

    def node_name(self) -> str:
        return _host_name()

    def identify(self, sock: socket.socket) -> Peer:
        pid, uid = credentials_of(sock)
        problem = "" if uid == os.getuid() else f"user {uid} may not connect to this agent"
        return Peer(pid, UnixUser(uid), problem)

    def default_owner(self) -> ProcessOwner | None:
        return agent_user()

    def socket_dir(self, state_dir: Path) -> Path:
        return state_dir

    def files_dir(self, state_dir: Path, socket_dir: Path) -> Path:  # noqa: ARG002 - protocol
        return state_dir


class _AllUsers:
    is_shared, has_token_files, has_unix_names = True, True, True
    no_cgroups, no_commands = "", ""

    def check(self) -> None:
        if os.geteuid() != 0:
            raise InvalidInput("only root can serve every user of the machine", field="--users")

    def node_name(self) -> str:
        return _host_name()

    def identify(self, sock: socket.socket) -> Peer:
        pid, uid = credentials_of(sock)
        return Peer(pid, UnixUser(uid))

    def default_owner(self) -> ProcessOwner | None:
        return agent_user()

    def socket_dir(self, state_dir: Path) -> Path:  # noqa: ARG002 - protocol
        return PUBLIC_DIR

    def files_dir(self, state_dir: Path, socket_dir: Path) -> Path:  # noqa: ARG002 - protocol
        return socket_dir


class _Pods:
    """Unix users mean nothing here: the users of a JupyterHub all have the same one, and root in a
    container is not root of the node.
    """

    is_shared, has_token_files, has_unix_names = True, False, False
    no_cgroups = "kernels stay in the cgroup of their pod, by which they are known"
    no_commands = "this node runs no commands: it serves the notebooks of Kubernetes pods"

    def check(self) -> None:
        if os.geteuid() != 0:
            problem = "only root can serve the pods of a node; set runAsUser: 0"
        elif problem := host_pids_problem():
            problem = f"this agent cannot see which pod a process belongs to: {problem}"
        if problem:
            raise InvalidInput(problem, field="--users")

    def node_name(self) -> str:
        """The name of a pod's host is not that of its node."""
        return os.environ.get("NODE_NAME") or _host_name()

    def identify(self, sock: socket.socket) -> Peer:
        return peer_pod(sock)

    def default_owner(self) -> ProcessOwner | None:
        return None

    def socket_dir(self, state_dir: Path) -> Path:  # noqa: ARG002 - protocol
        return PUBLIC_DIR

    def files_dir(self, state_dir: Path, socket_dir: Path) -> Path:  # noqa: ARG002 - protocol
        """Not that of the socket, which is mounted read-only into the pods."""
        return socket_dir.with_name(f"{socket_dir.name}-simulated")


SCOPES: Final[dict[UserScope, Tenancy]] = {"own": _OwnUser(), "all": _AllUsers(), "pods": _Pods()}


def tenancy_of(users: UserScope) -> Tenancy:
    """The scope with this name."""
    return SCOPES[users]
