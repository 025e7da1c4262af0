"""The scheduler's client as this server holds it: over HTTP from the start, or connected once the
scheduler inside this server runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from jupyter_gpushare.client import ConnectionLost, SchedulerClient, Transport, token_in
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.failover import to_schedulers
from jupyter_gpushare.messages import (
    Ended,
    Evictions,
    Nodes,
    Pools,
    Projects,
    QueueHistory,
    Queues,
    SchedulerFrame,
    WhatIfAnswer,
    WorkloadRequest,
    Workloads,
    WorkloadView,
)
from jupyter_gpushare.transports import UNIX

__all__ = ["SchedulerLine"]


class SchedulerLine:
    """Every call raises `Unavailable` before there is a scheduler."""

    def __init__(self) -> None:
        self.problem = "the scheduler inside this server is starting"
        """Why there is none."""
        self._client: SchedulerClient | None = None
        self._connected = asyncio.Event()

    @classmethod
    def over_http(
        cls, url: str, token_file: str, hub_token: str = "", ca_file: str = ""
    ) -> SchedulerLine:
        """To a scheduler service. Without a token file this server shows its JupyterHub's token; on
        a unix socket it is its user.
        """
        line = cls()
        token = token_in(token_file) if token_file else "" if url.startswith(UNIX) else hub_token
        line.connect(to_schedulers(url, token, ca_file=ca_file))
        return line

    def connect(self, transport: Transport) -> None:
        """From now on there is a scheduler."""
        self._client = SchedulerClient(transport)
        self._connected.set()

    @property
    def reachable(self) -> bool:
        """Whether it answered last."""
        return self._client is not None and self._client.reachable

    async def changes(self) -> AsyncIterator[SchedulerFrame | ConnectionLost]:
        """Its stream, once there is one."""
        await self._connected.wait()
        async for frame in self._here().changes():
            yield frame

    async def submit(self, request: WorkloadRequest) -> WorkloadView:
        return await self._here().submit(request)

    async def end(self, workload_id: str) -> Ended:
        return await self._here().end(workload_id)

    async def rename(self, workload_id: str, name: str) -> WorkloadView:
        return await self._here().rename(workload_id, name)

    async def what_if(
        self, request: WorkloadRequest, instead_of: str | None = None
    ) -> WhatIfAnswer:
        return await self._here().what_if(request, instead_of)

    async def queues(self) -> Queues:
        return await self._here().queues()

    async def nodes(self) -> Nodes:
        return await self._here().nodes()

    async def pools(self) -> Pools:
        return await self._here().pools()

    async def projects(self) -> Projects:
        return await self._here().projects()

    async def workloads(self) -> Workloads:
        return await self._here().workloads()

    async def evictions(self) -> Evictions:
        return await self._here().evictions()

    async def queue_history(self, pool: str | None, minutes: int) -> QueueHistory:
        return await self._here().queue_history(pool, minutes)

    def _here(self) -> SchedulerClient:
        if self._client is None:
            raise Unavailable(self.problem)
        return self._client
