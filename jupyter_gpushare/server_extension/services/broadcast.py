"""Frames for every page that listens: numbered, remembered for a while, so that a page that lost
its connection misses nothing.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Final

from jupyter_gpushare.messages import StreamFrame, encode

__all__ = ["PageStream", "PageListener"]

REMEMBERED: Final = 2000
LONGEST_BACKLOG: Final = 1000
"""Frames that may wait for a page that does not read; then it is dropped and resumes by revision.
"""


class PageListener:
    """One open page. `frames` yields None when it fell too far behind."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def forget(self) -> None:
        """Drop what was handed so far: the whole state is about to be sent."""
        while not self.frames.empty():
            self.frames.get_nowait()

    def hand(self, frame: bytes) -> bool:
        if self.frames.qsize() >= LONGEST_BACKLOG:
            self.frames.put_nowait(None)
            return False
        self.frames.put_nowait(frame)
        return True


class PageStream:
    """Revisions begin at this server's start time, so that a number from an earlier life is seen to
    be too old.
    """

    def __init__(self) -> None:
        self.revision = time.time_ns() // 1_000_000
        self._history: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=REMEMBERED)
        self._listeners: set[PageListener] = set()

    def publish(self, frame_at: Callable[[int], StreamFrame]) -> None:
        """Number a frame and hand it to everybody."""
        self.revision += 1
        frame = encode(frame_at(self.revision))
        self._history.append((self.revision, frame))
        self._listeners = {listener for listener in self._listeners if listener.hand(frame)}

    def missed(self, since: int) -> list[bytes] | None:
        """The frames after `since`; None when it is too old (or not ours) and the whole state is
        needed.
        """
        oldest = self._history[0][0] if self._history else self.revision + 1
        if not oldest - 1 <= since <= self.revision:
            return None
        return [frame for revision, frame in self._history if revision > since]

    def listen(self) -> PageListener:
        """From now on; every `listen` needs its `leave`."""
        listener = PageListener()
        self._listeners.add(listener)
        return listener

    def leave(self, listener: PageListener) -> None:
        self._listeners.discard(listener)

    @property
    def listeners(self) -> int:
        return len(self._listeners)
