"""The stream of committed changes: a ring buffer of recent frames, from which a listener that
reconnects can resume.

Each listener gets only what its caller may see, in order. A listener that does not read is
disconnected rather than buffered without bound: it reconnects and resumes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput

from ..auth.authorization import without_names
from ..auth.identity import Identity
from ..store.group_commit import GroupCommit

__all__ = ["EventStream", "EventSource", "revision_in"]

RING_SIZE: Final = 10_000
"""Frames in the ring buffer."""
LARGEST_CACHE: Final = 10_000
BACKLOG: Final = 2_000
"""Frames that may be queued for one listener."""


class EventSource(Protocol):
    """What the stream needs from the service."""

    @property
    def revision(self) -> int: ...
    @property
    def rules(self) -> object: ...
    def scheduler_state(self, identity: Identity) -> m.SchedulerState: ...
    def status(self, identity: Identity) -> m.ServiceStatus: ...
    def may_see(self, identity: Identity, project: str | None, user: str | None) -> bool: ...
    def sees_names(self, identity: Identity, user: str | None) -> bool: ...


@dataclass(slots=True)
class _StreamFrame:
    """A frame and its owner. Encoded once for listeners that see names and once for the others, on
    first use.

    A status is encoded for every listener, since it contains their identity. Events may contain
    names in their messages.
    """

    revision: int
    project: str | None
    user: str | None
    frame: m.SchedulerFrame
    _whole: bytes = b""
    _nameless: bytes = b""

    def body(self, with_names: bool) -> bytes | None:
        """None: not visible to listeners that do not see names."""
        if with_names:
            self._whole = self._whole or m.encode(self.frame)
            return self._whole
        if isinstance(self.frame, m.WorkloadEvent):
            return None
        if not isinstance(self.frame, m.WorkloadChanged):
            return self.body(with_names=True)
        self._nameless = self._nameless or m.encode(
            replace(self.frame, workload=without_names(self.frame.workload))
        )
        return self._nameless


@dataclass(eq=False, slots=True)
class _StreamListener:
    identity: Identity
    frames: deque[tuple[int, bytes]] = field(default_factory=deque)
    """Each with the commit that must be on disk before it is sent."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False


class EventStream:
    """`connect` sets its source, once, before anyone subscribes. Runs on one event loop."""

    def __init__(
        self, remembered: int = RING_SIZE, backlog: int = BACKLOG, disk: GroupCommit | None = None
    ) -> None:
        """`disk`: knows which commits are on disk; None: all of them."""
        self._disk = disk or GroupCommit()
        self._ring: deque[_StreamFrame] = deque(maxlen=remembered)
        self._listeners: set[_StreamListener] = set()
        self._cache: dict[tuple[str, str | None], list[tuple[_StreamListener, bool]]] = {}
        """Listeners of this project's and user's workloads, and whether they see names. Cached:
        checking a thousand listeners costs more than sending to the few that may see a change.
        """
        self._rules: object = None
        """The `rules` under which the cache is valid."""
        self._backlog = backlog
        self._source: EventSource | None = None
        self._oldest = 0
        """Changes up to this revision are not in the ring buffer (any more)."""

    def connect(self, source: EventSource) -> None:
        """Frames that were published before (while the service restores its state) are part of
        every state frame.
        """
        self._source = source
        self._ring.clear()
        self._oldest = source.revision - 1

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None:
        """Stores a frame and queues it for its listeners. Never blocks."""
        entry = _StreamFrame(frame.revision, project, user, frame)
        if len(self._ring) == self._ring.maxlen:
            self._oldest = self._ring[0].revision
        self._ring.append(entry)
        if project is None:
            for listener in self._listeners:
                self._send_frame(listener, entry)
        else:
            for listener, with_names in self._listeners_of(project, user):
                self._enqueue(listener, entry.body(with_names))

    def _listeners_of(self, project: str, user: str | None) -> list[tuple[_StreamListener, bool]]:
        if not self._listeners:
            return []
        assert self._source is not None
        if self._rules is not self._source.rules or len(self._cache) > LARGEST_CACHE:
            self._rules = self._source.rules
            self._cache.clear()
        key = project, user
        if key not in self._cache:
            may_see, sees_names = self._source.may_see, self._source.sees_names
            found = [one for one in self._listeners if may_see(one.identity, project, user)]
            self._cache[key] = [(one, sees_names(one.identity, user)) for one in found]
        return self._cache[key]

    async def subscribe(
        self, identity: Identity, since: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Encoded frames: the state, or the frames after `since` if they are still in the buffer;
        then changes as they happen.

        Frames of revision `since` itself are repeated: several may share a revision, and the
        listener may have missed the last of them. Ends when the listener is too slow, and when the
        stream closes. Raises StoreUnavailable: a commit could not be written to disk.
        """
        listener = _StreamListener(identity)
        if not self._resume(listener, since):
            assert self._source is not None
            listener.frames.append(
                (self._disk.written, m.encode(self._source.scheduler_state(identity)))
            )
        self._listeners.add(listener)
        self._cache.clear()
        try:
            while not listener.is_over:
                while listener.frames and not listener.is_over:
                    mark, body = listener.frames.popleft()
                    await self._disk.reached(mark)
                    yield body
                listener.woken.clear()
                if not listener.frames and not listener.is_over:
                    await listener.woken.wait()
        finally:
            self._listeners.discard(listener)
            self._cache.clear()

    def close(self) -> None:
        """Ends every subscription."""
        for listener in self._listeners:
            listener.is_over = True
            listener.woken.set()

    def _resume(self, listener: _StreamListener, since: int | None) -> bool:
        """False: the complete state is needed. A revision beyond ours is from another process."""
        assert self._source is not None
        if since is None or not self._oldest < since <= self._source.revision:
            return False
        missed = [entry for entry in self._ring if entry.revision >= since]
        if len(missed) > self._backlog:
            return False
        for entry in missed:
            self._send_frame(listener, entry)
        return True

    def _send_frame(self, listener: _StreamListener, entry: _StreamFrame) -> None:
        assert self._source is not None
        if not self._source.may_see(listener.identity, entry.project, entry.user):
            return
        if isinstance(entry.frame, m.ServiceChanged):
            body: bytes | None = m.encode(
                m.ServiceChanged(
                    revision=entry.revision, status=self._source.status(listener.identity)
                )
            )
        else:
            body = entry.body(
                with_names=entry.project is None
                or self._source.sees_names(listener.identity, entry.user)
            )
        self._enqueue(listener, body)

    def _enqueue(self, listener: _StreamListener, body: bytes | None) -> None:
        if body is None:
            return
        listener.frames.append((self._disk.written, body))
        listener.is_over = listener.is_over or len(listener.frames) > self._backlog
        listener.woken.set()


def revision_in(since: str | None) -> int | None:
    """The revision in `?since=`. Raises InvalidInput."""
    if since is None or since == "":
        return None
    if not since.isascii() or not since.isdigit() or len(since) > 18:
        raise InvalidInput(f"since must be a revision, got {since!r}", field="since")
    return int(since)
