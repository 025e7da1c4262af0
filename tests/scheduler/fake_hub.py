"""A JupyterHub's REST API, as far as the scheduler uses it, with a temper: it can be slow, busy,
rude or gone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpushare.scheduler.auth.jupyterhub import HubAddress

SERVICE_TOKEN = "the-services-own"
SCOPE = "access:services!service=gpushare"


class FakeHub:
    """`users`: token -> what the Hub says of its owner. `mood`: status and body of every answer,
    instead of a true one.
    """

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.groups: list[dict[str, Any]] = []
        self.mood: tuple[int, bytes] | None = None
        self.asked: Counter[str] = Counter()
        self.url = ""

    @property
    def address(self) -> HubAddress:
        return HubAddress(self.url, SERVICE_TOKEN)

    def knows(
        self, name: str, *groups: str, scopes: tuple[str, ...] = (SCOPE,), **more: Any
    ) -> str:
        """Gives the token of a user."""
        token = f"hub-token-of-{name}"
        self.users[token] = {
            "kind": "user",
            "name": name,
            "groups": list(groups),
            "admin": False,
            "scopes": list(scopes),
            **more,
        }
        return token

    def group(self, name: str, *users: str, gpushare: object = None) -> None:
        properties = {} if gpushare is None else {"gpushare": gpushare, "theirs": 1}
        self.groups.append(
            {"kind": "group", "name": name, "users": list(users), "properties": properties}
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FakeHub]:
        sockets = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(Application([(r"/hub/api(/.*)", _Answer, {"hub": self})]))
        server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/hub/api"
        try:
            yield self
        finally:
            server.stop()
            await server.close_all_connections()


class _Answer(RequestHandler):
    def initialize(self, hub: FakeHub) -> None:
        self._hub = hub

    def get(self, path: str) -> None:
        hub, token = self._hub, self.request.headers["Authorization"].removeprefix("token ")
        hub.asked[path] += 1
        if hub.mood is not None:
            status, body = hub.mood
            self.set_status(status)
            self.finish(body)
        elif path == "/user" and token in hub.users:
            self.finish(json.dumps(hub.users[token]))
        elif path == "/groups" and token == SERVICE_TOKEN:
            start = int(self.get_query_argument("offset"))
            self.finish(
                json.dumps(hub.groups[start : start + int(self.get_query_argument("limit"))])
            )
        else:
            self.set_status(403)
            self.finish('{"status": 403, "message": "Forbidden"}')
