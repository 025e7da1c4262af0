"""A real server with an HTTP listener on a free port, and clients of every scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tornado.httpclient import HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.scheduler.http.listeners import ListenAddress, Listeners
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.server import SchedulerServer

POLICY = """\
departments:
  - {name: research, pools: {default: {gpu: {quota: 2}}}}
projects:
  - {name: vision, department: research, members: [alice], pools: {default: {gpu: {quota: 1}}}}
  - name: language
    department: research
    members: [bob, "group:night"]
    pools: {default: {gpu: {quota: 1}}}
"""


db_url: str | None = None
"""The database of every server here; None: an SQLite file in its folder. Set by `on_both`.
"""


@dataclass
class RunningServer:
    server: SchedulerServer
    listeners: Listeners

    @property
    def url(self) -> str:
        return self.listeners.url

    @property
    def admin_token(self) -> str:
        return self.listeners.token_file.read_text().strip()

    @property
    def admin(self) -> SchedulerClient:
        return self.client(self.admin_token)

    def token(self, name: str, scope: str = "person", **more: str) -> str:
        return str(self.server.tokens.create(m.TokenRequest(scope=scope, name=name, **more)).token)

    def client(self, token: str) -> SchedulerClient:
        return SchedulerClient(HttpTransport(self.url, token))

    def of(self, name: str, scope: str = "person") -> SchedulerClient:
        return self.client(self.token(name, scope))

    async def raw(
        self,
        verb: str,
        path: str,
        body: bytes | None = None,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        **more: object,
    ) -> HTTPResponse:
        """A call by somebody who does not use our client."""
        http = SimpleAsyncHTTPClient(force_instance=True)
        try:
            headers = dict(headers or {})
            if token:
                headers["Authorization"] = f"Bearer {token}"
            request = HTTPRequest(
                self.url + path,
                method=verb,
                headers=headers,
                body=body,
                allow_nonstandard_methods=True,
                **more,
            )
            return await http.fetch(request, raise_error=False)
        finally:
            http.close()


@asynccontextmanager
async def open_server(
    folder: Path, *, policy: str = POLICY, **more: object
) -> AsyncIterator[RunningServer]:
    more.setdefault("db_url", db_url)
    server = SchedulerServer(
        folder / "state", policy=None if "policy_file" in more else parse_policy(policy), **more
    )
    listeners = Listeners(server, ListenAddress(), folder / "state")
    server.start()
    await server.decided.wait()
    try:
        yield RunningServer(server, listeners)
    finally:
        server.events.close()
        server.agents.close()
        await listeners.stop()
        await server.stop()


def asking(id_: str, gpu: object = 0.5, **more: object) -> m.WorkloadRequest:
    return m.WorkloadRequest(id=id_, pods=[m.PodRequest(name="kernel", gpu=gpu)], **more)
