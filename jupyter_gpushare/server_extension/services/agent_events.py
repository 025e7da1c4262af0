"""Applies the node agent's messages."""

from __future__ import annotations

from jupyter_gpushare.messages import (
    EndKernel,
    KernelActionDone,
    KernelEvent,
    KernelReported,
    Registered,
    RelaunchKernel,
    RelayedRequest,
    ServerWelcome,
    StartPreviewed,
    TiersFound,
    ToServer,
)

from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches
from .kernel_rpc import KernelRpc
from .publisher import Publisher
from .relaunch import KernelRestarter

__all__ = ["AgentEvents"]


class AgentEvents:
    """The server's `AgentListener`."""

    def __init__(
        self,
        registry: KernelRegistry,
        launches: KernelLaunches,
        rpc: KernelRpc,
        restarter: KernelRestarter,
        publisher: Publisher,
    ) -> None:
        self._registry, self._launches, self._rpc = registry, launches, rpc
        self._restarter, self._publisher = restarter, publisher

    def agent_connected(self, welcome: ServerWelcome) -> None:
        """Register the running kernels and send their requests: the agent may be a new process."""
        self._publisher.agent_connected()
        self._launches.agent_connected()
        for kernel in welcome.kernels:
            self._registry.apply_runtime(kernel)
        self._publisher.changed(self._registry.ids())
        self._publisher.status_changed()

    def agent_message(self, message: ToServer) -> None:
        """Apply one message."""
        match message:
            case KernelReported(kernel=kernel):
                self._publisher.changed(self._registry.apply_runtime(kernel))
            case KernelEvent(kernel_id=kernel_id, event=event):
                self._publisher.changed(self._registry.add_event(kernel_id, event))
            case RelaunchKernel():
                self._restarter.restart(message)
            case EndKernel():
                self._restarter.shut_down(message)
            case RelayedRequest():
                self._rpc.handle(message)
            case TiersFound():
                self._publisher.status_changed()
            case Registered() | KernelActionDone() | StartPreviewed() | ServerWelcome():
                pass  # the caller has stopped waiting for this answer
