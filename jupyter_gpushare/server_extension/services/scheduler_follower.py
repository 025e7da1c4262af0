"""Follows the scheduler's stream and applies it to the kernels."""

from __future__ import annotations

from logging import Logger

from jupyter_gpushare.client import ConnectionLost, SchedulerClient
from jupyter_gpushare.messages import SchedulerFrame

from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches
from ..requests.orphans import OrphanedRequests
from .publisher import Publisher
from .status import StatusService

__all__ = ["SchedulerFollower"]


class SchedulerFollower:
    """One stream for all kernels."""

    def __init__(
        self,
        scheduler: SchedulerClient,
        registry: KernelRegistry,
        launches: KernelLaunches,
        orphans: OrphanedRequests,
        status: StatusService,
        publisher: Publisher,
        log: Logger,
    ) -> None:
        self._scheduler, self._registry, self._orphans = scheduler, registry, orphans
        self._launches = launches
        self._status, self._publisher, self._log = status, publisher, log

    async def run(self) -> None:
        """Follow the stream until cancelled."""
        async for frame in self._scheduler.changes():
            if isinstance(frame, ConnectionLost):
                self._log.info("gpushare: the scheduler's stream broke: %s", frame.message)
            else:
                self._apply(frame)
            self._publisher.status_changed()

    def _apply(self, frame: SchedulerFrame) -> None:
        self._status.apply_frame(frame)
        self._launches.user_may_have_changed()
        self._orphans.apply_frame(frame)
        self._publisher.changed(self._registry.apply_frame(frame))
