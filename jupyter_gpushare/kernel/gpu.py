"""The `%gpu` magics as functions: `from jupyter_gpushare import gpu; gpu.request(0.5)`. Every answer is a plain mapping."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from jupyter_gpushare.core.errors import InvalidInput
from jupyter_gpushare.core.quantity import read_gpu, read_memory

from .cards import ShownKernel
from .extension import Extension, current
from .link import Json

if TYPE_CHECKING:
    from .panel import Panel

__all__ = [
    "GpuError", "history", "nodes", "on_notice", "panel", "pin", "queue", "release", "request", "resume", "samples", "status", "suspend",
    "unpin", "wait", "what_if", "why",
]  # fmt: skip

ANSWER_S: Final = 30.0
CONNECT_S: Final = 5.0
NOT_OURS: Final = "this kernel was not started through gpushare, so it cannot have a share of a GPU"


class GpuError(RuntimeError):
    """Raised when a question or a wish was refused; `code` and `field` say why, the message says it in one sentence."""

    def __init__(self, message: str, code: str = "error", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def status() -> Json:
    """This notebook's share now: state, share, GPU, memory in MiB, why it waits, and its last events."""
    extension = current()
    if extension.link.address is None:
        return ShownKernel(extension.link.kernel)
    # The Jupyter server knows the whole story, the agent its part of it, and we what was said last.
    for action in ("why", "status"):
        try:
            return _kernel(extension, _ask(action))
        except GpuError as error:
            if error.code != "unavailable":
                raise
            if not extension.link.welcomed.is_set():
                break
    return ShownKernel(extension.link.kernel)


def request(
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    limit: float | str | None = None,
    project: str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
    wait: bool = True,
) -> Json:
    """Ask for a share: GPUs (`0.5`, `2`) or memory (`"20GiB"`); `limit` is the burst ceiling in GPUs. Waits until it is there unless
    told otherwise; replaces the share that this notebook has. Returns the new status.

    Raises:
        GpuError: it makes no sense or is not allowed; then nothing was changed. Or the wait was given up.
    """
    ask_for(request_body(gpu, memory, limit, project, pools, priority))
    return _wait(None) if wait else status()


def release() -> Json:
    """Give the GPU back; the kernel lives on. Returns the new status."""
    return _kernel(current(), _ask("release"))


def wait(timeout: float | None = None) -> Json:
    """Block until this notebook's GPU is there; can be interrupted. `timeout` in seconds.

    Raises:
        GpuError: no share was asked for, the time is over, or the wait was interrupted.
    """
    return _wait(timeout)


def why() -> Json:
    """Why this notebook waits: state, reason with its numbers and what would help, place in the queue."""
    now = status()
    return {name: now[name] for name in ("state", "reason", "queue_position")}


def what_if(
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    project: str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
) -> Json:
    """Would such a request start now, where, and whom would it displace? Changes nothing."""
    return _ask("what-if", request_body(gpu, memory, None, project, pools, priority))


def suspend() -> Json:
    """Save this notebook's GPU memory to host memory now; its next cell brings it back."""
    return _act("suspend")


def resume() -> Json:
    """Bring saved GPU memory back now."""
    return _act("resume")


def pin() -> Json:
    """Do not suspend this notebook while it is idle."""
    return _act("pin")


def unpin() -> Json:
    """Let this notebook be suspended while it is idle, as usual."""
    return _act("unpin")


def queue() -> list[Json]:
    """The queues that this person may see: quota, fair share, allocated, requested."""
    return list(_ask("queue")["queues"])


def nodes() -> list[Json]:
    """The nodes and their GPUs, with who runs there."""
    return list(_ask("nodes")["nodes"])


def history() -> list[Json]:
    """What happened to this notebook's share, oldest first."""
    return list(status()["events"])


def samples(minutes: int = 60) -> list[Json]:
    """This notebook's share over time, oldest first: `time`, `state`, `gpu`, `guaranteed_mib`, `used_mib`, `borrowed_mib`, `utilization`.

    Every few seconds while it is young, coarser when it is old, for a day at most. Empty while only the node agent can be reached.
    """
    return list(_ask("history", {"minutes": minutes}).get("samples", []))


