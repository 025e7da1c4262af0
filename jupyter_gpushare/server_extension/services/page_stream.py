"""Numbered frames for open pages, kept for a while so that a page can resume without loss."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Final

from jupyter_gpushare.messages import StreamFrame, encode

__all__ = ["PageListener", "PageStream"]

MAX_HISTORY: Final = 2000
MAX_BACKLOG: Final = 1000
"""Frames that may be queued for a page that does not read; then it is disconnected and resumes."""


class PageListener:
    """One open page. `frames` yields None when the page has fallen too far behind."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def clear(self) -> None:
        """Drop all queued frames: the complete state follows."""
        while not self.frames.empty():
            self.frames.get_nowait()

    def put(self, frame: bytes) -> bool:
        """Queue a frame; False: the page does not read, this was its last frame."""
        if self.frames.qsize() >= MAX_BACKLOG:
            self.frames.put_nowait(None)
            return False
        self.frames.put_nowait(frame)
        return True


class PageStream:
    """Revisions begin at the server's start time: those of an earlier run are too old."""

    def __init__(self) -> None:
        self.revision = time.time_ns() // 1_000_000
        self._history: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=MAX_HISTORY)
        self._listeners: set[PageListener] = set()

    def publish(self, frame_at: Callable[[int], StreamFrame]) -> None:
        """Number a frame and queue it for all pages."""
        self.revision += 1
        frame = encode(frame_at(self.revision))
        self._history.append((self.revision, frame))
        self._listeners = {listener for listener in self._listeners if listener.put(frame)}

    def missed(self, since: int) -> list[bytes] | None:
        """The frames after `since`; None: unknown or too old, the complete state is needed."""
        oldest = self._history[0][0] if self._history else self.revision + 1
        if not oldest - 1 <= since <= self.revision:
            return None
        return [frame for revision, frame in self._history if revision > since]

    def listen(self) -> PageListener:
        """Add a page; `leave` removes it."""
        listener = PageListener()
        self._listeners.add(listener)
        return listener

    def leave(self, listener: PageListener) -> None:
        """Remove a page; also one that was disconnected."""
        self._listeners.discard(listener)

    @property
    def listeners(self) -> int:
        """Number of open pages."""
        return len(self._listeners)
