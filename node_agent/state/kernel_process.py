"""Whom a kernel belongs to, and its process. Owner: `reconcile.lifecycle`; for commands
`reconcile.batch`.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare.messages import GateKind

from ..system.process_owner import ProcessOwner
from ..system.processes import ProcessId, WatchedProcess

__all__ = ["KernelProcess", "Registration"]


@dataclass(slots=True)
class Registration:
    """What the kernel's Jupyter server said when it registered the kernel."""

    name: str = ""
    user: str = ""
    language: str = "python"
    registered: bool = False
    owner: ProcessOwner | None = None
    """Whose Jupyter server registered it, or whose command it is; None: not registered yet."""
    server: str = ""
    scheduler_user: str = ""
    """The user of the kernel's leases at the scheduler; "": it had none yet."""
    gate: GateKind | None = None
    """What its server prepared to make its cells ask; None: version 0.1, or a command."""
    gate_reason: str = ""
    ends_with: ProcessId | None = None
    """The process that registered it, if it is ended with that process."""
    never_connected: bool = False
    """A process of this kernel had the code for the gate and did not connect."""
    token: str = ""
    """SHA-256 of the kernel's token; the token itself is only in its file."""


@dataclass(slots=True)
class KernelProcess:
    """The process of one launch, and whether it starts, runs, is being ended or is gone."""

    launch: str = ""
    """Marks the processes of one launch: remains of an older launch do not have it."""
    cgroup: str = ""
    """The cgroup of this launch, where kernels have one."""
    main: ProcessId | None = None
    watch: WatchedProcess | None = None
    launched_at: int = 0
    gone_at: int | None = None
    """Since when there is no process; None while it lives or was never launched."""
    starting: bool = False
    """Its server is about to launch it."""
    end_requested: bool = False
    """Its user shuts it down or restarts it."""
    ending: bool = False
    killing: bool = False
    unrestorable: str = ""
    """Why its saved memory cannot be restored, so that it has to be restarted."""
    visible_gpus: tuple[int, ...] | None = None
    """The GPUs that its environment shows, if that is fixed at its start; None: code in it reveals
    the GPUs of its share.
    """
    reported_ungated: bool = False
    relaunched: bool = False
    """The next attachment is that of a new process that replaces an old one."""

    def follow(self, ident: ProcessId, watch: WatchedProcess) -> None:
        """This is the process from now on."""
        self.stop_watching()
        self.main, self.watch, self.gone_at = ident, watch, None

    def stop_watching(self) -> None:
        """Close the pidfd; the process lives on."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    def started(self, now: int, *, relaunched: bool) -> None:
        """A new process: nothing that happened to an older one counts for it."""
        self.launched_at, self.relaunched = now, relaunched
        self.killing, self.unrestorable, self.end_requested = False, "", False
        self.reported_ungated = False

    def exited(self, now: int) -> None:
        """The process is gone; a later one replaces it."""
        self.main, self.watch, self.gone_at = None, None, now
        self.killing, self.unrestorable, self.relaunched = False, "", True
