"""kill -9 of a real scheduler at every named point between a request and its announcement, one
after the other, on both databases.

Which points there are is found out by a life that dies at none: a way through the scheduler with a
reclaim, usage, ends and a process that is gone. Then there is a life for each name that it passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Database, check_invariants, tables, used_in
from tests.scheduler.kill_invariants import Told, asking, check
from tests.scheduler.scheduler_forks import Child, DidNotStart, ForkServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TIMEOUT_S = 60
MOST_LIVES = 5
"""Some points depend on the pace, such as the status after a cycle that took long: not every life
passes them.
"""
EVERY_POINT = "GPUSHARE_KILLS" in os.environ
"""Also on PostgreSQL. Without it only those that have to do with the database are tried there: what
is said to whom is the same code.
"""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@dataclass
class Listener:
    """Somebody who hears every announcement: of which workloads, and of which leases."""

    workloads: set[str] = field(default_factory=set)
    leases: set[str] = field(default_factory=set)

    async def listen(self, client: SchedulerClient) -> None:
        async with aclosing(client.changes()) as frames:
            async for frame in frames:
                match frame:
                    case m.WorkloadChanged(workload=view):
                        self.workloads.add(view.id)
                        self.leases |= {pod.lease.id for pod in view.pods if pod.lease is not None}
                    case m.WorkloadEvent(id=id_) | m.WorkloadGone(id=id_):
                        self.workloads.add(id_)


class Lives:
    """Schedulers on one database, one after the other, with the same node and the same people."""

    def __init__(self, fork_server: ForkServer, database: Database, folder: Path) -> None:
        self.fork_server, self.database, self.folder = fork_server, database, folder
        self.agent, self.told, self.listener, self.count = FakeAgent(), Told(), Listener(), 0
        (folder / "gpushare.yaml").write_text(default_demo_policy(2))

    def start(self, **failpoints: str) -> Child:
        self.agent.plan = None
        policy = str(self.folder / "gpushare.yaml")
        return self.fork_server.start(
            self.folder / "state",
            policy_file=policy,
            db_url=self.database.url,
            failpoints=failpoints,
        )

    async def way(self, client: SchedulerClient) -> None:
        """Two GPUs: a has one in its share, b borrows the other, c takes it back; then all end,
        each in its way.
        """
        self.count += 1
        a, b, c = (f"{name}{self.count}" for name in "abc")
        agent, told = self.agent, self.told

        def held() -> set[str]:
            return {lease.workload for lease in agent.holds.values()}

        async with agent.linked(client) as link:
            await told.ask(client, asking(a, 1))
            await told.ask(client, asking(b, 1, "course"))
            await agent.until(lambda: held() == {a, b})
            agent.use()
            await told.ask(client, asking(c, 1, "language"))
            await agent.until(lambda: held() == {a, c})
            agent.use()
            await agent.until_taken(link, client)
            await told.end(client, a)
            await agent.until(lambda: held() == {b, c})
            await told.end(client, c)
            [lease] = [lease for lease in agent.holds.values() if lease.workload == b]
            told.kept.discard(b)
            told.unsure.add(b)
            await link.send(
                m.LeaseReleased(lease=lease.id, ended=True, message="Its process is gone.")
            )
            await agent.until(lambda: held() == set())

    async def die(self, point: str) -> None:
        """Lives until one has died at this point, and what must be true after each."""
        for _ in range(MOST_LIVES):
            has_died = await self.walked(point)
            await self.examine()
            if has_died:
                return
        raise AssertionError(f"{MOST_LIVES} lives reached the end of the way")

    async def walked(self, point: str) -> bool:
        """As much of the way as a scheduler lives for that dies at this point; whether it did."""
        try:
            child = self.start(die_at=point)
        except DidNotStart:  # it died before anybody could ask it anything
            return True
        client = child.client()
        listeners = asyncio.create_task(self.listener.listen(child.client()))
        walking = asyncio.create_task(self.way(client))
        dying = asyncio.create_task(asyncio.to_thread(self.fork_server.expect, "died"))
        await asyncio.wait({walking, dying}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        has_walked = walking.done() and walking.exception() is None
        if has_walked:  # what the scheduler does when its agent has left comes after it
            await asyncio.wait({dying}, timeout=60)
            has_walked = not dying.done()
        for task in (walking, listeners):
            task.cancel()
            with contextlib.suppress(GpuShareError, asyncio.CancelledError):
                await task
        if has_walked:
            child.kill_unseen()
        await dying
        client.transport.close()
        return not has_walked

    async def examine(self) -> None:
        """What must be true, of the database and of the scheduler that comes next; everything is
        over afterwards.
        """
        check_invariants(self.database.url)
        rows = tables(self.database.url)
        assert self.listener.workloads <= {row[0] for row in rows["workloads"]}, (
            "announced, so committed"
        )
        assert self.listener.leases <= {row[0] for row in rows["leases"]}
        child = self.start()
        await check(child, self.agent, self.told)
        client = child.client()
        for id_ in sorted(self.told.kept):
            await self.told.end(client, id_)
        assert (await client.workloads()).workloads == []
        self.told.kept.clear()
        client.transport.close()
        child.kill()
        check_invariants(self.database.url)
        assert used_in(self.database.url) == self.agent.used
        assert all(row[4] is not None for row in tables(self.database.url)["leases"]), (
            "a lease has leaked"
        )
        self.agent.holds.clear()

    async def points(self) -> list[str]:
        """The names that a life passes that dies at none, each once, in order. Of a command's own
        points those after something: nothing happens between them and the next one before
        something.
        """
        passed = self.folder / "passed.txt"
        child = self.start(points=str(passed))
        await self.way(client := child.client())
        client.transport.close()
        child.kill()
        await self.examine()
        return [
            name
            for name in dict.fromkeys(passed.read_text().splitlines())
            if ": before " not in name
        ]


def test_killed_at_every_point_it_keeps_what_it_acknowledged(
    fork_server: ForkServer, database: Database, tmp_path: Path
):
    lives = Lives(fork_server, database, tmp_path)

    async def story() -> None:
        points = await lives.points()
        assert {
            "submit: after INSERT workloads",
            "run_cycle: after INSERT leases",
            "run_cycle: after INSERT audit",
        } <= set(points)
        assert {
            "before lease_wanted goes out",
            "before the answer to POST goes out",
            "after usage_taken goes out",
        } <= set(points)
        if database.kind == "postgresql" and not EVERY_POINT:
            points = [point for point in points if re.search("INSERT|UPDATE|DELETE|commit", point)]
        for point in points:
            try:
                await lives.die(point)
            except AssertionError as error:
                raise AssertionError(f"killed at {point!r}: {error}") from error

    asyncio.run(story())
