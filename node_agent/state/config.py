"""Configuration of one agent, and how it sends messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from jupyter_gpushare.messages import FromAgent, ToKernel, ToServer

from ..system.tenancy import Tenancy, UserScope, tenancy_of

__all__ = ["AgentConfig", "AgentPorts"]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Times are in ms, amounts in MiB.

    `host_memory_mib`: how much host memory saved GPU memory may use in all (None: no limit).
    `host_reserve_mib`: how much must stay free (None: a twentieth of the machine's memory).
    """

    node: str
    state_dir: Path
    socket: Path | None = None
    grace_ms: int = 7_000
    kill_after_ms: int = 250
    drain_ms: int = 10_000
    notice_ms: int | None = None
    min_notice_ms: int = 5_000
    host_memory_mib: int | None = None
    host_reserve_mib: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    command_log_mib: int = 64
    """Longest output of one command that is kept until the scheduler has stored it."""
    user_logs_mib: int = 256
    """The same for all commands of one user together."""
    users: UserScope = "own"
    """Whose kernels and Jupyter servers are served: those of the agent's own user, of every unix
    user of the machine, or of every Kubernetes pod of this node (both need root).
    """
    ungated_devices: Literal["share", "none"] = "share"
    """GPUs that a kernel sees whose cells do not ask before they run: those of the share that it
    has when it starts, or none.
    """
    run_commands: Literal["own", "users", "off"] = "own"
    """Which commands (batch work) run here: those of the agent's own user, those of every user as
    that unix user (needs root), or none.
    """
    command_accounts: tuple[str, ...] = ()
    """System accounts whose commands run too with `run_commands="users"`."""

    @property
    def tenancy(self) -> Tenancy:
        """How those that are served differ."""
        return tenancy_of(self.users)

    def socket_path(self) -> Path:
        """Where kernels and servers connect."""
        return self.socket or self.tenancy.socket_dir(self.state_dir) / "agent.sock"

    def public_dir(self) -> Path:
        """The folder for files that kernels open: not the state directory when other users are
        served, because it is closed to them.
        """
        return self.tenancy.files_dir(self.state_dir, self.socket_path().parent)


class AgentPorts(Protocol):
    """How the agent sends messages. Sending never blocks and never fails: what cannot be delivered
    is dropped, and the state is sent again when the peer is back.
    """

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """False when the kernel is not connected."""

    def to_server(self, server: str, body: ToServer) -> bool:
        """False when that server is not connected."""

    def to_servers(self, body: ToServer) -> None:
        """To every connected server, of all users."""

    def to_scheduler(self, body: FromAgent) -> bool:
        """False when the link is down."""
