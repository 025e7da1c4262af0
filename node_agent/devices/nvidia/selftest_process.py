"""The self-test's side of a test process, which has a little memory on one GPU and checks it on
request (`selftest_worker`).
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Final

from ...system.processes import MARKER, SELF_TEST

__all__ = ["SelfTestProcess", "SelfTestProcessFailed"]

READY_TIMEOUT_S: Final = 60.0
"""For cuInit and a first context on a machine that wakes its GPUs."""
DIED: Final = "it died"


class SelfTestProcessFailed(Exception):
    """Raised when the test process did not start, did not answer, or died."""


class SelfTestProcess:
    """One test process; it is killed at the end of the context."""

    def __init__(self, visible: Sequence[str]) -> None:
        """`visible`: UUIDs of the GPUs that it sees, as a kernel would: its own GPU first, and the
        others where its memory is to be moved.
        """
        env = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(visible), MARKER: SELF_TEST}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "node_agent.devices.nvidia.selftest_worker", visible[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> SelfTestProcess:
        try:
            self._read_line()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def check(self) -> str:
        """`right UUID` or `wrong UUID`. Raises SelfTestProcessFailed."""
        stdin = _open(self._process.stdin)
        try:
            stdin.write(b"check\n")
            stdin.flush()
        except OSError as error:
            raise SelfTestProcessFailed(DIED) from error
        return self._read_line()

    def _read_line(self) -> str:
        stdout = _open(self._process.stdout)
        deadline, line = time.monotonic() + READY_TIMEOUT_S, b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([stdout], [], [], left)
            if not ready:
                raise SelfTestProcessFailed("it did not answer in time")
            piece = os.read(stdout.fileno(), 4096)
            if not piece:
                raise SelfTestProcessFailed(self._last_error())
            line += piece
        return line.decode().strip()

    def _last_error(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
            text = _open(self._process.stderr).read().decode(errors="replace")
            return text.strip().rpartition("\n")[2] or DIED
        return DIED


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
