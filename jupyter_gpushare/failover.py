"""Failover among several schedulers on one database: calls go to the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from jupyter_gpushare.core.model.errors import Unavailable

from . import messages as m
from .transports import HttpTransport, Wire

__all__ = ["Failover", "to_schedulers"]

STANDBY: Final = "standby"
"""Error code of a scheduler that is not the leader."""


class Failover:
    """A `Transport` over several schedulers. Uses the one that answered last.

    A failed call is repeated at the next scheduler, so a command may be sent twice; commands are
    idempotent, except that a token may be created twice. If none can be reached, the last error is
    raised.
    """

    def __init__(self, transports: Sequence[HttpTransport]) -> None:
        self._transports = list(transports)
        self._current = 0

    @property
    def url(self) -> str:
        """The scheduler in use."""
        return self._transports[self._current].url

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """Raises Unavailable if no scheduler responds."""
        missing: Unavailable | None = None
        answer: tuple[int, str, bytes] | None = None
        for transport in self._in_order():
            try:
                answer = await transport.call(verb, path, query, body)
            except Unavailable as error:
                missing = error
                continue
            if not _is_standby(answer):
                self._current = self._transports.index(transport)
                return answer
        if answer is not None:
            return answer  # no scheduler leads now
        assert missing is not None
        raise missing

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        """One attempt. After a failure, the next attempt uses the next scheduler."""
        transport = self._transports[self._current]
        try:
            async with transport.connect(path, query) as wire:
                yield wire
        except Unavailable:
            # also after an established connection: its scheduler may not lead any more
            if self._transports[self._current] is transport:
                self._current = (self._current + 1) % len(self._transports)
            raise

    def _in_order(self) -> list[HttpTransport]:
        return self._transports[self._current :] + self._transports[: self._current]

    def close(self) -> None:
        """Closes all connections. May be called twice."""
        for transport in self._transports:
            transport.close()


def _is_standby(answer: tuple[int, str, bytes]) -> bool:
    status, _, body = answer
    return status == Unavailable.status_hint and m.error_from(status, body).code == STANDBY


def to_schedulers(
    urls: str, token: str | Callable[[], str] = "", **more: Any
) -> HttpTransport | Failover:
    """A transport to one scheduler, or to several (addresses separated by commas). `more` as for
    `HttpTransport`. Raises InvalidInput.
    """
    made = [HttpTransport(url.strip(), token, **more) for url in urls.split(",")]
    return made[0] if len(made) == 1 else Failover(made)
