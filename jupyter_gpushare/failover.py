"""Several schedulers on one database, as one: the one that leads is asked, and when it is gone, the
next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from jupyter_gpushare.core.model.errors import Unavailable

from . import messages as m
from .transports import HttpTransport, Wire

__all__ = ["Failover", "to_schedulers"]

STANDBY: Final = "standby"
"""Code of the error with which a scheduler says that another one leads."""


class Failover:
    """A `Transport` over several. Stays with the one that answered last.

    A call that broke off is made again at the next one: all commands may be sent twice (a token
    that was made without an answer is listed, and can be revoked). When none can be reached, the
    last says why.
    """

    def __init__(self, transports: Sequence[HttpTransport]) -> None:
        self._transports = list(transports)
        self._current = 0

    @property
    def url(self) -> str:
        """Where calls go now."""
        return self._transports[self._current].url

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """Raises Unavailable when none of them answers."""
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
            return answer  # nobody leads at this moment
        assert missing is not None
        raise missing

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        """One attempt; whoever makes broken links anew comes to the next scheduler with the next
        attempt.
        """
        transport = self._transports[self._current]
        try:
            async with transport.connect(path, query) as wire:
                yield wire
        except Unavailable:
            if (
                self._transports[self._current] is transport
            ):  # also when the link had been up: who ended it may not lead any more
                self._current = (self._current + 1) % len(self._transports)
            raise

    def _in_order(self) -> list[HttpTransport]:
        return self._transports[self._current :] + self._transports[: self._current]

    def close(self) -> None:
        """Lets go of all connections. May be called twice."""
        for transport in self._transports:
            transport.close()


def _is_standby(answer: tuple[int, str, bytes]) -> bool:
    status, _, body = answer
    return status == Unavailable.status_hint and m.error_from(status, body).code == STANDBY


def to_schedulers(
    urls: str, token: str | Callable[[], str] = "", **more: Any
) -> HttpTransport | Failover:
    """To one scheduler, or to several whose addresses stand one after another, separated by commas;
    `more` as for `HttpTransport`.

    Raises InvalidInput.
    """
    made = [HttpTransport(url.strip(), token, **more) for url in urls.split(",")]
    return made[0] if len(made) == 1 else Failover(made)
