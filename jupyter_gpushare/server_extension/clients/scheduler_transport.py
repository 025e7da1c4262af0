"""Connects this server to its scheduler: over HTTP, or to the embedded scheduler once it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from jupyter_gpushare.client import SchedulerClient, Transport, Wire, token_in
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.failover import to_schedulers
from jupyter_gpushare.transports import UNIX

__all__ = ["LateTransport", "remote_scheduler"]


class LateTransport:
    """A `Transport` that is set once the scheduler runs.

    Until then calls raise `Unavailable` with `problem`, and `connect` waits.
    """

    def __init__(self) -> None:
        self.problem = "the scheduler inside this server is starting"
        """Message of the error while no transport is set."""
        self._transport: Transport | None = None
        self._is_set = asyncio.Event()

    def set(self, transport: Transport) -> None:
        """Use this transport from now on."""
        self._transport = transport
        self._is_set.set()

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """As `Transport.call`. Raises Unavailable while no transport is set."""
        if self._transport is None:
            raise Unavailable(self.problem)
        return await self._transport.call(verb, path, query, body)

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        """As `Transport.connect`, after waiting for a transport."""
        await self._is_set.wait()
        assert self._transport is not None
        async with self._transport.connect(path, query) as wire:
            yield wire


def remote_scheduler(
    url: str, token_file: str, hub_token: str = "", ca_file: str = ""
) -> SchedulerClient:
    """A client of a scheduler service.

    Without a token file the server authenticates with its JupyterHub token; on a unix socket it is
    authenticated by its user id.
    """
    token = token_in(token_file) if token_file else "" if url.startswith(UNIX) else hub_token
    return SchedulerClient(to_schedulers(url, token, ca_file=ca_file))
