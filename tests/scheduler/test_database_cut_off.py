"""The database, the network or both go away and come back: calls are refused cleanly, and nothing
acknowledged is lost or leaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, NotFound, Unavailable
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Cluster, Database, check_invariants, used_in
from tests.scheduler.proxy import RoughNetwork
from tests.scheduler.scheduler_forks import Child, ForkServer

pytestmark = pytest.mark.slow
TIMEOUT_S = 60
SECOND = 1000


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()
    # tornado complains of a WebSocket that was given up during its handshake, in whichever test it
    # is found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@dataclass
class Person:
    """Asks and gives back all the time, and remembers what was acknowledged. Whatever is refused
    must be refused cleanly.
    """

    client: SchedulerClient
    dice: random.Random
    kept: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    refusals: list[GpuShareError] = field(default_factory=list)
    answers: int = 0

    async def live(self) -> None:
        for i in range(1_000_000):
            if len(self.kept) > 6:
                await self._end(self.dice.choice(sorted(self.kept)))
            else:
                await self._ask(f"w{i}")
            await asyncio.sleep(0.005)

    async def _ask(self, id_: str) -> None:
        self.unsure.add(id_)
        request = m.WorkloadRequest(
            id=id_,
            project="vision",
            pods=[m.PodRequest(name="kernel", gpu=self.dice.choice([0.1, 0.5, 1]))],
        )
        if await self._said(self.client.submit(request)):
            self.unsure.discard(id_)
            self.kept.add(id_)

    async def _end(self, id_: str) -> None:
        self.kept.discard(id_)
        self.unsure.add(id_)
        if await self._said(self.client.end(id_)):
            self.unsure.discard(id_)
            self.ended.add(id_)

    async def _said(self, call: object) -> bool:
        try:
            await call  # type: ignore[misc]  # a call of the client
        except Unavailable as error:
            self.refusals.append(error)
            return False
        self.answers += 1
        return True

    async def until_answered(self, more: int = 5) -> None:
        """So often from now on."""
        goal = self.answers + more
        async with asyncio.timeout(TIMEOUT_S):
            while self.answers < goal:
                await asyncio.sleep(0.02)


class Node(FakeAgent):
    """Comes back whenever its link breaks, and reports what it used."""

    is_held = False

    async def live(self, client: SchedulerClient) -> None:
        while True:
            with contextlib.suppress(GpuShareError, OSError, TimeoutError):
                async with self.linked(client) as link:
                    while True:
                        await asyncio.sleep(0.05)
                        if not self.is_held:
                            self.use()
                        await self.report(link)
            await asyncio.sleep(0.05)


async def settle(person: Person, client: SchedulerClient) -> None:
    """Everything that nobody knows about is asked again: either answer is right, and afterwards it
    is over.
    """
    for id_ in sorted(person.unsure):
        with contextlib.suppress(NotFound, Conflict):
            await client.end(id_)
    there = {view.id for view in (await client.workloads()).workloads}
    assert person.kept <= there, "what was acknowledged is there"
    assert not there & person.ended, "what was given back is gone"
    assert there == person.kept, "nothing leaks"


async def agreed(node: Node, client: SchedulerClient) -> None:
    """Scheduler and node hold the same leases, and everything that was used is booked, within a
    time.
    """

    async def leases() -> set[str]:
        return {
            pod.lease.id
            for view in (await client.workloads()).workloads
            for pod in view.pods
            if pod.lease is not None
        }

    async with asyncio.timeout(TIMEOUT_S):
        while set(node.holds) != await leases():
            await asyncio.sleep(0.05)
        node.is_held = True
        while node.usage_outbox.sent or node.usage_outbox.rows:
            await asyncio.sleep(0.05)


def start(fork_server: ForkServer, folder: Path, database: Database) -> Child:
    policy = folder / "gpushare.yaml"
    policy.write_text(default_demo_policy(2))
    return fork_server.start(folder / "state", policy_file=str(policy), db_url=database.url)


@contextlib.asynccontextmanager
async def living(*lives: object):
    tasks = [asyncio.create_task(life) for life in lives]  # type: ignore[arg-type]  # coroutines
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            assert task.cancelled(), task.exception()


@pytest.mark.timeout(180)
def test_the_database_goes_away_and_comes_back(
    fork_server: ForkServer, cluster: Cluster, postgresql: Database, tmp_path: Path
):
    """As if PostgreSQL were killed under load, three times; the service is never started again."""

    async def story() -> None:
        child = start(fork_server, tmp_path, postgresql)
        client, dice = child.client(), random.Random(3)
        person, node = Person(child.client(), dice), Node()
        async with living(person.live(), node.live(child.client())):
            for _ in range(3):
                await person.until_answered(10)
                refusals = len(person.refusals)
                await asyncio.to_thread(cluster.stop, "immediate")
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        while len(person.refusals) == refusals:
                            await asyncio.sleep(0.02)
                finally:
                    await asyncio.to_thread(cluster.start)
            await person.until_answered(10)
        assert {error.status_hint for error in person.refusals} == {503}
        await settle(person, client)
        async with living(node.live(child.client())):
            await agreed(node, client)
        client.transport.close()
        assert child.end() == 0
        assert used_in(postgresql.url) == node.used > 0
        check_invariants(postgresql.url)

    asyncio.run(story())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_network_is_slow_cut_and_late(fork_server: ForkServer, tmp_path: Path, seed: int):
    """Between the scheduler and both its people and its node: pieces wait, connections overtake one
    another and end at any moment.
    """
    database = Database("sqlite", f"sqlite:///{tmp_path}/x.sqlite")

    async def story() -> None:
        child = start(fork_server, tmp_path, database)
        dice = random.Random(seed)
        network = RoughNetwork("127.0.0.1", int(child.url.rpartition(":")[2]), dice)
        async with network.open() as url:
            token = token_in(child.state_dir / "admin.token")
            person = Person(SchedulerClient(HttpTransport(url, token, call_s=5)), dice)
            node = Node()
            async with living(person.live(), node.live(SchedulerClient(HttpTransport(url, token)))):
                await person.until_answered()
                for _ in range(12):
                    network.delay_s, network.late_s = (
                        dice.choice([0, 0.01, 0.05]),
                        dice.choice([0, 0.2]),
                    )
                    await asyncio.sleep(dice.uniform(0.05, 0.3))
                    network.is_up = dice.random() < 0.7
                    network.cut()
                network.is_up, network.delay_s = True, 0.0
                await person.until_answered()
            client = child.client()
            await settle(person, client)
            async with living(node.live(client)):
                await agreed(node, client)
            client.transport.close()
        assert child.end() == 0
        assert used_in(database.url) == node.used > 0
        check_invariants(database.url)

    asyncio.run(story())
