"""The kernels that this process started, in the role of a Jupyter server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jupyter_gpushare.messages import Event

from ..clients.jupyter_server import JupyterServer
from .report import report

__all__ = ["ToolKernels"]

REPORTED: Final = frozenset(
    {"notice", "suspended", "killed", "lost", "evicted", "refused", "fault", "ungated"}
)
"""Events that the user of a tool has to know of."""


class ToolKernels(JupyterServer):
    """Restarts no kernel: the tool that runs a notebook could not go on with a new one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, kernel_id: str, name: str) -> None:
        """A kernel is about to start."""
        self._names[kernel_id] = name

    def remove(self, kernel_id: str) -> None:
        """A kernel has ended."""
        self._names.pop(kernel_id, None)

    def kernel_ids(self) -> list[str]:
        return list(self._names)

    def starting_ids(self) -> set[str]:
        """None: kernels are added before they start."""
        return set()

    def forget_failed_starts(self) -> None:
        pass

    async def kernel_names(self) -> Mapping[str, str]:
        return {kernel_id: name for kernel_id, name in self._names.items() if name}

    def is_busy(self, kernel_id: str) -> bool:  # noqa: ARG002 - as of the base class
        return False

    async def restart(self, kernel_id: str) -> None:
        """The agent ends the kernel at its deadline."""

    async def end(self, kernel_id: str) -> None:
        """The same."""

    def emit(self, kernel_id: str, event: Event) -> None:  # noqa: ARG002 - as of the base class
        if event.kind in REPORTED:
            report(event.message)
