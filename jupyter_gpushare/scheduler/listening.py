"""Opens a house to the network: socket, certificate, the admin's token, and the note by which tools of this machine find it."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_gpushare.core.errors import Unavailable

from .auth import admin_token_file, write_secret
from .house import House
from .rest import application

__all__ = ["NOTE", "Address", "Listening"]

NOTE: Final = "scheduler.json"
"""In the state directory while the service listens: its address and where the admin's token is."""
CLOSING_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any free one. With a certificate it is HTTPS. `token_file` None: `admin.token` in the state directory."""

    host: str = "127.0.0.1"
    port: int = 0
    certfile: str = ""
    keyfile: str = ""
    token_file: Path | None = None


class Listening:
    """A house that answers calls: from the moment it is made until `stop`. Raises Unavailable: the port is taken, a file is unreadable."""

    def __init__(self, house: House, address: Address, state_dir: Path) -> None:
        self.token_file = address.token_file or state_dir / "admin.token"
        self._note = state_dir / NOTE
        try:
            admin_token_file(house.tokens, self.token_file, _this_user())
            secure = _certificate(address)
            sockets = bind_sockets(address.port, address.host or None)
        except OSError as error:
            raise Unavailable(f"cannot listen: {error.strerror or error}", field=f"{address.host}:{address.port}") from error
        port = sockets[0].getsockname()[1]
        host = f"[{address.host}]" if ":" in address.host else address.host or "localhost"
        self.url = f"{'https' if secure else 'http'}://{host}:{port}"
        self._server = HTTPServer(application(house), ssl_options=secure, idle_connection_timeout=300)
        self._server.add_sockets(sockets)

    def leave_note(self) -> None:
        """From now on the command line finds this scheduler by itself."""
        note = {"url": self.url, "token_file": str(self.token_file.resolve()), "pid": os.getpid()}
        write_secret(self._note, json.dumps(note))

    async def stop(self) -> None:
        """No new calls; those that run have a moment to end."""
        self._server.stop()
        if self._is_ours():
            self._note.unlink(missing_ok=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.close_all_connections(), CLOSING_S)

    def _is_ours(self) -> bool:
        try:
            return bool(json.loads(self._note.read_text())["pid"] == os.getpid())
        except (OSError, ValueError, KeyError, TypeError):
            return False


def _this_user() -> str:
    """Who runs this process; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def _certificate(address: Address) -> ssl.SSLContext | None:
    if not address.certfile:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(address.certfile, address.keyfile or None)
    return context
