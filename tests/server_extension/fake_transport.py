"""A scheduler's transport in memory: answers calls from a table and records them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from jupyter_gpushare.client import Wire
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import ErrorBody, ErrorDetail, encode

Answer = Callable[[str, str, bytes | None], Any]


class FakeTransport:
    """`answer(verb, path, body)` returns a body, or raises a `GpuShareError` to answer with it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.calls: list[tuple[str, str, bytes | None]] = []
        self.before_answer: Callable[[], Awaitable[None]] = self._at_once

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        self.calls.append((verb, path, body))
        try:
            await self.before_answer()
            return 200, "application/json", encode(self._answer(verb, path, body))
        except GpuShareError as error:
            detail = ErrorDetail(code=error.code, message=error.message)
            if error.field:
                detail = ErrorDetail(code=error.code, message=error.message, field=error.field)
            return error.status_hint, "application/json", encode(ErrorBody(error=detail))

    async def _at_once(self) -> None:
        pass

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        await asyncio.Event().wait()  # no stream: never connected
        yield  # type: ignore[misc]  # not reached
