"""The `%gpu` magics as functions: `from jupyter_gpushare import gpu; gpu.request(0.5)`. Functions
that return a status return a plain mapping.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from .display.html import KernelStatusDisplay
from .grant_wait import request_share, wait_for_grant
from .kernel_body import Json
from .rpc import GpuError, act, call, kernel_in, request_body
from .session import current

if TYPE_CHECKING:
    from .gang.gpu_cluster import GpuCluster
    from .panel import GpuPanel

__all__ = [
    "GpuError",
    "busy",
    "cancel",
    "cluster",
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
    """This notebook's share: state, share, GPU, memory in MiB, why it waits, and its last events.

    From the Jupyter server; from the node agent if the server is not reachable; the last known
    status if neither is.
    """
    session = current()
    if session.connection.address is None:
        return KernelStatusDisplay(session.connection.kernel)
    for action in ("why", "status"):
        try:
            return kernel_in(session, call(action))
        except GpuError as error:
            if error.code != "unavailable":
                raise
            if session.connection.is_lost:
                break
    return KernelStatusDisplay(session.connection.kernel)


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
    queue_anyway: bool = False,
) -> Json:
    """Request GPUs (`0.5`, `2`) or GPU memory (`"20GiB"`), and return the new status.

    Replaces the share that this notebook has, once the new one is granted. `limit`: the burst limit
    in GPUs. `pool` or `pools`: node pools, in order. `wait`: return when the GPU is granted.
    `queue_anyway`: stay in the queue even if no node can run the request now.

    Raises:
        GpuError: the request is invalid or not allowed, and nothing was changed; or the wait was
            stopped.
    """
    body = request_body(
        gpu, memory, limit, project, pools or pool, priority, queue_anyway=queue_anyway
    )
    reply = request_share(body, wait=wait)
    return status() if wait else kernel_in(current(), reply)


def cancel() -> Json:
    """Cancel the pending request: a change of the share, which stays as it is, or else the first
    request. Returns the new status.

    Raises:
        GpuError: nothing is pending.
    """
    return act("cancel")


def release() -> Json:
    """Release the GPU; the kernel keeps running. Returns the new status."""
    return act("release")


def wait(timeout: float | None = None) -> Json:
    """Wait until this notebook's GPU is granted; can be interrupted. `timeout` in seconds.

    Raises:
        GpuError: nothing was requested, the timeout has passed, or the wait was stopped.
    """
    kernel = status()
    if kernel["state"] == "detached" and current().connection.address is not None:
        raise GpuError(
            "nothing to wait for: request a share first, with `%gpu request 0.5`", "conflict"
        )
    wait_for_grant(kernel, timeout)
    return status()


def why() -> Json:
    """Why this notebook waits: state, reason with numbers and what would help, queue position,
    expected wait. A notebook that requests another share keeps its current one meanwhile; the
    reason is then that of the requested share.
    """
    now = status()
    waiting = now.get("pending_change") or now
    details = ("reason", "queue_position", "expected_wait")
    return {"state": now["state"], **{name: waiting.get(name) for name in details}}


def what_if(
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    project: str | None = None,
    pool: Sequence[str] | str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
) -> Json:
    """Whether such a request would start now, where, and what it displaces. Changes nothing."""
    return call("what-if", request_body(gpu, memory, None, project, pools or pool, priority))


def suspend() -> Json:
    """Save this notebook's GPU memory to host memory; its next cell restores it."""
    return act("suspend")


def resume() -> Json:
    """Restore the saved GPU memory."""
    return act("resume")


def pin() -> Json:
    """Do not suspend this notebook while it is idle."""
    return act("pin")


def unpin() -> Json:
    """Allow suspending this notebook while it is idle, which is the default."""
    return act("unpin")


def queue() -> list[Json]:
    """The queues that you may see: quota, fair share, allocated, requested."""
    return list(call("queue")["queues"])


def nodes() -> list[Json]:
    """The nodes, their GPUs, and the kernels on them."""
    return list(call("nodes")["nodes"])


def history() -> list[Json]:
    """The events of this notebook's share, oldest first."""
    return list(status()["events"])


def samples(minutes: int = 60) -> list[Json]:
    """This notebook's share over time, oldest first: `time`, `state`, `gpu`, `guaranteed_mib`,
    `used_mib`, `borrowed_mib`, `utilization`.

    Kept for one day: every few seconds at first, coarser later. Empty while only the node agent is
    reachable.
    """
    return list(call("history", {"minutes": minutes}).get("samples", []))


def panel() -> GpuPanel:
    """A widget that shows this notebook's share live, with buttons to change it.

    Raises:
        GpuError: ipywidgets is not installed in this kernel's environment.
    """
    try:
        from .panel import GpuPanel
    except ImportError as error:
        raise GpuError(
            f"the panel needs ipywidgets, which is not installed in this environment ({error});"
            " `%pip install ipywidgets` installs it, `%gpu` shows the same as text",
            "unavailable",
        ) from None
    return GpuPanel(current())


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Count this notebook as busy until the `with` block ends, also after its cell: for threads and
    tasks whose pauses would look like rest. Restores saved GPU memory.
    """
    work = current().gate.work
    background = work.begin_background()
    try:
        yield
    finally:
        work.end(background)


def cluster(
    n: int,
    gpu: float | str | None = None,
    *,
    memory: str | int | None = None,
    limit: float | str | None = None,
    project: str | None = None,
    pool: Sequence[str] | str | None = None,
    pools: Sequence[str] | str | None = None,
    priority: str | int | None = None,
    backend: str | None = None,
    timeout: float | None = None,
    queue_anyway: bool = False,
    several_nodes: bool = False,
    host: str | None = None,
) -> GpuCluster:
    """Start `n` workers with a share each, and wait until all are connected. All start, or none.

    `backend`: "dask" or "ipyparallel"; default: the first that is installed. The cluster has the
    library's `client`; `close()` or the end of a `with` block ends the workers and releases their
    GPUs. `several_nodes`: they may run on every node of the pools, where the environment and folder
    of this kernel must be available; else on this node. `host`: the address of this node that the
    others reach; default: that of its default route. `timeout` in seconds; the other options as in
    `request`.

    Raises:
        GpuError: refused, a worker ended, the timeout has passed, or the wait was stopped. Nothing
            is left running.
    """
    from .gang.gpu_cluster import start_cluster

    share = request_body(
        gpu, memory, limit, project, pools or pool, priority, queue_anyway=queue_anyway
    )
    return start_cluster(n, share, backend, timeout, several_nodes=several_nodes, host=host)


def on_notice(callback: Callable[[Json], object]) -> Callable[[Json], object]:
    """Call `callback(notice)` in a new thread when memory is about to be reclaimed: `message`,
    `deadline_ms`, `take_mib` (what will be saved or lost). Returns the callback, so that it can be
    used as a decorator.
    """
    if not callable(callback):
        raise TypeError(f"a callback must be callable, got {callback!r}")
    current().notice_callbacks.append(callback)
    return callback
