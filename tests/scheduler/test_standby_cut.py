"""The line between the leader and the database is cut, or silent: the other one leads, nothing
acknowledged is lost, nobody leads twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Cluster, Database, check_invariants
from tests.scheduler.proxy import RoughNetwork
from tests.scheduler.scheduler_forks import Child, ForkServer
from tests.scheduler.test_standby import (
    TIMEOUT_S,
    asking,
    nurseries,
    raw,
    start,
    to_both,
    until_led,
)

__all__ = ["nurseries"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def until_said(url: str, wanted: Callable[[int, str], bool], token: str = "") -> None:
    """It answers so. (Between standing by and leading nobody listens for a moment.)"""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(GpuShareError, OSError, HTTPClientError):
                if wanted(*await raw(url, token=token)):
                    return
            await asyncio.sleep(0.05)


async def until_standby(child: Child, leader: Child) -> None:
    """It says that the other one leads."""
    await until_said(
        f"{child.url}/readyz", lambda status, said: status == 503 and leader.url in said
    )


def cut(network: RoughNetwork) -> None:
    """Connections end, and no new one comes about."""
    network.is_up = False
    network.cut()


def silence(network: RoughNetwork) -> None:
    """Nothing arrives any more, without an error."""
    network.passing.clear()


def mend(network: RoughNetwork) -> None:
    network.is_up = True
    network.passing.set()


@pytest.mark.parametrize("trouble", [cut, silence])
def test_a_leader_without_its_database_is_replaced(
    nurseries: list[ForkServer],
    cluster: Cluster,
    postgresql: Database,
    tmp_path: Path,
    trouble: Callable[[RoughNetwork], None],
):
    """Clients and agents who know both addresses find the one that leads; who was cut off stands
    by, and leads again when its turn comes.
    """

    async def story() -> None:
        network = RoughNetwork(f"{cluster.folder}/.s.PGSQL.5432", 0, random.Random(1))
        async with network.open() as address:
            name = postgresql.url.partition("?")[0].rpartition("/")[2]
            line = Database(
                "postgresql",
                f"postgresql+psycopg://gpushare@{address.removeprefix('http://')}/{name}",
            )
            first = await asyncio.to_thread(
                start, nurseries[0], tmp_path / "a", line
            )  # beside this loop, which carries its line
            second = await asyncio.to_thread(start, nurseries[1], tmp_path / "b", postgresql)
            client, agent = to_both(first, second), FakeAgent()
            await client.submit(asking("before"))
            async with agent.linked(client):
                await agent.until(lambda: agent.holds)
                trouble(network)
                late = asyncio.create_task(to_both(first).submit(asking("late")))
                await until_said(f"{second.url}/readyz", lambda status, _said: status == 200)
                await to_both(second).submit(asking("after"))
            assert {view.id for view in (await to_both(second).workloads()).workloads} == {
                "before",
                "after",
            }
            mend(network)
            with pytest.raises(Unavailable):
                await late
            await until_standby(first, second)
            agent.plan = None
            client = to_both(first, second)
            await until_led(client)
            async with agent.linked(client):
                await agent.until(lambda: agent.plan is not None)
                assert {lease.workload for lease in agent.plan.leases} >= {"before"}
            await asyncio.to_thread(second.kill)
            both = to_both(first, second)
            await until_led(both)
            assert {view.id for view in (await both.workloads()).workloads} == {"before", "after"}
            await asyncio.to_thread(first.kill)

    asyncio.run(story())
    check_invariants(postgresql.url)


def test_who_is_cut_off_says_so_to_those_who_ask(
    nurseries: list[ForkServer], cluster: Cluster, postgresql: Database, tmp_path: Path
):
    """While its line is cut: it answers as a standby does, so clients with both
    addresses go to the other one.
    """

    async def story() -> None:
        network = RoughNetwork(f"{cluster.folder}/.s.PGSQL.5432", 0, random.Random(1))
        async with network.open() as address:
            name = postgresql.url.partition("?")[0].rpartition("/")[2]
            line = Database(
                "postgresql",
                f"postgresql+psycopg://gpushare@{address.removeprefix('http://')}/{name}",
            )
            first = await asyncio.to_thread(start, nurseries[0], tmp_path / "a", line)
            second = await asyncio.to_thread(start, nurseries[1], tmp_path / "b", postgresql)
            client = to_both(first, second)
            await client.submit(asking("before"))
            cut(network)
            await until_led(to_both(second))
            await until_said(
                f"{first.url}/api/v1/status", lambda _status, said: '"standby"' in said, "t" * 40
            )
            view: m.WorkloadView = await client.submit(asking("after"))
            assert view.id == "after"
            assert {one.id for one in (await client.workloads()).workloads} == {"before", "after"}
            await asyncio.to_thread(first.kill)
            await asyncio.to_thread(second.kill)

    asyncio.run(story())
