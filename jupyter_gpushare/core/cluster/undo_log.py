"""How changes are undone: an append-only log of inverse operations. Refuses to know what is being
changed.

Nothing is copied: every change of the cluster pushes the call that reverses it, and a rollback pops
and calls. That makes a simulation cost what it touches, not what the cluster holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["UndoLog"]

Undo = tuple[Callable[..., None], tuple[Any, ...]]


class UndoLog:
    """The undo log. A mark is its length; marks taken by `open` keep the log alive until `close` or
    a rollback past them.
    """

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self._open: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, undo: Callable[..., None], *arguments: Any) -> None:
        """Remembers how to reverse the change that was just made."""
        self._entries.append((undo, arguments))

    def assign(self, target: object, name: str, value: Any) -> None:
        """Sets an attribute so that it can be set back."""
        self._entries.append((setattr, (target, name, getattr(target, name))))
        setattr(target, name, value)

    def mark(self) -> int:
        """Where the log stands, for `undo_to`. Valid only until somebody undoes past it."""
        return len(self._entries)

    def open(self) -> int:
        """A mark that outlives `settle`: the caller promises to close it or to roll back to it."""
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
        """Gives up the right to undo to this mark; the log shrinks when no older mark needs it."""
        if mark in self._open:
            self._open.remove(mark)
        self.settle()

    def settle(self) -> None:
        """Drops what no open mark can reach."""
        if not self._open:
            self._entries.clear()
