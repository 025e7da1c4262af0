"""One request of this kernel to its agent (and through it to the Jupyter server and the scheduler),
and the reply: the body, or a `GpuError`. Used by the functions, the magics and the panel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from queue import Empty
from typing import Final

from .connection import AgentConnection, Replies
from .display.html import KernelStatusDisplay
from .kernel_body import Json
from .session import KernelSession, current

__all__ = ["GpuError", "act", "call", "kernel_in", "no_agent_text", "request_body", "send_request"]

REPLY_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
KNOWN_PROBLEM_S: Final = 0.5
"""The same when no agent was expected at the launch of this kernel."""
NOT_OURS: Final = (
    "this kernel was not started by the gpushare provisioner, so it cannot use a shared GPU"
)
NOT_REACHABLE: Final = "the node agent of this machine is not reachable; try again in a moment"
LOST: Final = "the connection to the node agent was lost before it replied; check with `%gpu`"
NO_REPLY: Final = (
    f"no reply within {REPLY_TIMEOUT_S:.0f} s; the request may still be carried out:"
    " check with `%gpu`"
)


class GpuError(RuntimeError):
    """Raised when a request is refused or fails. `code` and `field` classify the error; the message
    is one sentence.
    """

    def __init__(self, message: str, code: str = "error", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def no_agent_text(connection: AgentConnection) -> str:
    """Why this kernel has no node agent at all."""
    problem = connection.problem()
    return f"this kernel has no GPU share: {problem}" if problem else NOT_OURS


def call(action: str, body: Json | None = None) -> Json:
    """Send a request (`action`: "status", "queue", "release" ...), wait, and return the reply.

    Raises:
        GpuError: it was refused, no agent is reachable, or no reply arrived in time.
    """
    connection = current().connection
    if connection.address is None:
        raise GpuError(no_agent_text(connection), "conflict")
    problem = connection.problem()
    if not connection.welcomed.wait(KNOWN_PROBLEM_S if problem else CONNECT_TIMEOUT_S):
        message = f"no GPU is available: {problem}" if problem else NOT_REACHABLE
        raise GpuError(message, "unavailable")
    with connection.open_request() as (n, replies):
        if not connection.send({"type": "ask", "n": n, "action": action, "body": body or {}}):
            raise GpuError(NOT_REACHABLE, "unavailable")
        return _body(replies, time.monotonic() + REPLY_TIMEOUT_S)


def _body(replies: Replies, deadline: float) -> Json:
    while True:
        try:
            message = replies.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise GpuError(NO_REPLY, "unavailable") from None
        if message["type"] == "away":
            raise GpuError(LOST, "unavailable")
        if message["type"] == "reply":
            error = message.get("error")
            if error:
                raise GpuError(error["message"], error["code"], error.get("field"))
            return message.get("body") or {}


def kernel_in(session: KernelSession, reply: Json) -> Json:
    """The status in a reply: the kernel itself, or the one that the agent sent last."""
    found = reply.get("kernel", reply)
    is_kernel = "kernel_id" in found and "state" in found
    return KernelStatusDisplay(found if is_kernel else session.connection.kernel)


def act(action: str) -> Json:
    """Change this notebook's own share; the status after it."""
    return kernel_in(current(), call(action))


def send_request(body: Json) -> Json:
    """Request a GPU without waiting for it."""
    return call("request", body)


def request_body(
    gpu: object,
    memory: object,
    limit: object,
    project: str | None,
    pools: Sequence[str] | str | None,
    priority: str | int | None,
    *,
    queue_anyway: bool = False,
) -> Json:
    """The body of a request, with only the given fields. The Jupyter server validates it."""
    names = pools.split(",") if isinstance(pools, str) else pools
    body = {
        "gpu": _amount(gpu),
        "gpu_memory": _amount(memory),
        "gpu_limit": _amount(limit),
        "project": project,
        "node_pools": None if names is None else [name.strip() for name in names],
        "priority_class": priority,
        "queue_anyway": queue_anyway or None,
    }
    return {name: value for name, value in body.items() if value is not None}


def _amount(value: object) -> object:
    """JSON has no NaN and no infinity: the server reads and refuses them as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
