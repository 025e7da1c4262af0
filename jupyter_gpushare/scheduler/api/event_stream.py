"""Committed changes, told to everybody who listens: a ring of recent frames, so that a listener
that was away can resume.

Each listener gets only what its caller may see, in the order of the changes. A listener that does
not read is cut off rather than remembered without bound: it comes back and resumes.
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

REMEMBERED: Final = 10_000
"""Frames in the ring."""
MOST_AUDIENCES: Final = 10_000
BACKLOG: Final = 2_000
"""Frames that may wait for one listener."""


class EventSource(Protocol):
    """What the hub asks of the service."""

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
    """A frame with whom it is about. Encoded once for all who see names and once for all others,
    when the first of them is there.

    A status is written anew for every listener: it says who they are. What happened to a workload
    is told in words that may have names.
    """

    revision: int
    project: str | None
    user: str | None
    frame: m.SchedulerFrame
    _whole: bytes = b""
    _nameless: bytes = b""

    def body(self, with_names: bool) -> bytes | None:
        """None: this is not for somebody who does not see names."""
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
    """Each with the commit that must be on disk before it is handed out."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False


class EventStream:
    """`connect` gives it its source, once, before anybody listens. All of it lives on one event
    loop.
    """

    def __init__(
        self, remembered: int = REMEMBERED, backlog: int = BACKLOG, disk: GroupCommit | None = None
    ) -> None:
        """`disk`: knows which commits are on disk; None: all of them."""
        self._disk = disk or GroupCommit()
        self._ring: deque[_StreamFrame] = deque(maxlen=remembered)
        self._listeners: set[_StreamListener] = set()
        self._audiences: dict[tuple[str, str | None], list[tuple[_StreamListener, bool]]] = {}
        """Who hears of this project's and user's workloads, and whether with names. Asking a
        thousand listeners costs more than telling the few who may see it, and nearly every change
        is of somebody who was asked about before.
        """
        self._rules: object = None
        """By which these were found."""
        self._backlog = backlog
        self._source: EventSource | None = None
        self._oldest = 0
        """Changes up to this revision are not in the ring (any more)."""

    def connect(self, source: EventSource) -> None:
        """What was published before (by a service that remembers while it starts) is in every state
        from now on.
        """
        self._source = source
        self._ring.clear()
        self._oldest = source.revision - 1

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None:
        """Remembers a frame and hands it to those who may see it. Never waits."""
        told = _StreamFrame(frame.revision, project, user, frame)
        if len(self._ring) == self._ring.maxlen:
            self._oldest = self._ring[0].revision
        self._ring.append(told)
        if project is None:
            for listener in self._listeners:
                self._hand(listener, told)
        else:
            for listener, with_names in self._audience(project, user):
                self._give(listener, told.body(with_names))

    def _audience(self, project: str, user: str | None) -> list[tuple[_StreamListener, bool]]:
        if not self._listeners:
            return []
        assert self._source is not None
        if self._rules is not self._source.rules or len(self._audiences) > MOST_AUDIENCES:
            self._rules = self._source.rules
            self._audiences.clear()
        key = project, user
        if key not in self._audiences:
            may_see, sees_names = self._source.may_see, self._source.sees_names
            found = [one for one in self._listeners if may_see(one.identity, project, user)]
            self._audiences[key] = [(one, sees_names(one.identity, user)) for one in found]
        return self._audiences[key]

    async def subscribe(
        self, identity: Identity, since: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Encoded frames: the state, or what came after `since` when that is still known; then
        changes as they come.

        Frames of revision `since` itself are repeated: several may share a revision, and the
        listener may have missed the last of them. Ends when the listener is too slow, and when the
        hub closes. Raises StoreUnavailable: the disk failed to keep what it tells.
        """
        listener = _StreamListener(identity)
        if not self._resume(listener, since):
            assert self._source is not None
            listener.frames.append(
                (self._disk.written, m.encode(self._source.scheduler_state(identity)))
            )
        self._listeners.add(listener)
        self._audiences.clear()
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
            self._audiences.clear()

    def close(self) -> None:
        """Ends every subscription."""
        for listener in self._listeners:
            listener.is_over = True
            listener.woken.set()

    def _resume(self, listener: _StreamListener, since: int | None) -> bool:
        """False: the whole state is needed. A revision that is ahead of ours is of another life of
        the service.
        """
        assert self._source is not None
        if since is None or not self._oldest < since <= self._source.revision:
            return False
        missed = [told for told in self._ring if told.revision >= since]
        if len(missed) > self._backlog:
            return False
        for told in missed:
            self._hand(listener, told)
        return True

    def _hand(self, listener: _StreamListener, told: _StreamFrame) -> None:
        assert self._source is not None
        if not self._source.may_see(listener.identity, told.project, told.user):
            return
        if isinstance(told.frame, m.ServiceChanged):
            body: bytes | None = m.encode(
                m.ServiceChanged(
                    revision=told.revision, status=self._source.status(listener.identity)
                )
            )
        else:
            body = told.body(
                with_names=told.project is None
                or self._source.sees_names(listener.identity, told.user)
            )
        self._give(listener, body)

    def _give(self, listener: _StreamListener, body: bytes | None) -> None:
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
