"""Real scheduler processes, born quickly: one process that has imported everything forks a
scheduler whenever it is asked.

A start of the interpreter with SQL and NumPy takes a second or two; a fork takes milliseconds, so
that a test can kill dozens. What runs in the child is the program itself: its own configuration,
sockets, store, signals.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import HttpTransport, SchedulerClient, token_in

TIMEOUT_S = 60


@dataclass
class Child:
    """One scheduler. `say` is its line on the terminal, or why it did not start."""

    pid: int
    state_dir: Path
    url: str
    fork_server: ForkServer

    def client(self) -> SchedulerClient:
        return SchedulerClient(
            HttpTransport(self.url, token_in(self.state_dir / "admin.token"), call_s=10)
        )

    def kill(self) -> None:
        """As the machine would: no farewell."""
        os.kill(self.pid, signal.SIGKILL)
        self.fork_server.expect("died")

    def kill_unseen(self) -> None:
        """The same, while somebody else waits for its death."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """As an operator would. Gives the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return int(self.fork_server.expect("died")["status"])


class DidNotStart(Exception):
    """Raised with what the program said."""


class ForkServer:
    """One child at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )  # unbuffered: `select` knows of nothing that Python has read ahead

    def start(self, state_dir: Path, **config: Any) -> Child:
        """Raises DidNotStart."""
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"state_dir": str(state_dir), "port": 0, **config}).encode() + b"\n"
        )
        pid = self.expect("born")["pid"]
        said = self.expect("said", "died")
        if said["what"] == "died":
            raise DidNotStart(said)
        return Child(pid, state_dir, re.search(r"https?://[^ :]+:\d+", said["line"])[0], self)

    def expect(self, *what: str) -> dict[str, Any]:
        """The next thing that happens to the child, which must be one of these; what it says later
        (that it leads now) is passed over.
        """
        line = self._next(what)
        while line["what"] == "said" and "said" not in what:
            line = self._next(what)
        assert line["what"] in what, line
        return line

    def _next(self, what: tuple[str, ...]) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        assert ready, f"waited {TIMEOUT_S} s for {what}"
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the fork server and its child."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


# -- inside the fork server's process


def _tell(**what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


def _run(config: dict[str, Any]) -> None:
    """The child: the program, with `limit_bytes` as the largest file that it may write, and
    `failpoints` to pass or to die at.
    """
    import asyncio
    import resource

    from traitlets.config import Config

    from jupyter_gpushare.core.model.errors import GpuShareError
    from jupyter_gpushare.scheduler.app import SchedulerApp

    if failpoints := config.pop("failpoints", None):
        import failpoints as ours  # beside this file, which runs as a program

        ours.install(**failpoints)
    if limit := config.pop("limit_bytes", None):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    app = SchedulerApp(config=Config(SchedulerApp={"log_level": "ERROR", **config}))
    try:
        asyncio.run(app.serve(lambda line: _tell(what="said", line=line)))
    except GpuShareError as error:
        sys.stderr.write(f"{error.message}\n")
        os._exit(1)
    os._exit(0)


def _main() -> None:
    import jupyter_gpushare.scheduler.app  # noqa: F401 - imported once, for all children

    for line in sys.stdin:
        config = json.loads(line)
        if (pid := os.fork()) == 0:
            os.close(0)
            _tell(
                what="born", pid=os.getpid()
            )  # itself: its first line could overtake what we say of it
            _run(config)
        _, status = os.waitpid(pid, 0)
        _tell(what="died", status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _main()
