"""The current device."""

from __future__ import annotations

from typing import Any

from cupy.cuda import runtime

__all__ = ["Device", "runtime"]


class Device:
    """Entering it makes it current, and gives this process a context there."""

    def __init__(self, ordinal: int | None = None) -> None:
        self.id = runtime.getDevice() if ordinal is None else ordinal
        self._before: list[int] = []

    def use(self) -> None:
        """From now on."""
        runtime.setDevice(self.id)

    def __enter__(self) -> Device:
        self._before.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(self, *_: Any) -> None:
        runtime.setDevice(self._before.pop())
