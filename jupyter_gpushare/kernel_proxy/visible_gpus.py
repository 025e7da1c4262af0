"""Whether the kernel's process can use the GPUs of its share: it chose its GPUs when it started.
Pure.
"""

from __future__ import annotations

from typing import Final

from ..kernel.kernel_body import Json

__all__ = ["VISIBLE", "VisibleGpus"]

VISIBLE: Final = "GPUSHARE_LAUNCHED_WITH"
"""Environment variable of the proxy: `CUDA_VISIBLE_DEVICES` of the kernel, if that has one."""


class VisibleGpus:
    """GPUs of the process and of the share. `launched_with`: the process's `CUDA_VISIBLE_DEVICES`;
    None: it sees all GPUs of the node.
    """

    def __init__(self, launched_with: str | None) -> None:
        self._launched_with = launched_with
        self.wanted = ""
        """`CUDA_VISIBLE_DEVICES` for the present share; "": not known, or no real GPU."""
        self._first = ""
        self._was_mentioned = False

    def launched(self, visible: str | None) -> None:
        """The process was started again with these GPUs."""
        self._launched_with, self._was_mentioned = visible, False

    def shared(self, devices: list[Json]) -> None:
        """The agent sent the GPUs of the share; empty: nothing is known of them."""
        if devices:
            self.wanted, self._first = str(devices[0]["visible"]), str(devices[0]["uuid"])

    def must_restart(self) -> bool:
        """Whether only another process can use the share."""
        if self._launched_with is None or not self._first:
            return False
        return self._first not in self._launched_with.split(",")

    def mention(self) -> bool:
        """Whether to say so: once for each process."""
        mention = self.must_restart() and not self._was_mentioned
        self._was_mentioned = self._was_mentioned or mention
        return mention
