"""Sends changes of kernels and of the status to pages, the event bus and the agent, each once."""

from __future__ import annotations

from collections.abc import Iterable

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
from ..clients.jupyter_server import JupyterServer
from ..kernels.kernel_history import KernelHistories, wall_ms
from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches
from .page_stream import PageStream
from .status import StatusService

__all__ = ["Publisher"]


class Publisher:
    """Remembers what it sent last, and sends only differences."""

    def __init__(
        self,
        registry: KernelRegistry,
        histories: KernelHistories,
        launches: KernelLaunches,
        status: StatusService,
        pages: PageStream,
        agent: AgentClient,
        jupyter: JupyterServer,
    ) -> None:
        self._registry, self._histories, self._launches = registry, histories, launches
        self._status, self._pages, self._agent, self._jupyter = status, pages, agent, jupyter
        self._sent: dict[str, Kernel] = {}
        self._sent_to_agent: dict[str, KernelRequestState] = {}
        self._sent_status: Status | None = None

    def changed(self, kernel_ids: Iterable[str]) -> None:
        """These kernels may have changed."""
        for kernel_id in sorted({*kernel_ids, *self._registry.refresh_suggestions()}):
            if kernel_id in self._registry:
                self._send_kernel(kernel_id)
                self.request_state(kernel_id)
            elif self._sent.pop(kernel_id, None) is not None:
                self._sent_to_agent.pop(kernel_id, None)
                self._send_gone(kernel_id)

    def _send_kernel(self, kernel_id: str) -> None:
        new, old = self._registry.view(kernel_id), self._sent.get(kernel_id)
        if new == old:
            return
        self._sent[kernel_id] = new
        self._histories.changed(wall_ms(), new)
        self._pages.publish(
            lambda revision: StreamKernel(revision=revision, kernel_id=kernel_id, kernel=new)
        )
        known = old.events if old is not None else []
        for event in new.events:
            if event not in known:
                self._send_event(kernel_id, event)

    def _send_gone(self, kernel_id: str) -> None:
        self._pages.publish(
            lambda revision: StreamKernelGone(revision=revision, kernel_id=kernel_id)
        )

    def _send_event(self, kernel_id: str, event: Event) -> None:
        self._pages.publish(
            lambda revision: StreamEvent(revision=revision, kernel_id=kernel_id, event=event)
        )
        self._jupyter.emit(kernel_id, event)

    def request_state(self, kernel_id: str, *, again: bool = False) -> None:
        """Send the state of the kernel's request to the agent; `again`: also if it is unchanged."""
        if kernel_id not in self._launches or kernel_id not in self._registry:
            return
        state = self._registry.request_state(kernel_id)
        if (again or self._sent_to_agent.get(kernel_id) != state) and self._agent.send(state):
            self._sent_to_agent[kernel_id] = state

    def agent_connected(self) -> None:
        """The agent may be a new process: send everything again."""
        self._sent_to_agent.clear()

    def status_changed(self) -> None:
        """The status of scheduler or agent may have changed."""
        status = self._status.status()
        if status != self._sent_status:
            self._sent_status = status
            self._pages.publish(lambda revision: StreamStatus(revision=revision, status=status))
