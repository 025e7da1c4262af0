"""What a restarted agent needs to find its kernels again: one JSON file, replaced as a whole.

The file is replaced atomically but not synced to disk: it has to survive the death of the agent,
and when the machine fails the kernels are gone as well. It holds process identities (pid and start
time), launch marks, token hashes, leases with their GPUs, and what the scheduler has not
acknowledged: ended leases and GPU time. It never holds tokens, nor what the driver knows better
(memory, suspended processes). The names in the file are those of version 0.1.0.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, field

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import (
    Event,
    GateKind,
    KernelRequestState,
    LeaseBody,
    LeaseReleased,
    NodeRules,
    decode,
    encode,
)

from ..system.process_owner import ProcessOwner, UnixUser, owner_from_key
from ..system.processes import ProcessId
from .assignment import GpuAssignment
from .kernel_process import Registration
from .kernel_record import KernelRecord
from .node import NodeRuntime, log
from .usage_outbox import UsageOutbox

__all__ = ["AgentJournal"]


class _JournalKernel(Struct, kw_only=True):
    kernel_id: str
    name: str = ""
    user: str = ""
    language: str = "python"
    gate: GateKind | None = None
    gate_reason: str = ""
    ends_with: tuple[int, int] | None = None
    """Pid and start time."""
    never_connected: bool = False
    wants_gpu: bool = False
    """Only in files of version 0.1.0: since then it is part of `request_state`."""
    registered: bool = False
    owner: str = ""
    """Its key; "": not registered yet."""
    uid: int | None = None
    """Only in files of version 0.1.0: the unix user that owns it."""
    server: str = ""
    token: str = ""
    launch: str = ""
    cgroup: str = field(default="", name="leaf")
    pid: int | None = None
    start: int | None = None
    ever_connected: bool = False
    request_state: KernelRequestState | None = field(default=None, name="outlook")
    lease: LeaseBody | None = None
    assigned_gpus: list[int] = field(default_factory=list, name="home")
    current_gpus: list[int] = field(default_factory=list, name="site")
    attached: bool = False
    bound_gpus: list[int] = field(default_factory=list, name="bound")
    lease_revoked: bool = field(default=False, name="unwanted")
    parked: bool = False
    pinned: bool = False
    suspended_by_user: bool = field(default=False, name="held_back")
    generation: int = 0
    events: list[Event] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list, name="told")
    released_lease: LeaseBody | None = field(default=None, name="rested")

    def process_id(self) -> ProcessId | None:
        """Its process when the file was written."""
        if self.pid is None or self.start is None:
            return None
        return ProcessId(self.pid, self.start)

    def process_owner(self) -> ProcessOwner | None:
        """Whose it is."""
        if self.owner:
            return owner_from_key(self.owner)
        return None if self.uid is None else UnixUser(self.uid)


class _JournalFile(Struct, kw_only=True):
    rules: NodeRules = NodeRules()
    kernels: list[_JournalKernel] = field(default_factory=list)
    unacknowledged: list[LeaseReleased] = field(default_factory=list, name="ends")
    usage_outbox: UsageOutbox = field(default_factory=UsageOutbox, name="tally")


class AgentJournal:
    """Writes the node's state to its file and restores it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, node: NodeRuntime) -> None:
        """Replace the file. An error (a full disk) is logged: the agent continues and tries again
        at the next change.
        """
        content = _JournalFile(
            rules=node.rules,
            kernels=[_entry(kernel) for kernel in node.kernels.values()],
            unacknowledged=list(node.unacknowledged.values()),
            usage_outbox=node.usage_outbox,
        )
        try:
            self._replace(encode(content))
        except OSError as error:
            log.error("the journal %s cannot be written: %s", self._path, error)
            return
        node.dirty = False

    def _replace(self, data: bytes) -> None:
        fresh = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(data)
        fresh.replace(self._path)

    def restore(self, node: NodeRuntime) -> list[tuple[KernelRecord, ProcessId]]:
        """Restore the node's state; returns the kernels whose process lives. An unreadable file is
        moved aside.
        """
        try:
            file = decode(_JournalFile, self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, GpuShareError) as error:
            log.error("the journal %s cannot be read (%s); it is moved aside", self._path, error)
            self._path.replace(self._path.with_suffix(".bad"))
            return []
        node.rules = file.rules
        node.unacknowledged = {body.lease: body for body in file.unacknowledged}
        node.usage_outbox = file.usage_outbox
        alive = []
        for entry in file.kernels:
            kernel, ident = _restored(node, entry), entry.process_id()
            if ident is not None and ident.is_alive():
                alive.append((kernel, ident))
            elif entry.registered or entry.lease is not None:
                kernel.process.gone_at = node.clock()
        return alive