def panel() -> Panel:
    """A widget with this notebook's share, live, and buttons to request, release, suspend and resume.

    Raises:
        GpuError: this kernel has no ipywidgets.
    """
    try:
        from .panel import Panel
    except ImportError as error:
        raise GpuError(f"the panel needs ipywidgets, which this kernel's environment lacks ({error})", "unavailable") from None
    return Panel(current())


def on_notice(callback: Callable[[Json], object]) -> Callable[[Json], object]:
    """Call `callback(notice)` in a thread of its own whenever memory is about to be taken: `message`, `deadline_ms`, `take_mib`.
    Returns the callback, so that it can be used as a decorator."""
    if not callable(callback):
        raise TypeError(f"a callback must be callable, got {callback!r}")
    current().on_notice.append(callback)
    return callback


# ---- what magics and functions share


def request_body(
    gpu: object, memory: object, limit: object, project: str | None, pools: Sequence[str] | str | None, priority: str | int | None
) -> Json:
    """The body of a request with only what was given; amounts that make no sense are refused here, before anybody is asked."""
    if (gpu is None) == (memory is None):
        raise GpuError("gpu must be given, such as 0.5, or memory, such as 20GiB, and not both", "invalid-input", "gpu")
    try:
        _check_positive("gpu", gpu, read_gpu)
        _check_positive("memory", memory, read_memory)
        _check_positive("limit", limit, read_gpu)
    except InvalidInput as error:
        raise GpuError(error.message, error.code, error.field) from None
    names = pools.split(",") if isinstance(pools, str) else pools
    body = {
        "gpu": gpu, "gpu_memory": memory, "gpu_limit": limit, "project": project,
        "node_pools": [name.strip() for name in names] if names is not None else None, "priority_class": priority,
    }  # fmt: skip
    return {name: value for name, value in body.items() if value is not None}


def _check_positive(what: str, value: object, read: Callable[..., int]) -> None:
    if value is not None and read(value, what=what) <= 0:
        raise InvalidInput(f"{what} must be more than 0, got {value}", field=what)


def ask_for(body: Json) -> Json:
    """Send a request without waiting for the GPU."""
    return _ask("request", body)


def _wait(timeout: float | None) -> Json:
    extension = current()
    if extension.link.address is None:
        raise GpuError(NOT_OURS, "conflict")
    if status()["state"] == "detached":
        raise GpuError("there is nothing to wait for: ask for a share with `%gpu request 0.5`", "conflict")
    verdict = extension.gate.ask(wait=True, timeout=timeout)
    if not verdict.go:
        raise GpuError(verdict.message, "timeout")
    return status()


def _act(action: str) -> Json:
    return _kernel(current(), _ask(action))


def _kernel(extension: Extension, answer: Json) -> Json:
    """The status in an answer: the kernel itself, or what the agent pushed meanwhile."""
    found = answer.get("kernel", answer)
    return ShownKernel(found if "kernel_id" in found and "state" in found else extension.link.kernel)


def _ask(action: str, body: Json | None = None) -> Json:
    extension = current()
    link = extension.link
    if link.address is None:
        raise GpuError(NOT_OURS, "conflict")
    if not link.welcomed.wait(CONNECT_S):
        raise GpuError("the node agent of this machine cannot be reached now; try again in a moment", "unavailable")
    with link.asking() as (n, answers):
        link.send({"type": "ask", "n": n, "action": action, "body": body or {}})
        return _answer(answers, time.monotonic() + ANSWER_S)


def _answer(answers: SimpleQueue[Json], deadline: float) -> Json:
    while True:
        try:
            message = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise GpuError("no answer in time; the request may still be carried out, see `%gpu`", "unavailable") from None
        if message["type"] == "away":
            raise GpuError("the node agent went away before it answered; see `%gpu` in a moment", "unavailable")
        if message["type"] == "reply":
            if message.get("error"):
                error = message["error"]
                raise GpuError(error["message"], error["code"], error.get("field"))
            return message.get("body") or {}
