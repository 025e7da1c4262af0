"""The `%gpu` magics as functions: `from jupyter_gpushare import gpu; gpu.request(0.5)`. Every
answer is a plain mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .connection import Json
from .display.html import KernelStatusDisplay
from .rpc import NOT_OURS, GpuError, act, ask, ask_for, kernel_in, request_body
from .session import current

if TYPE_CHECKING:
    from .panel import GpuPanel

__all__ = [
    "GpuError",
    "history",
    "nodes",
    "on_notice",
    "panel",
    "pin",
    "queue",
    "release",
    "request",
    "resume",
    "samples",
    "status",
    "suspend",
    "unpin",
    "wait",
    "what_if",
    "why",
]


def status() -> Json:
    """This notebook's share now: state, share, GPU, memory in MiB, why it waits, and its last
    events.
    """
    extension = current()
    if extension.link.address is None:
        return KernelStatusDisplay(extension.link.kernel)
    # The Jupyter server knows the whole story, the agent its part of it, and we what was said last.
    for action in ("why", "status"):
        try:
            return kernel_in(extension, ask(action))
        except GpuError as error:
            if error.code != "unavailable":
                raise
            if not extension.link.welcomed.is_set():
                break
    return KernelStatusDisplay(extension.link.kernel)


def request(
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    limit: float | str | None = None,
    project: str | None = None,
    pool: Sequence[str] | str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
    wait: bool = True,
) -> Json:
    """Ask for a share: GPUs (`0.5`, `2`) or memory (`"20GiB"`); `limit` is the burst ceiling in
    GPUs. Waits until it is there unless told otherwise; replaces the share that this notebook has.
    `pool` (as the magic says) and `pools` are the same: node pools in order. Returns the new
    status.

    Raises: GpuError: it makes no sense or is not allowed; then nothing was changed. Or the wait was
    given up.
    """
    ask_for(request_body(gpu, memory, limit, project, pools or pool, priority))
    return _wait(None) if wait else status()


def release() -> Json:
    """Give the GPU back; the kernel lives on. Returns the new status."""
    return act("release")


def wait(timeout: float | None = None) -> Json:
    """Block until this notebook's GPU is there; can be interrupted. `timeout` in seconds.

    Raises:
        GpuError: no share was asked for, the time is over, or the wait was interrupted.
    """
    return _wait(timeout)


def why() -> Json:
    """Why this notebook waits: state, reason with its numbers and what would help, place in the
    queue, how much longer it takes.
    """
    now = status()
    return {name: now.get(name) for name in ("state", "reason", "queue_position", "expected_wait")}


def what_if(
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    project: str | None = None,
    pool: Sequence[str] | str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
) -> Json:
    """Would such a request start now, where, and whom would it displace? Changes nothing."""
    return ask("what-if", request_body(gpu, memory, None, project, pools or pool, priority))


def suspend() -> Json:
    """Save this notebook's GPU memory to host memory now; its next cell brings it back."""
    return act("suspend")


def resume() -> Json:
    """Bring saved GPU memory back now."""
    return act("resume")


def pin() -> Json:
    """Do not suspend this notebook while it is idle."""
    return act("pin")


def unpin() -> Json:
    """Let this notebook be suspended while it is idle, as usual."""
    return act("unpin")


def queue() -> list[Json]:
    """The queues that this person may see: quota, fair share, allocated, requested."""
    return list(ask("queue")["queues"])


def nodes() -> list[Json]:
    """The nodes and their GPUs, with who runs there."""
    return list(ask("nodes")["nodes"])


def history() -> list[Json]:
    """What happened to this notebook's share, oldest first."""
    return list(status()["events"])


def samples(minutes: int = 60) -> list[Json]:
    """This notebook's share over time, oldest first: `time`, `state`, `gpu`, `guaranteed_mib`,
    `used_mib`, `borrowed_mib`, `utilization`.

    Every few seconds while it is young, coarser when it is old, for a day at most. Empty while only
    the node agent can be reached.
    """
    return list(ask("history", {"minutes": minutes}).get("samples", []))


def panel() -> GpuPanel:
    """A widget with this notebook's share, live, and buttons to request, release, suspend and
    resume.

    Raises:
        GpuError: this kernel has no ipywidgets.
    """
    try:
        from .panel import GpuPanel
    except ImportError as error:
        raise GpuError(
            f"the panel needs ipywidgets, which this kernel's environment lacks ({error})",
            "unavailable",
        ) from None
    return GpuPanel(current())


def on_notice(callback: Callable[[Json], object]) -> Callable[[Json], object]:
    """Call `callback(notice)` in a thread of its own whenever memory is about to be taken:
    `message`, `deadline_ms`, `take_mib`. Returns the callback, so that it can be used as a
    decorator.
    """
    if not callable(callback):
        raise TypeError(f"a callback must be callable, got {callback!r}")
    current().on_notice.append(callback)
    return callback


def _wait(timeout: float | None) -> Json:
    extension = current()
    if extension.link.address is None:
        raise GpuError(NOT_OURS, "conflict")
    if status()["state"] == "detached":
        raise GpuError(
            "there is nothing to wait for: ask for a share with `%gpu request 0.5`", "conflict"
        )
    verdict = extension.gate.ask(wait=True, timeout=timeout)
    if not verdict.go:
        raise GpuError(verdict.message, "timeout")
    return status()
