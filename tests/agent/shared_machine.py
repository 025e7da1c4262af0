"""A machine with one agent, run by root, for two real unix users."""

from __future__ import annotations

import os
import pwd
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agent.simulated_node import FakeServer, World
from tests.workers import add_unix_user, remove_unix_user

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be other unix users")


class People(NamedTuple):
    alice: pwd.struct_passwd
    bob: pwd.struct_passwd


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    """Made for this run, and gone after it."""
    mark = secrets.token_hex(3)
    names = [f"gs-alice-{mark}", f"gs-bob-{mark}"]
    try:
        for name in names:
            add_unix_user(name, "--no-create-home", "--shell", "/usr/sbin/nologin")
        yield People(*(pwd.getpwnam(name) for name in names))
    finally:
        for name in names:
            remove_unix_user(name)


class Box(World):
    """A shared machine: the agent's server is root's, and there are alice's and bob's."""

    def __init__(self, people: People) -> None:
        self._public = tempfile.TemporaryDirectory(prefix="gpushare-public-")
        super().__init__(
            gpus=1, users="all", run_commands="users", socket=Path(self._public.name) / "agent.sock"
        )
        self.people = people

    async def __aenter__(self) -> Box:
        await super().__aenter__()
        self.hers, self.his = (FakeServer(self, "server", user) for user in self.people)
        for server in (self.hers, self.his):
            await server.connect()
        return self

    async def __aexit__(self, *problem: object) -> None:
        for server in (self.hers, self.his):
            await server.close()
        await super().__aexit__(*problem)
        self._public.cleanup()

    @asynccontextmanager
    async def restarted(self):
        """The agent is away in between."""
        await self.agent.stop()
        yield
        await self.start_agent()
        for server in (self.server, self.hers, self.his):
            await server.connect()
