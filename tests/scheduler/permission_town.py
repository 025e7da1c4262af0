"""A server with three users and callers of every scope, for tests of the access table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tornado.httpclient import HTTPResponse

from jupyter_gpushare import messages as m
from jupyter_gpushare.routes import Route
from jupyter_gpushare.scheduler.auth.permissions import CALLERS, Caller, reach
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, open_server

POLICY = """\
projects:
  - {name: vision, members: [alice, ann], pools: {default: {gpu: {quota: 1}}}, booking: {}}
  - {name: language, members: [bob], pools: {default: {gpu: {quota: 1}}}, booking: {}}
admins: [lisa]
"""
OWNERS = {"own": "alice", "colleague": "ann", "outsider": "bob"}
PROJECTS = {"alice": "vision", "ann": "vision", "bob": "language"}
WITHIN = {
    "nothing": (),
    "own": ("own",),
    "projects": ("own", "colleague"),
    "managed": ("own",),
    "manages": (),
    "everything": tuple(OWNERS),
}
"""Reach -> whose workloads are within it, for alice and for what acts for her."""


class Town:
    """A server where alice, ann and bob have a running and a waiting notebook each, and callers of
    every kind.
    """

    def __init__(self, running: RunningServer) -> None:
        self.running = running
        self.tokens: dict[str, str | None] = {
            "nobody": None,
            "person": running.token("alice"),
            "server": running.token("box", "server", users=["alice"]),
            "agent": running.token("n1", "agent"),
            "admin": running.admin_token,
            "listed admin": running.token("lisa"),
            "everybody's server": running.token("hub", "server"),
        }

    async def settle(self, agent: FakeAgent) -> None:
        for user, project in PROJECTS.items():
            for number, gpu in ((1, 0.25), (2, 2)):
                pods = [m.PodRequest(gpu=gpu)]
                name = f"{user}-secret-{number}.ipynb"
                request = m.WorkloadRequest(
                    id=f"{user}{number}",
                    kernel_id=f"k-{user}{number}",
                    name=name,
                    project=project,
                    user=user,
                    pods=pods,
                    queue_anyway=True,
                )
                await self.running.admin.submit(request)
        await agent.until(lambda: len(agent.holds) == len(PROJECTS))
        service = self.running.server.service
        while service.unit_of_work.needs_cycle or not all(
            len(service.unit_of_work.records[f"{user}1"].reports) for user in PROJECTS
        ):
            await asyncio.sleep(0.01)

    async def ask(self, caller: str, verb: str, path: str, body: object = None) -> HTTPResponse:
        sent = (
            None
            if verb not in ("POST", "PATCH")
            else json.dumps(body if body is not None else {}).encode()
        )
        return await self.running.raw(verb, path, sent, self.tokens[caller])

    async def read(self, caller: str, path: str) -> dict:
        answer = await self.ask(caller, "GET", path)
        assert answer.code == 200, answer.body
        return json.loads(answer.body)


COLUMN: dict[str, Caller] = {
    **{caller: caller for caller in CALLERS},
    "listed admin": "admin",
    "everybody's server": "server",
}
PEOPLE = ("person", "server", "admin", "listed admin", "everybody's server")


def within(thing: str, caller: str) -> tuple[str, ...]:
    """Whose workloads this caller reaches."""
    far = reach(thing, COLUMN[caller])
    return tuple(OWNERS) if caller == "everybody's server" and far != "manages" else WITHIN[far]


@asynccontextmanager
async def town(folder: Path) -> AsyncIterator[Town]:
    agent = FakeAgent("n0", gpus=1)
    async with open_server(folder, policy=POLICY) as running, agent.linked(running.admin):
        made = Town(running)
        await made.settle(agent)
        yield made


def story(telling):
    """Runs a coroutine function that takes a town."""

    def test(tmp_path: Path):
        async def told():
            async with town(tmp_path) as made:
                await telling(made)

        asyncio.run(told())

    test.__name__, test.__doc__ = telling.__name__, telling.__doc__
    return test


def address(route: Route) -> str:
    return route.path.replace("{id}", "none").replace("{name}", "none")
