"""Requests of kernels that their Jupyter servers answer."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import (
    RelayedRequest,
    RelayedResponse,
    RpcRequest,
    RpcResponse,
    error_detail,
    to_json,
)

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["RequestRelay"]

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Pending:
    kernel_id: str
    n: int
    """The kernel's number of the request."""
    server: str
    """Numbers can be guessed, so only this server may answer."""
    timer: asyncio.TimerHandle


class RequestRelay:
    """Passes requests on and responses back."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}

    def request(self, kernel: KernelRecord, body: RpcRequest) -> None:
        """Send a request to the kernel's server."""
        number, server = next(self._numbers), kernel.registration.server
        relayed = RelayedRequest(
            n=number, kernel_id=kernel.kernel_id, action=body.action, body=body.body
        )
        if self._node.ports.to_server(server, relayed):
            timer = asyncio.get_running_loop().call_later(TIMEOUT_S, self._time_out, number)
            self._pending[number] = _Pending(kernel.kernel_id, body.n, server, timer)
        elif body.action == "history":  # its server knows more, but the agent knows its own events
            events = to_json(list(kernel.published.events))
            self._respond(kernel.kernel_id, RpcResponse(n=body.n, body={"events": events}))
        else:
            error = Unavailable("this kernel's Jupyter server is not connected to the node agent")
            self._fail(kernel.kernel_id, body.n, error)

    def response(self, server: str, body: RelayedResponse) -> None:
        """A server answers. Late answers, and those of other servers, are ignored."""
        pending = self._pending.get(body.n)
        if pending is None or pending.server != server:
            return
        del self._pending[body.n]
        pending.timer.cancel()
        response = RpcResponse(n=pending.n, body=body.body, error=body.error)
        self._respond(pending.kernel_id, response)

    def _time_out(self, number: int) -> None:
        pending = self._pending.pop(number)
        error = Unavailable("this kernel's Jupyter server did not respond")
        self._fail(pending.kernel_id, pending.n, error)

    def _fail(self, kernel_id: str, n: int, error: GpuShareError) -> None:
        self._respond(kernel_id, RpcResponse(n=n, error=error_detail(error)))

    def _respond(self, kernel_id: str, body: RpcResponse) -> None:
        self._node.ports.to_kernel(kernel_id, body)

    def close(self) -> None:
        """No request times out any more."""
        for pending in self._pending.values():
            pending.timer.cancel()