def _entry(kernel: KernelRecord) -> _JournalKernel:
    registration, process, assignment = kernel.registration, kernel.process, kernel.assignment
    return _JournalKernel(
        kernel_id=kernel.kernel_id,
        name=registration.name,
        user=registration.user,
        language=registration.language,
        gate=registration.gate,
        gate_reason=registration.gate_reason,
        ends_with=_pid_and_start(registration.ends_with),
        never_connected=registration.never_connected,
        registered=registration.registered,
        owner=registration.owner.key if registration.owner is not None else "",
        server=registration.server,
        token=registration.token,
        launch=process.launch,
        cgroup=process.cgroup,
        pid=process.main.pid if process.main else None,
        start=process.main.start if process.main else None,
        ever_connected=kernel.gate.ever_connected,
        request_state=kernel.request_state,
        lease=assignment.lease,
        assigned_gpus=list(assignment.assigned_gpus),
        current_gpus=list(assignment.current_gpus),
        attached=assignment.attached,
        bound_gpus=list(assignment.bound_gpus),
        lease_revoked=assignment.lease_revoked,
        parked=assignment.parked,
        pinned=kernel.preferences.pinned,
        suspended_by_user=kernel.preferences.suspended_by_user,
        generation=assignment.generation,
        events=list(kernel.published.events),
        unsent=list(kernel.published.unsent),
        released_lease=kernel.idle.released_lease,
    )


def _pid_and_start(process: ProcessId | None) -> tuple[int, int] | None:
    return (process.pid, process.start) if process is not None else None


def _restored(node: NodeRuntime, entry: _JournalKernel) -> KernelRecord:
    kernel = node.open_kernel(entry.kernel_id)
    kernel.registration = Registration(
        name=entry.name,
        user=entry.user,
        language=entry.language,
        gate=entry.gate,
        gate_reason=entry.gate_reason,
        ends_with=ProcessId(*entry.ends_with) if entry.ends_with else None,
        never_connected=entry.never_connected,
        registered=entry.registered,
        owner=entry.process_owner(),
        server=entry.server,
        token=entry.token,
    )
    kernel.process.launch, kernel.process.cgroup = entry.launch, entry.cgroup
    kernel.gate.ever_connected, kernel.request_state = entry.ever_connected, entry.request_state
    if entry.request_state is None and entry.wants_gpu:
        kernel.request_state = KernelRequestState(kernel_id=entry.kernel_id, pending=True)
    kernel.assignment = GpuAssignment(
        lease=entry.lease,
        lease_revoked=entry.lease_revoked,
        parked=entry.parked,
        assigned_gpus=tuple(entry.assigned_gpus),
        current_gpus=tuple(entry.current_gpus),
        attached=entry.attached,
        bound_gpus=tuple(entry.bound_gpus),
        generation=entry.generation,
    )
    kernel.preferences.pinned = entry.pinned
    kernel.preferences.suspended_by_user = entry.suspended_by_user
    kernel.published.events.extend(entry.events)
    kernel.published.unsent = list(entry.unsent)
    kernel.idle.released_lease = entry.released_lease
    return kernel
