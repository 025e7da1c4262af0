"""Processes of a test cluster: each in a session of its own, with a log and a pid file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["Processes"]

PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_the_tests() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Processes:
    """Named processes. A process that a test killed can be started again by its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> None:
        self._commands[name] = ([str(part) for part in command], {**os.environ, **(env or {})})
        self.start_again(name)

    def start_again(self, name: str) -> None:
        command, env = self._commands[name]
        with (self.folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_die_with_the_tests,  # noqa: PLW1509 - one system call
            )
        self._running[name] = started
        (self.folder / f"{name}.pid").write_text(str(started.pid))

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def exited(self) -> str:
        """The first process that ended without being killed by a test, with the end of its log."""
        for name, process in self._running.items():
            if (status := process.poll()) is not None:
                return f"{name} ended with status {status}:\n{self.log(name)}"
        return ""

    def log(self, name: str, size: int = 3000) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-size:]

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)
