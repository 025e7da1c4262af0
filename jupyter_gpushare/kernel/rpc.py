"""One question of this kernel's to its agent (and through it to the Jupyter server and the
scheduler), and the answer: the body, or a `GpuError`.

What may be asked as a function is in `gpu`, as a magic in `magics`, as a button in `panel`; all of
them ask here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_gpu, read_memory

from .connection import Json
from .display.html import KernelStatusDisplay
from .session import KernelSession, current

__all__ = ["NOT_OURS", "GpuError", "act", "ask", "ask_for", "kernel_in", "request_body"]

ANSWER_S: Final = 30.0
CONNECT_S: Final = 5.0
NOT_OURS: Final = "this kernel was not started through gpushare, so it cannot have a share of a GPU"


class GpuError(RuntimeError):
    """Raised when a question or a wish was refused; `code` and `field` say why, the message says it
    in one sentence.
    """

    def __init__(self, message: str, code: str = "error", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def ask(action: str, body: Json | None = None) -> Json:
    """Sends a question (`action`: "status", "queue", "release" ...) and blocks until its answer is
    there: the answer's body.

    Raises:
        GpuError: it was refused, nobody can be asked, or no answer came in time.
    """
    extension = current()
    link = extension.link
    if link.address is None:
        raise GpuError(NOT_OURS, "conflict")
    if not link.welcomed.wait(CONNECT_S):
        now = "the node agent of this machine cannot be reached now; try again in a moment"
        raise GpuError(
            f"there is no GPU to share here: {link.problem()}" if link.problem() else now,
            "unavailable",
        )
    with link.asking() as (n, answers):
        link.send({"type": "ask", "n": n, "action": action, "body": body or {}})
        return _answer(answers, time.monotonic() + ANSWER_S)


def _answer(answers: SimpleQueue[Json], deadline: float) -> Json:
    while True:
        try:
            message = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise GpuError(
                "no answer in time; the request may still be carried out, see `%gpu`", "unavailable"
            ) from None
        if message["type"] == "away":
            raise GpuError(
                "the node agent went away before it answered; see `%gpu` in a moment", "unavailable"
            )
        if message["type"] == "reply":
            if message.get("error"):
                error = message["error"]
                raise GpuError(error["message"], error["code"], error.get("field"))
            return message.get("body") or {}


def kernel_in(extension: KernelSession, answer: Json) -> Json:
    """The status in an answer: the kernel itself, or what the agent pushed meanwhile."""
    found = answer.get("kernel", answer)
    return KernelStatusDisplay(
        found if "kernel_id" in found and "state" in found else extension.link.kernel
    )


def act(action: str) -> Json:
    """Ask for something to be done to this notebook's own share; the status after it."""
    return kernel_in(current(), ask(action))


def ask_for(body: Json) -> Json:
    """Send a request without waiting for the GPU."""
    return ask("request", body)


def request_body(
    gpu: object,
    memory: object,
    limit: object,
    project: str | None,
    pools: Sequence[str] | str | None,
    priority: str | int | None,
) -> Json:
    """The body of a request with only what was given; amounts that make no sense are refused here,
    before anybody is asked.
    """
    if (gpu is None) == (memory is None):
        raise GpuError(
            "gpu must be given, such as 0.5, or memory, such as 20GiB, and not both",
            "invalid-input",
            "gpu",
        )
    try:
        _check_positive("gpu", gpu, read_gpu)
        _check_positive("memory", memory, read_memory)
        _check_positive("limit", limit, read_gpu)
    except InvalidInput as error:
        raise GpuError(error.message, error.code, error.field) from None
    names = pools.split(",") if isinstance(pools, str) else pools
    body = {
        "gpu": gpu,
        "gpu_memory": memory,
        "gpu_limit": limit,
        "project": project,
        "node_pools": [name.strip() for name in names] if names is not None else None,
        "priority_class": priority,
    }
    return {name: value for name, value in body.items() if value is not None}


def _check_positive(what: str, value: object, read: Callable[..., int]) -> None:
    if value is not None and read(value, what=what) <= 0:
        raise InvalidInput(f"{what} must be more than 0, got {value}", field=what)
