"""What `sharing` needs of its two neighbours: the scheduler's client, and the Jupyter server
itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from jupyter_gpushare.client import ConnectionLost
from jupyter_gpushare.messages import (
    Event,
    Evictions,
    Nodes,
    Pools,
    Projects,
    QueueHistory,
    Queues,
    SchedulerFrame,
    Workloads,
)

from ..requests.submitter import WorkloadAPI
from .notebook_names import RenameAPI

__all__ = ["JupyterAPI", "SchedulerAPI"]


class SchedulerAPI(WorkloadAPI, RenameAPI, Protocol):
    """What this server needs of the scheduler's client."""

    @property
    def reachable(self) -> bool: ...
    async def queues(self) -> Queues: ...
    async def nodes(self) -> Nodes: ...
    async def pools(self) -> Pools: ...
    async def projects(self) -> Projects: ...
    async def workloads(self) -> Workloads: ...
    async def evictions(self) -> Evictions: ...
    async def queue_history(self, pool: str | None, minutes: int) -> QueueHistory: ...
    def changes(self) -> AsyncIterator[SchedulerFrame | ConnectionLost]: ...


class JupyterAPI(Protocol):
    """What we need of the Jupyter server itself."""

    def kernel_ids(self) -> list[str]: ...
    async def kernel_names(self) -> Mapping[str, str]: ...
    def is_busy(self, kernel_id: str) -> bool: ...
    async def restart(self, kernel_id: str) -> None: ...
    async def end(self, kernel_id: str) -> None: ...
    def emit(self, kernel_id: str, event: Event) -> None: ...
