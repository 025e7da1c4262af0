"""A link to the scheduler that ends when the agent's token is replaced, so that the next one is
opened with the new token. A Kubernetes node replaces the token of a service account before it
expires, and the scheduler need not trust a link for longer than its token.

Leases, cells and kernels do not notice: the agent reconnects as after every loss of the link.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.messages import FromAgent, ToAgent

from ..state.node import log
from .scheduler_session import LinkFactory, SchedulerLink

__all__ = ["renewed_with_token"]

CHECK_S: Final = 5.0


def renewed_with_token(
    factory: LinkFactory, token: Callable[[], str], *, check_s: float = CHECK_S
) -> LinkFactory:
    """Links of `factory`, each until `token` (the content of a file) differs from what it was when
    the link was opened.
    """

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[SchedulerLink]:
        used = token()
        async with factory() as link:
            yield _RenewedLink(link, used, token, check_s)

    return opened


class _RenewedLink:
    def __init__(
        self, link: SchedulerLink, used: str, token: Callable[[], str], check_s: float
    ) -> None:
        self._link, self._used, self._token, self._check_s = link, used, token, check_s

    async def send(self, body: FromAgent) -> None:
        await self._link.send(body)

    async def __aiter__(self) -> AsyncIterator[ToAgent]:
        messages = aiter(self._link)
        replaced = asyncio.ensure_future(self._until_replaced())
        try:
            while True:
                received = asyncio.ensure_future(anext(messages))
                try:
                    await asyncio.wait({received, replaced}, return_when=asyncio.FIRST_COMPLETED)
                    if not received.done():
                        log.info("the agent's token was replaced: the link is opened again")
                        return
                    yield received.result()
                except StopAsyncIteration:
                    return
                finally:
                    await _cancelled(received)
        finally:
            await _cancelled(replaced)

    async def _until_replaced(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            with contextlib.suppress(Unavailable):  # a file that cannot be read is no new token
                if self._token() != self._used:
                    return


async def _cancelled(task: asyncio.Future[ToAgent] | asyncio.Future[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
