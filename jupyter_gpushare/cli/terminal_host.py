"""Runs one command on a terminal that another process of this machine shows: `python -I
terminal_host.py SOCKET tty|pipe COMMAND…`, started by the node agent.

Standard library only, because it is started by its path. Frames: one byte for the kind, four for
the length, then the payload. To the host: `d` input, `e` end of input, `w` rows and columns. From
the host: `d` output, `x` exit status.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["FrameReader", "frame"]

HEADER: Final = struct.Struct(">cI")
CHUNK: Final = 1 << 16
CANNOT_RUN: Final = 126
END_OF_INPUT: Final = b"\x04"
"""Ctrl-D: what a terminal sends for it."""
NOT_REACHABLE: Final = (
    "gpushare: the terminal of this command is not reachable from {}: it has ended, or is on"
    " another machine\n"
)


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(payload)) + payload


class FrameReader:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(kind, payload) of the frames that are complete now."""
        self._rest += received
        while len(self._rest) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._rest)
            end = HEADER.size + length
            if len(self._rest) < end:
                return
            payload, self._rest = self._rest[HEADER.size : end], self._rest[end:]
            yield kind, payload


class TerminalHost:
    """The command and the connection to its terminal."""

    def __init__(self, connection: socket.socket, argv: Sequence[str], *, tty: bool) -> None:
        self._connection, self._tty = connection, tty
        self._fd, theirs = pty.openpty() if tty else _pipe_pair()
        self._child = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal if tty else None,  # noqa: PLW1509 - no threads here
        )
        os.close(theirs)

    def run(self) -> int:
        """Forward until the command has ended; its exit status."""
        reader, sources = FrameReader(), [self._connection.fileno(), self._fd]
        with contextlib.suppress(OSError):
            while self._fd in sources:
                for ready in select.select(sources, [], [])[0]:
                    if ready == self._fd:
                        if not self._forward_output():
                            sources.remove(self._fd)
                    elif received := self._connection.recv(CHUNK):
                        for kind, payload in reader.feed(received):
                            self._handle(kind, payload)
                    else:
                        self._hang_up()
                        return 128 + signal.SIGHUP
        status = self._child.wait()
        status = status if status >= 0 else 128 - status
        with contextlib.suppress(OSError):
            self._connection.sendall(frame(b"x", b"%d" % status))
        return status

    def _forward_output(self) -> bool:
        try:
            output = os.read(self._fd, CHUNK)
        except OSError:  # a terminal whose last process has ended
            output = b""
        if output:
            self._connection.sendall(frame(b"d", output))
        return bool(output)

    def _handle(self, kind: bytes, payload: bytes) -> None:
        if kind == b"d":
            while payload:
                payload = payload[os.write(self._fd, payload) :]
        elif kind == b"e" and self._tty:
            os.write(self._fd, END_OF_INPUT)
        elif kind == b"e":
            with socket.socket(fileno=os.dup(self._fd)) as ours:
                ours.shutdown(socket.SHUT_WR)
        elif kind == b"w" and self._tty:
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, payload + bytes(4))

    def _hang_up(self) -> None:
        """The terminal is gone. The agent kills what does not end by this."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGHUP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2)
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)


def _pipe_pair() -> tuple[int, int]:
    """A pipe for both directions."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main(path: str, kind: str, *argv: str) -> int:
    """Connect, and run the command; its exit status."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        sys.stderr.write(NOT_REACHABLE.format(socket.gethostname()))
        return CANNOT_RUN
    try:
        host = TerminalHost(connection, argv, tty=kind == "tty")
    except OSError as error:
        connection.sendall(frame(b"d", f"{argv[0]}: {error.strerror}\r\n".encode()))
        connection.sendall(frame(b"x", b"%d" % CANNOT_RUN))
        return CANNOT_RUN
    return host.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
