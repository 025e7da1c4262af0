"""Answers requests of kernels that the agent relays: `%gpu request`, `why`, `queue` and others."""

from __future__ import annotations

from logging import Logger
from typing import Any

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.estimates.time_series import minutes_in
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound
from jupyter_gpushare.messages import (
    ErrorDetail,
    KernelRequest,
    RelayedRequest,
    RelayedResponse,
    convert,
    error_detail,
    to_json,
)

from ..clients.agent_client import AgentClient
from .gang_service import GangService
from .kernel_service import KernelService
from .request_service import RequestService
from .table_service import TableService

__all__ = ["KernelRpc"]


class KernelRpc:
    """Calls the services on behalf of a kernel."""

    def __init__(
        self,
        kernels: KernelService,
        requests: RequestService,
        tables: TableService,
        gangs: GangService,
        agent: AgentClient,
        tasks: BackgroundTasks,
        log: Logger,
    ) -> None:
        self._kernels, self._requests, self._tables = kernels, requests, tables
        self._gangs = gangs
        self._agent, self._tasks, self._log = agent, tasks, log

    def handle(self, asked: RelayedRequest) -> None:
        """Answer in the background."""
        self._tasks.spawn(self._handle(asked))

    async def _handle(self, asked: RelayedRequest) -> None:
        self._agent.send(await self._answer(asked))

    async def _answer(self, asked: RelayedRequest) -> RelayedResponse:
        """The result, or the error that refused the request."""
        try:
            return RelayedResponse(n=asked.n, body=await self._body(asked))
        except GpuShareError as error:
            detail = error_detail(error)
        except Exception:
            self._log.exception("gpushare: %s of kernel %s failed", asked.action, asked.kernel_id)
            detail = ErrorDetail(
                code="error", message="the Jupyter server failed; its log has the details"
            )
        return RelayedResponse(n=asked.n, error=detail)

    async def _body(self, asked: RelayedRequest) -> Any:
        kernel_id = asked.kernel_id
        match asked.action:
            case "request":
                return await self._request(kernel_id, convert(KernelRequest, asked.body))
            case "cancel":
                return {"kernel": to_json(await self._requests.act(kernel_id, "cancel"))}
            case "release":
                return {"kernel": to_json(await self._requests.release(kernel_id))}
            case "why" | "status":
                return to_json(self._kernels.get(kernel_id))
            case "history":
                return self._history(kernel_id, minutes_in(str(asked.body.get("minutes", ""))))
            case "what-if":
                wanted = convert(KernelRequest, asked.body)
                return to_json(await self._requests.what_if(wanted, kernel_id))
            case "cluster-start":
                return await self._gangs.start(kernel_id, asked.body)
            case "cluster-state":
                return await self._gangs.state(kernel_id, asked.body)
            case "cluster-end":
                return await self._gangs.end(kernel_id, asked.body)
            case "queue":
                return to_json(await self._tables.rows("queues"))
            case "nodes":
                return to_json(await self._tables.rows("nodes"))
        raise NotFound(f"unknown action {asked.action!r}")

    async def _request(self, kernel_id: str, request: KernelRequest) -> dict[str, Any]:
        kernel, previous = await self._requests.request(kernel_id, request)
        return {
            "kernel": to_json(kernel),
            "previous": to_json(previous.share) if previous.share is not None else None,
            "previous_change": to_json(previous.change) if previous.change is not None else None,
        }

    def _history(self, kernel_id: str, minutes: int) -> dict[str, Any]:
        history = self._kernels.history(kernel_id, minutes)
        return {**to_json(history), "events": to_json(self._kernels.get(kernel_id).events)}
