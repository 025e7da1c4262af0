"""Who is told what is new: pages, Jupyter's event log, and the agent, which shows it in the kernel.
Nobody hears a thing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jupyter_gpushare.messages import (
    Event,
    Kernel,
    KernelRequestState,
    Status,
    StreamEvent,
    StreamKernel,
    StreamKernelGone,
    StreamStatus,
)

from ..clients.agent_client import AgentClient
from ..kernels.kernel_history import KernelHistories, wall_ms
from ..kernels.kernel_registry import KernelRegistry
from .broadcast import PageStream
from .protocols import JupyterAPI

__all__ = ["Publisher"]


class Publisher:
    """`is_ours`: whether a kernel runs with our provisioner, so that the agent wants to know what
    becomes of its request.
    """

    def __init__(
        self,
        directory: KernelRegistry,
        histories: KernelHistories,
        broadcast: PageStream,
        machine: AgentClient,
        jupyter: JupyterAPI,
        *,
        is_ours: Callable[[str], bool],
    ) -> None:
        self._directory, self._histories, self._is_ours = directory, histories, is_ours
        self._broadcast, self._machine, self._jupyter = broadcast, machine, jupyter
        self._shown: dict[str, Kernel] = {}
        self._told: dict[str, KernelRequestState] = {}
        self._shown_status: Status | None = None

    def changed(self, kernel_ids: Iterable[str]) -> None:
        """These kernels may be others than they were."""
        for kernel_id in sorted(kernel_ids):
            if kernel_id in self._directory:
                self._show(kernel_id)
                self.outlook(kernel_id)
            elif self._shown.pop(kernel_id, None) is not None:
                self._told.pop(kernel_id, None)
                self._gone(kernel_id)

    def _show(self, kernel_id: str) -> None:
        new, old = self._directory.view(kernel_id), self._shown.get(kernel_id)
        if new == old:
            return
        self._shown[kernel_id] = new
        self._histories.changed(wall_ms(), new)
        self._broadcast.publish(
            lambda revision: StreamKernel(revision=revision, kernel_id=kernel_id, kernel=new)
        )
        known = old.events if old is not None else []
        for event in new.events:
            if event not in known:
                self._happened(kernel_id, event)

    def _gone(self, kernel_id: str) -> None:
        self._broadcast.publish(
            lambda revision: StreamKernelGone(revision=revision, kernel_id=kernel_id)
        )

    def _happened(self, kernel_id: str, event: Event) -> None:
        self._broadcast.publish(
            lambda revision: StreamEvent(revision=revision, kernel_id=kernel_id, event=event)
        )
        self._jupyter.emit(kernel_id, event)

    def outlook(self, kernel_id: str, *, anew: bool = False) -> None:
        """Why this kernel waits, to the agent; `anew`: its process is a new one, which knows
        nothing yet.
        """
        if not self._is_ours(kernel_id) or kernel_id not in self._directory:
            return
        outlook = self._directory.outlook(kernel_id)
        if (anew or self._told.get(kernel_id) != outlook) and self._machine.tell(outlook):
            self._told[kernel_id] = outlook

    def agent_is_new(self) -> None:
        """It has heard nothing yet."""
        self._told.clear()

    def status(self, status: Status) -> None:
        """How it stands with scheduler and agent; `status` without its kernels."""
        if status != self._shown_status:
            self._shown_status = status
            self._broadcast.publish(lambda revision: StreamStatus(revision=revision, status=status))
