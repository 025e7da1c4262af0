"""The agent's hand in the CUDA driver: one long-lived helper process, asked over pipes, killed and
replaced when a call hangs.

All calls block their thread (never the event loop's) up to a deadline of their own.
`CheckpointHung` and `WorkerGone` say that nobody knows what became of the call: whoever asked must
read the process's state before doing anything else. The helper's death loses nothing: it keeps
nothing, and the driver keeps the state of each process.
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

from .cuda import REMAP_VERSION, CudaError, ProcessState

__all__ = ["CheckpointClient", "Deadlines", "WorkerGone", "CheckpointHung", "OutcomeUnknown"]

log = logging.getLogger("gpushare.agent")

START_S: Final = 60.0
"""For Python and cuInit; a machine that wakes its GPUs from sleep takes tens of seconds."""


class OutcomeUnknown(Exception):
    """Raised when a call got no answer: it may have been done, or not, or by half."""


class CheckpointHung(OutcomeUnknown):
    """Raised when the driver did not answer in time. The helper was killed."""


class WorkerGone(OutcomeUnknown):
    """Raised when the helper died, or another call's hang killed it."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a call may take, in seconds, before it counts as hung; a copy also gets the time for
    its bytes at `mib_per_s`.

    Published copies take 0.3 to 3 s and 4.6 to 8 GB/s, with a cold GPU up to 15 s more
    (ai-dynamo/snapshot's benchmarks on B200; NVIDIA/cuda-checkpoint issue 29): at a sixteenth of
    the slowest rate, with 20 s more, a driver is ill; and an owner waits for it.
    """

    state: float = 20.0
    lock: float = 20.0
    copy: float = 20.0
    unlock: float = 30.0
    mib_per_s: float = 256.0


class _Worker:
    """One helper process while it lives."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "node_agent.devices.nvidia.checkpoint_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"
            },  # it has to see what the kernels see
            start_new_session=True,  # a Ctrl-C at the agent's terminal is the agent's
        )
        self.pid = self._process.pid
        self._waiting: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._gone = False
        self.hello: Future[dict[str, Any]] = Future()
        threading.Thread(target=self._read, name="gpushare-checkpoints", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # half a line of a killed process
            for line in self._process.stdout:
                body = json.loads(line)
                future = self._waiting.pop(body["n"], None) if "n" in body else self.hello
                if future is None:
                    continue
                if "error" in body:
                    future.set_exception(CudaError(*body["error"]))
                else:
                    future.set_result(body.get("value") if "n" in body else body)
        self.kill()

    def ask(self, call: str, args: Sequence[Any]) -> Future[Any]:
        """The answer to come; HelperGone when it cannot come."""
        future: Future[Any] = Future()
        with self._lock:
            if self._gone:
                raise WorkerGone("the helper process is gone")
            n = next(self._numbers)
            self._waiting[n] = future
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(
                    json.dumps({"n": n, "call": call, "args": list(args)}).encode() + b"\n"
                )
                self._process.stdin.flush()
            except OSError as error:
                self._waiting.pop(n)
                raise WorkerGone("the helper process is gone") from error
        return future

    def is_gone(self) -> bool:
        return self._gone or self._process.poll() is not None

    def kill(self) -> None:
        """At once; everybody who waits hears of it."""
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
        waiting, self._waiting = self._waiting, {}
        for future in [self.hello, *waiting.values()]:
            if not future.done():
                future.set_exception(WorkerGone("the helper process died"))


class CheckpointClient:
    """The calls. Safe to use from several threads; the helper is started when it is first needed."""

    def __init__(self, deadlines: Deadlines = Deadlines()) -> None:
        self.deadlines = deadlines
        self._helper: _Worker | None = None
        self._starting = threading.Lock()
        self._closed = False

    def problem(self) -> str:
        """Why the state of processes cannot be saved here; "" when it can."""
        try:
            return str(self._hello().get("problem", ""))
        except OutcomeUnknown as error:
            return f"the CUDA driver does not start: {error}"

    def version(self) -> int:
        """CUDA version of the driver (13000); 0 when there is none."""
        try:
            return int(self._hello().get("version", 0))
        except OutcomeUnknown:
            return 0

    def can_remap(self) -> bool:
        """Whether restoring on another GPU exists in this driver; whether it works is for the
        self-test to say.
        """
        return self.version() >= REMAP_VERSION

    def helper_pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        helper = self._helper
        return None if helper is None or helper.is_gone() else helper.pid

    def state(self, pid: int) -> ProcessState:
        """Raises CudaError (INVALID_VALUE: it does not use CUDA, or is gone) or Unsure."""
        return ProcessState(self._ask("state", (pid,), self.deadlines.state))

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Raises CudaError (NOT_READY: it was busy for all of the time, and runs on) or Unsure."""
        self._ask("lock", (pid, timeout_ms), self.deadlines.lock + timeout_ms / 1000)

    def checkpoint(self, pid: int, mib: int = 0) -> None:
        """`mib` only makes the deadline. Raises CudaError or Unsure."""
        self._ask("checkpoint", (pid,), self.copy_s(mib))

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]] = (), mib: int = 0) -> None:
        """`pairs`: see Driver.restore. Raises CudaError (OUT_OF_MEMORY: it can never be restored
        again) or Unsure.
        """
        self._ask("restore", (pid, [list(pair) for pair in pairs]), self.copy_s(mib))

    def unlock(self, pid: int) -> None:
        """Raises CudaError or Unsure."""
        self._ask("unlock", (pid,), self.deadlines.unlock)

    def close(self) -> None:
        """End the helper. What it was about to do is done or not done: the states say."""
        self._closed = True
        if self._helper is not None:
            self._helper.kill()

    def copy_s(self, mib: int) -> float:
        """How long a copy of so much may take."""
        return self.deadlines.copy + mib / self.deadlines.mib_per_s

    def _hello(self) -> dict[str, Any]:
        with self._starting:
            if self._closed:
                raise WorkerGone("the agent is stopping")
            if self._helper is None or self._helper.is_gone():
                self._helper = _Worker()
            helper = self._helper
        try:
            return helper.hello.result(START_S)
        except TimeoutError:
            helper.kill()
            raise CheckpointHung("the driver did not start in time") from None

    def _ask(self, call: str, args: Sequence[Any], seconds: float) -> Any:
        problem = self._hello().get("problem")
        if problem:
            raise CudaError(call, 801, str(problem))
        helper = self._helper
        assert helper is not None
        try:
            return helper.ask(call, args).result(seconds)
        except TimeoutError:
            log.error(
                "the driver's call %s%r did not return within %.0f s: its helper is replaced",
                call,
                tuple(args),
                seconds,
            )
            helper.kill()
            raise CheckpointHung(
                f"the driver's call {call} did not return within {seconds:.0f} s"
            ) from None
