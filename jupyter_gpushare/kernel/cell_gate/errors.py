"""The exceptions that end a cell. IPython prints them on one line, without a traceback."""

from __future__ import annotations

from IPython.core.error import InputRejected

__all__ = ["CellNotRun", "GpuReclaimed"]


class _OneLineError(Exception):
    def _render_traceback_(self) -> list[str]:
        """IPython prints this in place of a traceback, which would show only our own frames."""
        return [f"{type(self).__name__}: {self}"]


class CellNotRun(_OneLineError, InputRejected):  # type: ignore[misc]  # IPython's is untyped
    """Raised in place of a cell that the gate refused."""


class GpuReclaimed(_OneLineError):
    """Raised in the running cell when its GPU is reclaimed and its kernel is about to restart."""
