"""Composes the services of this Jupyter server and runs their background tasks."""

from __future__ import annotations

from logging import Logger
from typing import Final

import msgspec

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.messages import Status

from ..clients.agent_client import AgentClient
from ..clients.gateway_relay import GatewayRelay
from ..clients.jupyter_server import JupyterServer
from ..clients.startup import StartupState
from ..kernels.kernel_history import KernelHistories
from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches
from ..requests.orphans import OrphanedRequests
from ..requests.submitter import Submitter
from ..requests.workload_client import WorkloadClient
from .agent_events import AgentEvents
from .gang_service import GangService
from .kernel_lifecycle import ServerKernelLifecycle
from .kernel_rpc import KernelRpc
from .kernel_service import KernelService
from .kernel_sweep import KernelSweep, OrphanCollector
from .notebook_names import NotebookNames
from .page_stream import PageStream
from .publisher import Publisher
from .relaunch import KernelRestarter
from .request_service import RequestService
from .scheduler_follower import SchedulerFollower
from .status import ServiceSettings, StatusService
from .table_service import TableService

__all__ = ["SETTING", "GpuShareService"]

SETTING: Final = "gpushare"
"""Key of the `GpuShareService` in a Jupyter server's settings."""


class GpuShareService:
    """The services that handlers and provisioner call, each an attribute."""

    def __init__(
        self,
        jupyter: JupyterServer,
        scheduler: SchedulerClient,
        agent: AgentClient,
        settings: ServiceSettings,
        log: Logger,
    ) -> None:
        presets = settings.presets
        on_behalf = settings.user if settings.mode == "remote" else None
        tasks = BackgroundTasks(log)
        startup, pages = StartupState(), PageStream()
        registry, histories, orphans = KernelRegistry(), KernelHistories(), OrphanedRequests()
        status = StatusService(scheduler, agent, startup, settings)
        launches = KernelLaunches(registry, agent, startup, log, user=status.user_at_scheduler)
        publisher = Publisher(registry, histories, launches, status, pages, agent, jupyter)
        changed = publisher.changed
        workloads = WorkloadClient(scheduler, agent, startup, log, user=on_behalf)
        submitter = Submitter(registry, workloads, log, changed=changed)
        names = NotebookNames(registry, jupyter, scheduler, log, changed=changed)
        kernels = KernelService(registry, histories, launches, jupyter, changed=changed)
        requests = RequestService(kernels, submitter, names, agent, presets)
        tables = TableService(scheduler)
        gangs = GangService(kernels, workloads)
        lifecycle = ServerKernelLifecycle(
            registry, launches, submitter, requests, gangs, publisher, tasks
        )
        rpc = KernelRpc(kernels, requests, tables, gangs, agent, tasks, log)
        restarter = KernelRestarter(jupyter, tasks, log)
        collector = OrphanCollector(orphans, registry, workloads, agent, status, log)

        self.startup, self.pages = startup, pages
        self.relay: GatewayRelay | None = None
        """To the server where the kernels run; None: they run here."""
        self.kernels, self.requests, self.tables = kernels, requests, tables
        self.lifecycle = lifecycle
        self._status, self._names, self._submitter = status, names, submitter
        self._tasks, self._agent = tasks, agent
        self._launches, self._workloads = launches, workloads
        self._agent_events = AgentEvents(registry, launches, rpc, restarter, publisher)
        self._follower = SchedulerFollower(
            scheduler, registry, launches, orphans, status, publisher, log
        )
        self._sweep = KernelSweep(
            registry, jupyter, kernels, lifecycle, names, collector, publisher
        )

    def start(self) -> None:
        """Connect in the background."""
        self._tasks.spawn(self._agent.run(self._agent_events))
        self._tasks.spawn(self._follower.run())
        self._tasks.spawn(self._sweep.run())

    async def stop(self, within: float = 3.0) -> None:
        """End all tasks; the workloads of the kernels are ended within so many seconds."""
        await self._names.stop()
        await self._submitter.close(within)
        await self._tasks.close()

    def ends_kernels_with_process(self) -> None:
        """The agent ends the kernels when this process has ended."""
        self._launches.ends_with_process = True

    async def flush(self, within: float) -> None:
        """Wait at most so many seconds until the ended workloads are reported."""
        await self._workloads.wait_ended(within)

    def status(self) -> Status:
        """The status with all kernels."""
        return msgspec.structs.replace(self._status.status(), kernels=self.kernels.all())
