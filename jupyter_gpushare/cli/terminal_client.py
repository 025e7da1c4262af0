"""Shows the terminal of a command that a node agent of this machine runs (`terminal_host`)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import socket
import struct
import sys
import tempfile
import termios
import tty
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from . import terminal_host
from .terminal_host import FrameReader, frame

__all__ = ["Terminal"]

CHUNK: Final = 1 << 16
ACCEPT_S: Final = 0.4
CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid, gid of a peer."""
WINDOW_BYTES: Final = 4
"""Rows and columns in `TIOCGWINSZ`."""


class Terminal:
    """A socket that only this user reaches, and this process's standard input and output."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gpushare-terminal-"))
        self._path = self._folder / "s"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._listener.settimeout(ACCEPT_S)
        self._is_tty = os.isatty(0) and os.isatty(1)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def host_command(self, argv: Sequence[str]) -> list[str]:
        """The command that the agent starts."""
        kind = "tty" if self._is_tty else "pipe"
        host = [sys.executable, "-I", terminal_host.__file__, str(self._path), kind]
        return [*host, *argv]

    def accept(self) -> socket.socket | None:
        """The connection of the command's host; None: not yet. Waits a short time."""
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return None
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(raw)[1] != os.getuid():
            connection.close()
            return None
        connection.setblocking(True)
        return connection

    def show(self, connection: socket.socket) -> int | None:
        """Forward both ways until the command has ended; its exit status. None: the connection was
        closed before, as by an eviction. Blocks.
        """
        with self._raw_mode():
            return self._forward(connection)

    def _forward(self, connection: socket.socket) -> int | None:
        reader, sources = FrameReader(), [connection.fileno(), 0]
        while True:
            for ready in select.select(sources, [], [])[0]:
                if ready == 0:
                    typed = os.read(0, CHUNK)
                    if not typed:
                        sources.remove(0)
                    with contextlib.suppress(OSError):  # it has just ended
                        connection.sendall(frame(b"d", typed) if typed else frame(b"e"))
                    continue
                received = _receive(connection)
                for kind, payload in reader.feed(received):
                    if kind == b"x":
                        return int(payload)
                    _print(payload)
                if not received:
                    return None

    @contextlib.contextmanager
    def _raw_mode(self) -> Iterator[None]:
        """Keys are for the command: Ctrl-C too."""
        if not self._is_tty:
            yield
            return
        before = termios.tcgetattr(0)
        tty.setraw(0)
        try:
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def send_size(self, connection: socket.socket) -> None:
        """The size of the window: at the beginning, and at every SIGWINCH."""
        if self._is_tty:
            size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
            with contextlib.suppress(OSError):
                connection.sendall(frame(b"w", size[:WINDOW_BYTES]))


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(CHUNK)
    except OSError:
        return b""


def _print(output: bytes) -> None:
    while output:
        output = output[os.write(1, output) :]
