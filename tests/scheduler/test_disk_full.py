"""A full disk: what cannot be written is not acknowledged, what was acknowledged stays, and with
room again everything goes on.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import Unavailable
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import check_invariants, used_in
from tests.scheduler.scheduler_forks import Child, ForkServer

ROOM = 600_000
"""The largest file, in bytes, that the scheduler may write while its disk is full. The empty tables
take half of it.
"""


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


def asking(i: int) -> m.WorkloadRequest:
    return m.WorkloadRequest(id=f"w{i}", pods=[m.PodRequest(gpu=0.1)])


async def fill(client: SchedulerClient) -> list[str]:
    """Asks until the disk is full. Gives what was acknowledged."""
    known = []
    for i in range(2000):
        try:
            known.append((await client.submit(asking(i))).id)
        except Unavailable as error:
            if (error.code, error.status_hint) == ("store-unavailable", 503):
                return known
            raise
    raise AssertionError("the disk was never full")


async def end_until_refused(client: SchedulerClient, known: list[str]) -> None:
    """Ends workloads, the last first, until that is refused: a small change may still fit when a
    larger one does not. Leaves in `known` what was not acknowledged as ended.
    """
    while len(known) > 1:
        try:
            await client.end(known[-1])
        except Unavailable:
            return
        known.pop()
    raise AssertionError("every end was stored on a full disk")


async def ids(client: SchedulerClient) -> set[str]:
    return {view.id for view in (await client.workloads()).workloads}


async def readiness(client: SchedulerClient) -> tuple[int, str]:
    status, _, body = await client.transport.call("GET", "/readyz", {}, None)
    return status, body.decode()


def make_room(child: Child) -> None:
    _, hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.timeout(90)
def test_a_full_disk_refuses_what_is_new_and_loses_nothing(fork_server: ForkServer, tmp_path: Path):
    async def story() -> None:
        child = fork_server.start(tmp_path, limit_bytes=ROOM)
        client, agent = child.client(), FakeAgent()
        async with agent.linked(client) as link:
            first = await client.submit(asking(9999))
            await agent.until(lambda: agent.holds)
            known = [first.id, *await fill(client)]
            agent.use()
            await agent.report(link)
            assert await ids(client) == set(known)
            asked = set(known)
            await end_until_refused(client, known)
            status, text = await readiness(client)
            assert status == 503
            assert "changes cannot be stored: " in text
            assert await ids(client) == set(known)
            assert {lease.workload for lease in agent.told.values()} <= asked  # told, so kept
            make_room(child)
            async with asyncio.timeout(60):
                while (await readiness(client))[0] != 200:
                    await asyncio.sleep(0.05)
            known.append((await client.submit(asking(5000))).id)
            assert (await client.end(known[0])).ended
            assert await ids(client) == set(known[1:])
            await agent.until_taken(link, client)
        client.transport.close()
        child.kill()
        check_invariants(f"sqlite:///{tmp_path}/scheduler.sqlite")
        assert used_in(f"sqlite:///{tmp_path}/scheduler.sqlite") == agent.used > 0
        again = fork_server.start(tmp_path)
        client = again.client()
        assert await ids(client) == set(known[1:])
        client.transport.close()
        assert again.end() == 0

    asyncio.run(story())


def test_the_database_is_its_owners_alone(fork_server: ForkServer, tmp_path: Path):
    """Also its journal, and in a directory that others may read."""
    tmp_path.chmod(0o755)
    child = fork_server.start(tmp_path)
    asyncio.run(_ask_once(child))
    assert {
        file.name: oct(file.stat().st_mode & 0o077) for file in tmp_path.glob("scheduler.sqlite*")
    } == dict.fromkeys(("scheduler.sqlite", "scheduler.sqlite-wal", "scheduler.sqlite-shm"), "0o0")
    child.end()


async def _ask_once(child: Child) -> None:
    client = child.client()
    await client.submit(asking(0))
    client.transport.close()
