"""What a kernel asks that only its server can answer: `%gpu request`, `release`, `why`, `what-if`,
`queue`, `nodes`, relayed by the agent.
"""

from __future__ import annotations

from logging import Logger
from typing import Any, Protocol

from jupyter_gpushare.core.estimates.time_series import minutes_in
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound
from jupyter_gpushare.messages import (
    ErrorDetail,
    Kernel,
    KernelHistory,
    KernelRequest,
    RelayedRequest,
    RelayedResponse,
    Table,
    WhatIfAnswer,
    convert,
    error_detail,
    to_json,
)

__all__ = ["KernelRpcHandler", "answer"]


class KernelRpcHandler(Protocol):
    """Who does what is asked."""

    def kernel(self, kernel_id: str) -> Kernel: ...
    async def request(
        self, kernel_id: str, request: KernelRequest
    ) -> tuple[Kernel, KernelRequest | None]: ...
    async def release(self, kernel_id: str) -> Kernel: ...
    async def what_if(self, request: KernelRequest, kernel_id: str = "") -> WhatIfAnswer: ...
    async def rows(self, table: str) -> Table: ...
    def kernel_history(self, kernel_id: str, minutes: int) -> KernelHistory: ...


async def answer(sharing: KernelRpcHandler, asked: RelayedRequest, log: Logger) -> RelayedResponse:
    """Does it and answers: a body, or the error in the words of whoever refused."""
    try:
        return RelayedResponse(n=asked.n, body=await _body(sharing, asked))
    except GpuShareError as error:
        detail = error_detail(error)
    except Exception:
        log.exception("gpushare: %s of kernel %s failed", asked.action, asked.kernel_id)
        detail = ErrorDetail(code="error", message="the Jupyter server failed; its log says why")
    return RelayedResponse(n=asked.n, error=detail)


async def _body(sharing: KernelRpcHandler, asked: RelayedRequest) -> Any:
    kernel_id = asked.kernel_id
    match asked.action:
        case "request":
            kernel, before = await sharing.request(kernel_id, convert(KernelRequest, asked.body))
            return {
                "kernel": to_json(kernel),
                "previous": to_json(before) if before is not None else None,
            }
        case "release":
            return {"kernel": to_json(await sharing.release(kernel_id))}
        case "why" | "status":
            return to_json(sharing.kernel(kernel_id))
        case "history":
            samples = sharing.kernel_history(
                kernel_id, minutes_in(str(asked.body.get("minutes", "")))
            )
            return {**to_json(samples), "events": to_json(sharing.kernel(kernel_id).events)}
        case "what-if":
            return to_json(await sharing.what_if(convert(KernelRequest, asked.body), kernel_id))
        case "queue":
            return to_json(await sharing.rows("queues"))
        case "nodes":
            return to_json(await sharing.rows("nodes"))
    raise NotFound(f"there is no action {asked.action!r}")
