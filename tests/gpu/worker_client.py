"""Starts workers (worker.py), sends commands and reads answers."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Missing", "NoAnswer", "Worker", "WorkerEnvironment"]

ROOT: Final = Path(__file__).parents[2]
ANSWER_TIMEOUT_S: Final = 150.0


class Missing(Exception):
    """Raised for a framework that is not installed."""


class NoAnswer(Exception):
    """Raised when a worker does not answer."""


@dataclass(frozen=True)
class WorkerEnvironment:
    """Python, source tree and user (None: the current one) of a worker."""

    python: str = sys.executable
    folder: Path = ROOT
    user: int | None = None


class Worker:
    """A process with GPU memory; see worker.py for its commands."""

    def __init__(
        self, kind: str = "driver", environment: WorkerEnvironment = WorkerEnvironment()
    ) -> None:
        self._process = subprocess.Popen(
            [environment.python, "-m", "tests.gpu.worker", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=environment.folder,
            user=environment.user,
        )
        self.pid = self._process.pid
        self._sleep_forever = b""
        hello = self._receive(ANSWER_TIMEOUT_S)
        if hello != "ready":
            self.end()
            raise (
                Missing(hello)
                if hello.startswith("missing")
                else NoAnswer(f"a worker ({kind}) did not start: {hello}")
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def do(self, *words: object, within: float = ANSWER_TIMEOUT_S) -> str:
        """Execute a command. Raises RuntimeError with its error, or NoAnswer."""
        self.send(*words)
        answer = self._receive(within)
        if answer.startswith("error"):
            raise RuntimeError(answer.removeprefix("error "))
        return answer

    def send(self, *words: object) -> None:
        """Send a command; `receive` returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self._process.stdin.flush()

    def receive(self, within: float = ANSWER_TIMEOUT_S) -> str:
        """The next answer. Raises NoAnswer."""
        return self._receive(within)

    def receive_or_nothing(self, within: float) -> str:
        """The next answer, or "" when it does not come in time; it is still pending then."""
        try:
            return self._receive(within)
        except NoAnswer:
            return ""

    def _receive(self, within: float) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within
        while b"\n" not in self._sleep_forever:
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                raise NoAnswer(f"no answer within {within:.0f} s")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                return "ended"
            self._sleep_forever += piece
        line, _, self._sleep_forever = self._sleep_forever.partition(b"\n")
        return line.decode().strip()

    def end(self) -> None:
        """SIGKILL."""
        self._process.kill()
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # a process inside the driver may ignore signals
            self._process.wait(20)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
