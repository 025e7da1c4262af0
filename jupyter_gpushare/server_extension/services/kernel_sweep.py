"""Regularly compares the registry with Jupyter: ended kernels, new names, orphaned requests.

Jupyter calls no hook for a kernel that is removed from its list or a notebook that is renamed.
"""

from __future__ import annotations

import asyncio
from logging import Logger
from typing import Final

from jupyter_gpushare.core.model.errors import Unavailable

from ..clients.agent_client import AgentClient
from ..clients.jupyter_server import JupyterServer
from ..kernels.kernel_registry import KernelRegistry
from ..requests.orphans import OrphanedRequests
from ..requests.workload_client import WorkloadClient
from .kernel_lifecycle import ServerKernelLifecycle
from .kernel_service import KernelService
from .notebook_names import NotebookNames
from .publisher import Publisher
from .status import StatusService

__all__ = ["KernelSweep", "OrphanCollector"]

SWEEP_S: Final = 2.0
KNOWN_KERNELS_S: Final = 2.0
"""Longest wait for the agent's list of kernels."""


class OrphanCollector:
    """Ends the requests that a killed server of this machine left pending."""

    def __init__(
        self,
        orphans: OrphanedRequests,
        registry: KernelRegistry,
        workloads: WorkloadClient,
        agent: AgentClient,
        status: StatusService,
        log: Logger,
    ) -> None:
        self._orphans, self._registry, self._workloads = orphans, registry, workloads
        self._agent, self._status, self._log = agent, status, log

    async def collect(self) -> None:
        """End the requests whose kernel neither this server nor the agent knows."""
        suspects = self._suspects()
        if not suspects:
            return
        try:
            known = await self._agent.known_kernels(KNOWN_KERNELS_S)
        except Unavailable:
            return
        for workload_id, kernel_id in suspects.items():
            if kernel_id not in known:
                self._log.info("gpushare: ending %s: its kernel has ended", workload_id)
                self._workloads.end_later(workload_id)

    def _suspects(self) -> dict[str, str]:
        welcome, service = self._agent.welcome, self._status.service
        if welcome is None or service is None or not self._agent.connected.is_set():
            return {}
        now = int(asyncio.get_running_loop().time() * 1000)
        return self._orphans.suspects(
            now,
            node=welcome.node,
            user=self._status.user_at_scheduler(),
            living=self._registry.ids(),
        )


class KernelSweep:
    """Runs every two seconds."""

    def __init__(
        self,
        registry: KernelRegistry,
        jupyter: JupyterServer,
        kernels: KernelService,
        lifecycle: ServerKernelLifecycle,
        names: NotebookNames,
        orphans: OrphanCollector,
        publisher: Publisher,
    ) -> None:
        self._registry, self._jupyter, self._kernels = registry, jupyter, kernels
        self._lifecycle, self._names = lifecycle, names
        self._orphans, self._publisher = orphans, publisher
        self._missing: set[str] = set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            self._remove_ended()
            await self._names.refresh()
            self._kernels.sample()
            await self._orphans.collect()
            self._publisher.status_changed()
            await asyncio.sleep(SWEEP_S)

    def _remove_ended(self) -> None:
        """A kernel that is missing in two sweeps has ended, or its start failed.

        Once is not enough: a kernel is launched shortly before it is in Jupyter's list.
        """
        living = self._jupyter.starting_ids().union(self._jupyter.kernel_ids())
        missing = {kernel_id for kernel_id in self._registry.ids() if kernel_id not in living}
        for kernel_id in missing & self._missing:
            self._lifecycle.ended(kernel_id)
        self._missing = missing
