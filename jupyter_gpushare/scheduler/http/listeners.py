"""Listeners of a server: network or unix socket, certificates, the admin's token, and the file by
which tools on this machine find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable
from jupyter_gpushare.transports import UNIX

from ..auth.identity import admin_token_file, write_secret
from ..server import SchedulerServer
from .bounded_server import BoundedHTTPServer
from .handlers import application

__all__ = ["NOTE", "ListenAddress", "Listeners", "certificate_of", "unix_socket"]

NOTE: Final = "scheduler.json"
"""In the state directory while the server listens: its address and the admin's token file."""
CLOSING_S: Final = 2.0
BACKLOG: Final = 128
LONGEST_PATH: Final = 107
"""Longest address of a unix socket, in bytes."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. `port` 0: any free one; None: no network. With `certfile` it is HTTPS, and
    with `client_ca` agents need a client certificate. `socket`: a unix socket with permissions
    `socket_mode`. `token_file` None: `admin.token` in the state directory; it is created for
    network listeners only.
    """

    host: str = "127.0.0.1"
    port: int | None = 0
    certfile: str = ""
    keyfile: str = ""
    client_ca: str = ""
    socket: Path | None = None
    socket_mode: int = 0o666
    token_file: Path | None = None
    prefix: str = ""
    """Path prefix under which a proxy forwards calls."""


class Listeners:
    """Serves calls from its construction until `stop`. Raises Unavailable: the port is in use, a
    file is unreadable.
    """

    def __init__(self, server: SchedulerServer, address: ListenAddress, state_dir: Path) -> None:
        self.token_file = address.token_file or state_dir / "admin.token"
        self._note, self._address = state_dir / NOTE, address
        self.socket_url = f"{UNIX}{address.socket.absolute()}" if address.socket is not None else ""
        self.url = self.socket_url
        self._servers: list[HTTPServer] = []
        sockets: list[socket.socket] = []
        try:
            if address.port is not None:
                admin_token_file(server.tokens, self.token_file, _this_user())
                secure = certificate_of(address)
                sockets = bind_sockets(address.port, address.host or None)
                self.url = self._listen(server, sockets, secure)
            if address.socket is not None:
                self._listen(server, [unix_socket(address.socket, address.socket_mode)], None)
        except OSError as error:
            for one in sockets:
                one.close()
            where = (
                f"{address.host}:{address.port}"
                if not sockets and address.port is not None
                else str(address.socket)
            )
            raise Unavailable(f"cannot listen: {error.strerror or error}", field=where) from error

    def _listen(
        self, server: SchedulerServer, sockets: list[socket.socket], secure: ssl.SSLContext | None
    ) -> str:
        """Starts serving; returns the URL of the first socket."""
        app = application(
            server,
            agents_show_certificates=bool(self._address.client_ca),
            prefix=self._address.prefix,
        )
        http_server = BoundedHTTPServer(app, ssl_options=secure, idle_connection_timeout=300)
        http_server.add_sockets(sockets)
        self._servers.append(http_server)
        if sockets[0].family == socket.AF_UNIX:
            return self.socket_url
        host = self._address.host
        host = f"[{host}]" if ":" in host else host or "localhost"
        return f"{'https' if secure else 'http'}://{host}:{sockets[0].getsockname()[1]}"

    def leave_note(self) -> None:
        """Lets the command line find this scheduler."""
        url = self.socket_url or self.url  # no token is needed there
        note = {
            "url": url,
            "token_file": "" if self.socket_url else str(self.token_file.resolve()),
            "pid": os.getpid(),
        }
        write_secret(self._note, json.dumps(note))

    async def stop(self) -> None:
        """Accepts no more calls; current ones get a moment to finish."""
        for server in self._servers:
            server.stop()
        if self._is_ours():
            self._note.unlink(missing_ok=True)
        if self._address.socket is not None:
            self._address.socket.unlink(missing_ok=True)
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.close_all_connections(), CLOSING_S)

    def _is_ours(self) -> bool:
        try:
            return bool(json.loads(self._note.read_text())["pid"] == os.getpid())
        except (OSError, ValueError, KeyError, TypeError):
            return False


def _this_user() -> str:
    """The user of this process; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def certificate_of(address: ListenAddress) -> ssl.SSLContext | None:
    if not address.certfile:
        if address.client_ca:
            raise InvalidInput(
                "certificates of agents require TLS: set a server certificate too (--tls-cert)",
                field="tls-client-ca",
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(address.certfile, address.keyfile or None)
    if address.client_ca:
        context.load_verify_locations(address.client_ca)
        context.verify_mode = (
            ssl.CERT_OPTIONAL
        )  # users and servers have none; the agent handler requires one
    return context


def unix_socket(path: Path, mode: int) -> socket.socket:
    """Binds a unix socket, replacing one that no process serves. Raises InvalidInput, Unavailable,
    OSError.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise InvalidInput(
            f"a path of a unix socket has at most {LONGEST_PATH} bytes: {path}", field="socket"
        )
    with (
        socket.socket(socket.AF_UNIX) as probe,
        contextlib.suppress(FileNotFoundError, ConnectionRefusedError),
    ):
        probe.connect(str(path))
        raise Unavailable("another service listens on this socket", field=str(path))
    if path.exists() and not path.is_socket():
        raise Unavailable("the path exists and is not a socket", field=str(path))
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
