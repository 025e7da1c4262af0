"""What a restarted agent needs to find its kernels again: one JSON file, replaced as a whole.

Replaced atomically, but not forced to the disk: it has to survive the death of the agent, and when
the machine dies the kernels are gone as well. Kept are identities (pid and start time), marks,
hashes of tokens, leases with their homes, and what the scheduler has not acknowledged: let-go's,
and GPU time. Never kept: tokens, and what the driver knows better (who holds what, who is
suspended).
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, field

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import (
    Event,
    KernelRequestState,
    LeaseBody,
    LeaseReleased,
    NodeRules,
    decode,
    encode,
)

from ..system.processes import ProcessId
from .kernel_record import KernelRecord
from .node import NodeRuntime, log
from .usage_outbox import UsageOutbox

__all__ = ["AgentJournal"]


class _JournalKernel(Struct, kw_only=True):
    kernel_id: str
    name: str = ""
    user: str = ""
    language: str = "python"
    wants_gpu: bool = False
    registered: bool = False
    uid: int | None = None
    server: str = ""
    token: str = ""
    launch: str = ""
    leaf: str = ""
    pid: int | None = None
    start: int | None = None
    ever_connected: bool = False
    outlook: KernelRequestState | None = None
    lease: LeaseBody | None = None
    home: list[int] = field(default_factory=list)
    site: list[int] = field(default_factory=list)
    attached: bool = False
    bound: list[int] = field(default_factory=list)
    unwanted: bool = False
    pinned: bool = False
    held_back: bool = False
    generation: int = 0
    events: list[Event] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rested: LeaseBody | None = None


class _JournalFile(Struct, kw_only=True):
    rules: NodeRules = NodeRules()
    kernels: list[_JournalKernel] = field(default_factory=list)
    ends: list[LeaseReleased] = field(default_factory=list)
    tally: UsageOutbox = field(default_factory=UsageOutbox)


class AgentJournal:
    """Writes the books down, and opens them again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, node: NodeRuntime) -> None:
        """Replace the file. A full disk is logged: the agent goes on, and tries again at the next
        change.
        """
        kernels = [_kept(book) for book in node.books.values()]
        data = encode(
            _JournalFile(
                rules=node.rules, kernels=kernels, ends=list(node.ends.values()), tally=node.tally
            )
        )
        fresh = self._path.with_suffix(".new")
        try:
            with os.fdopen(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(data)
            fresh.replace(self._path)
        except OSError as error:
            log.error("the journal %s cannot be written: %s", self._path, error)
            return
        node.dirty = False

    def restore(self, node: NodeRuntime) -> list[tuple[KernelRecord, ProcessId]]:
        """Open the books again; returns those whose process lives. A file that cannot be read is
        set aside.
        """
        try:
            file = decode(_JournalFile, self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, GpuShareError) as error:
            log.error("the journal %s cannot be read (%s); it is set aside", self._path, error)
            self._path.replace(self._path.with_suffix(".bad"))
            return []
        node.rules = file.rules
        node.ends = {body.lease: body for body in file.ends}
        node.tally = file.tally
        alive = []
        for kept in file.kernels:
            book = _opened(node, kept)
            ident = (
                ProcessId(kept.pid, kept.start)
                if kept.pid is not None and kept.start is not None
                else None
            )
            if ident is not None and ident.is_alive():
                alive.append((book, ident))
            elif kept.registered or kept.lease is not None:
                book.gone_at = node.clock()
        return alive


def _kept(book: KernelRecord) -> _JournalKernel:
    return _JournalKernel(
        kernel_id=book.kernel_id,
        name=book.name,
        user=book.user,
        language=book.language,
        wants_gpu=book.wants_gpu,
        registered=book.registered,
        uid=book.uid,
        server=book.server,
        token=book.token,
        launch=book.launch,
        leaf=book.leaf,
        pid=book.main.pid if book.main else None,
        start=book.main.start if book.main else None,
        ever_connected=book.ever_connected,
        outlook=book.outlook,
        lease=book.lease,
        home=list(book.home),
        site=list(book.site),
        bound=list(book.bound),
        attached=book.attached,
        unwanted=book.unwanted,
        pinned=book.pinned,
        held_back=book.held_back,
        generation=book.generation,
        events=list(book.events),
        told=list(book.told),
        rested=book.rest.lease,
    )


def _opened(node: NodeRuntime, kept: _JournalKernel) -> KernelRecord:
    book = node.book(kept.kernel_id)
    for name in (
        "name",
        "user",
        "language",
        "wants_gpu",
        "registered",
        "uid",
        "server",
        "token",
        "launch",
        "leaf",
        "ever_connected",
        "outlook",
        "lease",
        "attached",
        "unwanted",
        "pinned",
        "held_back",
        "generation",
        "told",
    ):
        setattr(book, name, getattr(kept, name))
    book.home, book.site, book.bound = tuple(kept.home), tuple(kept.site), tuple(kept.bound)
    book.events.extend(kept.events)
    book.rest.lease = kept.rested
    return book
