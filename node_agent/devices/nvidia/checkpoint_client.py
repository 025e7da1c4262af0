"""Makes the checkpoint calls of the CUDA driver by one long-lived worker process, over pipes. The
worker is killed and replaced when a call hangs.

All calls block their thread (never the event loop) up to a deadline. After `CheckpointHung` and
`WorkerGone`, the outcome of the call is unknown: the caller must read the state of the process
before anything else. The death of a worker loses nothing: it has no state, and the driver keeps the
state of each process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from .cuda import NOT_SUPPORTED, REMAP_VERSION, CudaError, ProcessState

__all__ = ["CheckpointClient", "CheckpointHung", "Deadlines", "OutcomeUnknown", "WorkerGone"]

log = logging.getLogger("gpushare.agent")

START_TIMEOUT_S: Final = 60.0
"""For Python and cuInit; a machine that wakes its GPUs needs tens of seconds."""


class OutcomeUnknown(Exception):
    """Raised when a call got no answer: it may be complete, partial or not begun."""


class CheckpointHung(OutcomeUnknown):
    """Raised when the driver did not answer in time. The worker was killed."""


class WorkerGone(OutcomeUnknown):
    """Raised when the worker died, or was killed because another call hung."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds after which a call counts as hung; a copy gets additional time for its bytes at
    `mib_per_s`.

    Published copies take 0.3 to 3 s at 4.6 to 8 GB/s, and up to 15 s more on an idle GPU
    (benchmarks of ai-dynamo/snapshot on B200; NVIDIA/cuda-checkpoint issue 29). A driver that needs
    20 s more at a sixteenth of the slowest rate is broken, while the owner of the GPU waits.
    """

    state: float = 20.0
    lock: float = 20.0
    copy: float = 20.0
    unlock: float = 30.0
    mib_per_s: float = 256.0


class _Worker:
    """One worker process while it lives."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # it must see the GPUs of all kernels
        self._process = subprocess.Popen(
            [sys.executable, "-m", "node_agent.devices.nvidia.checkpoint_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in the agent's terminal must not reach it
        )
        self.pid = self._process.pid
        self._pending: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._gone = False
        self.greeting: Future[dict[str, Any]] = Future()
        threading.Thread(target=self._read, name="gpushare-checkpoints", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # an incomplete line of a killed process
            for line in self._process.stdout:
                self._receive(json.loads(line))
        self.kill()

    def _receive(self, body: dict[str, Any]) -> None:
        if "n" not in body:
            self.greeting.set_result(body)
            return
        future = self._pending.pop(body["n"], None)
        if future is None:
            return
        if "error" in body:
            future.set_exception(CudaError(*body["error"]))
        else:
            future.set_result(body.get("value"))

    def request(self, call: str, args: Sequence[Any]) -> Future[Any]:
        """Start a call. Raises WorkerGone."""
        future: Future[Any] = Future()
        with self._lock:
            if self._gone:
                raise WorkerGone("the worker process has ended")
            number = next(self._numbers)
            self._pending[number] = future
            assert self._process.stdin is not None
            line = json.dumps({"n": number, "call": call, "args": list(args)}).encode() + b"\n"
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except OSError as error:
                self._pending.pop(number)
                raise WorkerGone("the worker process has ended") from error
        return future

    def is_gone(self) -> bool:
        return self._gone or self._process.poll() is not None

    def kill(self) -> None:
        """Kill it; pending calls fail."""
        with self._lock:
            if self._gone:
                return
            self._gone = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        pending, self._pending = self._pending, {}
        for future in [self.greeting, *pending.values()]:
            if not future.done():
                future.set_exception(WorkerGone("the worker process died"))


class CheckpointClient:
    """The calls. Thread-safe; the worker starts with the first call."""

    def __init__(self, deadlines: Deadlines = Deadlines()) -> None:
        self.deadlines = deadlines
        self._worker: _Worker | None = None
        self._starting = threading.Lock()
        self._closed = False

    def problem(self) -> str:
        """Why the state of processes cannot be saved on this machine; "": it can."""
        try:
            return str(self._greeting().get("problem", ""))
        except OutcomeUnknown as error:
            return f"the CUDA driver does not start: {error}"

    def version(self) -> int:
        """CUDA version of the driver (13000); 0 without one."""
        try:
            return int(self._greeting().get("version", 0))
        except OutcomeUnknown:
            return 0

    def can_remap(self) -> bool:
        """Whether this driver has restore on another GPU; the self-test checks that it works."""
        return self.version() >= REMAP_VERSION

    def worker_pid(self) -> int | None:
        """Pid of the worker; None while there is none."""
        worker = self._worker
        return None if worker is None or worker.is_gone() else worker.pid

    def state(self, pid: int) -> ProcessState:
        """Raises CudaError (INVALID_VALUE: no CUDA process, or ended) or OutcomeUnknown."""
        return ProcessState(self._call("state", (pid,), self.deadlines.state))

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Raises CudaError (NOT_READY: busy for all of the time, and still running) or
        OutcomeUnknown.
        """
        self._call("lock", (pid, timeout_ms), self.deadlines.lock + timeout_ms / 1000)

    def checkpoint(self, pid: int, mib: int = 0) -> None:
        """`mib` affects only the deadline. Raises CudaError or OutcomeUnknown."""
        self._call("checkpoint", (pid,), self.copy_timeout_s(mib))

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]] = (), mib: int = 0) -> None:
        """`pairs`: see CudaDriver.restore. Raises CudaError (OUT_OF_MEMORY: its memory is lost) or
        OutcomeUnknown.
        """
        self._call("restore", (pid, [list(pair) for pair in pairs]), self.copy_timeout_s(mib))

    def unlock(self, pid: int) -> None:
        """Raises CudaError or OutcomeUnknown."""
        self._call("unlock", (pid,), self.deadlines.unlock)

    def close(self) -> None:
        """End the worker. Calls in progress may be complete or not: the process states tell."""
        self._closed = True
        if self._worker is not None:
            self._worker.kill()

    def copy_timeout_s(self, mib: int) -> float:
        """Deadline of a copy of this size."""
        return self.deadlines.copy + mib / self.deadlines.mib_per_s

    def _greeting(self) -> dict[str, Any]:
        with self._starting:
            if self._closed:
                raise WorkerGone("the agent is stopping")
            if self._worker is None or self._worker.is_gone():
                self._worker = _Worker()
            worker = self._worker
        try:
            return worker.greeting.result(START_TIMEOUT_S)
        except TimeoutError:
            worker.kill()
            raise CheckpointHung("the driver did not start in time") from None

    def _call(self, call: str, args: Sequence[Any], seconds: float) -> Any:
        problem = self._greeting().get("problem")
        if problem:
            raise CudaError(call, NOT_SUPPORTED, str(problem))
        worker = self._worker
        assert worker is not None
        try:
            return worker.request(call, args).result(seconds)
        except TimeoutError:
            problem = f"the driver's call {call} did not return within {seconds:.0f} s"
            log.error("%s (arguments %r): the worker process is replaced", problem, tuple(args))
            worker.kill()
            raise CheckpointHung(problem) from None
