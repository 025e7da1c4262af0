"""kill -9 of a real scheduler process, at any moment between request and announcement: nothing
acknowledged is lost, nothing leaks.

`GPUSHARE_KILLS=300 pytest tests/scheduler/test_killed_scheduler.py` kills more often than there is
time for otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.client import AgentLink, SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.scheduler.policy.policy_file import default_demo_policy
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Database, check_invariants, used_in
from tests.scheduler.kill_invariants import Told, asking, check
from tests.scheduler.scheduler_forks import Child, ForkServer

pytestmark = pytest.mark.slow
RUNS = int(os.environ.get("GPUSHARE_KILLS", "30"))
"""Per kind of database; each run kills a scheduler in its work, and the one after it once what it
remembers is examined.
"""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


async def people(client: SchedulerClient, told: Told, run: int, dice: random.Random) -> None:
    """Ask and give back, as fast as answers come, until the scheduler is gone."""
    for i in range(1000):
        await told.ask(client, asking(f"w{run}-{i}", dice.choice([0.1, 0.5, 1])))
        if len(told.kept) > 4:
            await told.end(client, dice.choice(sorted(told.kept)))


async def use(agent: FakeAgent, link: AgentLink) -> None:
    """Use and report for ever."""
    while True:
        agent.use()
        await agent.report(link)
        await asyncio.sleep(0.005)


async def one_life(
    child: Child, agent: FakeAgent, told: Told, run: int, dice: random.Random
) -> None:
    client = child.client()
    talking = asyncio.create_task(people(client, told, run, dice))
    with contextlib.suppress(GpuShareError):
        async with agent.linked(client) as link:
            using = asyncio.create_task(use(agent, link))
            await asyncio.sleep(dice.uniform(0, 0.08))  # the point of the test: any moment
            child.kill()
            using.cancel()
            for task in (talking, using):
                with contextlib.suppress(GpuShareError, asyncio.CancelledError):
                    await task
    client.transport.close()


@pytest.mark.timeout(120 + 6 * RUNS)
def test_killed_at_any_moment_it_keeps_what_it_acknowledged(
    fork_server: ForkServer, database: Database, tmp_path: Path
):
    policy = tmp_path / "gpushare.yaml"
    policy.write_text(default_demo_policy(2))
    dice, told, agent = random.Random(7), Told(), FakeAgent()

    async def lives() -> None:
        for run in range(RUNS):
            await one_life(
                fork_server.start(tmp_path / "state", policy_file=str(policy), db_url=database.url),
                agent,
                told,
                run,
                dice,
            )
            check_invariants(database.url)
            agent.plan = None
            child = fork_server.start(
                tmp_path / "state", policy_file=str(policy), db_url=database.url
            )
            await check(child, agent, told)
            child.kill()
            assert used_in(database.url) == agent.used
        check_invariants(database.url)

    asyncio.run(lives())
    assert agent.used
    assert told.kept
    assert told.ended
