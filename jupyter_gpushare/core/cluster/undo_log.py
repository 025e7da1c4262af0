"""An append-only log of inverse operations.

Nothing is copied: every change pushes the call that reverses it, and a rollback pops and calls. A
simulation therefore costs what it changes, not the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["UndoLog"]

Undo = tuple[Callable[..., None], tuple[Any, ...]]


class UndoLog:
    """A mark is the length of the log. Marks from `open` keep the log until `close` or a rollback
    past them.
    """

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self._open: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, undo: Callable[..., None], *arguments: Any) -> None:
        """Records how to reverse a change that was just made."""
        self._entries.append((undo, arguments))

    def assign(self, target: object, name: str, value: Any) -> None:
        """Sets an attribute and records its former value."""
        self._entries.append((setattr, (target, name, getattr(target, name))))
        setattr(target, name, value)

    def mark(self) -> int:
        """The current position, for `undo_to`. Valid until something undoes past it."""
        return len(self._entries)

    def open(self) -> int:
        """A mark that survives `settle`: the caller must close it or roll back to it."""
        self._open.append(len(self._entries))
        return len(self._entries)

    def undo_to(self, mark: int) -> None:
        """Reverses everything since the mark, newest first. The reversing calls must not push."""
        entries = self._entries
        while len(entries) > mark:
            undo, arguments = entries.pop()
            undo(*arguments)
        self._open = [held for held in self._open if held <= mark]

    def close(self, mark: int) -> None:
        """Drops the mark. The log shrinks when no older mark needs it."""
        if mark in self._open:
            self._open.remove(mark)
        self.settle()

    def settle(self) -> None:
        """Drops what no open mark can reach."""
        if not self._open:
            self._entries.clear()
