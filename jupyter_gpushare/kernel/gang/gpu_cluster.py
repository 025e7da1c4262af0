"""One workload of this notebook whose pods are the workers of a cluster: all start, or none."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
from types import TracebackType
from typing import Any, Final

from ..cell_gate.interrupts import interruptible, is_main_thread
from ..cell_gate.wait import SHOW_AFTER_S
from ..display.output import CellProgress
from ..kernel_body import Json
from ..rpc import GpuError, call
from ..session import current
from .backends import Backend, open_backend, own_address

__all__ = ["GpuCluster", "start_cluster"]

POLL_S: Final = 1.0
PASSED_ON: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
)
"""Variables of this kernel that the workers inherit; others may have secrets, and the scheduler
stores them.
"""


class GpuCluster:
    """A running cluster. `client`: the Dask or ipyparallel client. `workload`: its id at the
    scheduler. When one worker dies, all of them end. Usable as a context manager.
    """

    def __init__(self, backend: Backend, workload: str, n: int) -> None:
        self.client: Any = backend.client
        self.workload, self.n = workload, n
        self._backend = backend
        self._is_closed = False
        atexit.register(self.close)

    def status(self) -> Json:
        """State of the workload, its pods, and why it waits."""
        return call("cluster-state", {"workload": self.workload})

    def close(self) -> None:
        """End the workers, and release their GPUs."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        with contextlib.suppress(GpuError):  # its server ends it with this kernel
            call("cluster-end", {"workload": self.workload})
        self._backend.close()

    def __enter__(self) -> GpuCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._backend.connected()} connected"
        return f"GpuCluster({self.workload!r}, n={self.n}, {state})"


def start_cluster(
    n: int,
    share: Json,
    backend: str | None,
    timeout_s: float | None,
    *,
    several_nodes: bool = False,
    host: str | None = None,
) -> GpuCluster:
    """Start the workers, and wait until all of them are connected. `host`: the address of this
    node that workers on other nodes reach; None: that of the default route.

    Raises:
        GpuError: refused, a worker ended, the timeout has passed, or the wait was stopped. Nothing
            is left running.
    """
    session = current()
    with session.gate.work.requesting():
        opened = open_backend(backend, (host or own_address()) if several_nodes else None)
        try:
            workload = _submit(n, share, opened, several_nodes=several_nodes)
        except BaseException:
            opened.close()
            raise
        cluster = GpuCluster(opened, workload, n)
        progress = CellProgress(session.output, can_interrupt=is_main_thread())
        try:
            with interruptible():
                _wait(cluster, progress, timeout_s)
        except KeyboardInterrupt:
            progress.done("")
            cluster.close()
            raise GpuError("the wait for the cluster was stopped", "timeout") from None
        except BaseException:
            progress.done("")
            cluster.close()
            raise
        return cluster


def _submit(n: int, share: Json, backend: Backend, *, several_nodes: bool) -> str:
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    command = {
        "argv": backend.worker_command(),
        "env": env | backend.environment,
        "cwd": os.getcwd(),
    }
    body: Json = {"n": n, "share": share, "command": command}
    if several_nodes:  # a server of an older version does not know it
        body["several_nodes"] = True
    reply = call("cluster-start", body)
    return str(reply["workload"])


def _wait(cluster: GpuCluster, progress: CellProgress, timeout_s: float | None) -> None:
    started = time.monotonic()
    deadline = math.inf if timeout_s is None else started + timeout_s
    while (connected := cluster._backend.connected()) < cluster.n:
        state, waited = cluster.status(), time.monotonic() - started
        if state["state"] == "ended":
            raise GpuError(_end_text(state) + _needs_text(cluster._backend), "conflict")
        if time.monotonic() >= deadline:
            raise GpuError(f"no cluster after {waited:.0f} s: {_wait_text(state)}", "timeout")
        if waited >= SHOW_AFTER_S:
            is_pending = state["state"] == "pending"
            count = f"{connected} of {cluster.n} workers are connected."
            progress.show(_wait_text(state) if is_pending else count, waited)
        time.sleep(POLL_S)
    progress.done(f"Cluster of {cluster.n} ready after {time.monotonic() - started:.1f} s.")


def _wait_text(state: Json) -> str:
    reason = state.get("reason") or {}
    return str(reason.get("message") or "The workers are starting.")


def _end_text(state: Json) -> str:
    output = state.get("output", "").strip()
    text = f"the cluster ended: {state.get('message') or 'no reason is known'}"
    return f"{text}\n{output}" if output else text


def _needs_text(backend: Backend) -> str:
    """What workers on other nodes need, if there may be any."""
    if not backend.environment:
        return ""
    return f"\nOn every node the workers need {sys.executable} and the folder {os.getcwd()}."
