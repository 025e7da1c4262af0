"""Two schedulers on one PostgreSQL: one leads, the other waits and takes over; who was deposed
commits nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import sqlalchemy as sql
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import ConnectionLost, SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.failover import to_schedulers
from jupyter_gpushare.scheduler.http.listeners import ListenAddress
from jupyter_gpushare.scheduler.http.standby import StandbyServer
from jupyter_gpushare.scheduler.store.leadership import Leadership, LeadershipLost
from jupyter_gpushare.scheduler.store.store import Store, StoreUnavailable
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.running_server import open_server
from tests.scheduler.scheduler_forks import Child, ForkServer

TIMEOUT_S = 90


@pytest.fixture
def nurseries() -> Iterator[list[ForkServer]]:
    """One for each of two schedulers."""
    made = [ForkServer(), ForkServer()]
    yield made
    for fork_server in made:
        fork_server.close()


def asking(id_: str, gpu: float = 0.1) -> m.WorkloadRequest:
    return m.WorkloadRequest(id=id_, pods=[m.PodRequest(name="kernel", gpu=gpu)])


async def raw(url: str, verb: str = "GET", token: str = "") -> tuple[int, str]:
    """What somebody gets who does not use our client."""
    http = SimpleAsyncHTTPClient(force_instance=True)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = HTTPRequest(
            url, method=verb, headers=headers, body=b"{}" if verb == "POST" else None
        )
        response = await http.fetch(request, raise_error=False)
        return response.code, response.body.decode()
    finally:
        http.close()


# -- the claim itself


def test_one_leads_and_the_next_one_after_it(postgresql: Database):
    Store(postgresql.url).close()
    first, second = Leadership(postgresql.url, "first"), Leadership(postgresql.url, "second")
    assert first.try_to_lead("http://first")
    assert not second.try_to_lead("http://second")
    assert second.leader == "first at http://first"
    first.renew()
    first.resign()
    assert second.try_to_lead("http://second")
    assert second.leader == "second at http://second"
    first.close()
    second.close()


def test_the_deposed_commit_nothing_any_more(postgresql: Database):
    """Also when its own lock is still there: the epoch decides, in the transaction."""
    store = Store(postgresql.url)
    first, second = (
        Leadership(postgresql.url, "first", silent_s=0.5),
        Leadership(postgresql.url, "second", silent_s=0),
    )
    told: list[str] = []
    store.fence, store.on_stopped = first.check, told.append
    assert first.try_to_lead("http://first")
    with store.transaction() as write:
        write.revision(1)
    while not second.try_to_lead(
        "http://second"
    ):  # the first one hangs, as far as the second can see
        pass
    with pytest.raises(LeadershipLost), store.transaction() as write:
        write.revision(2)
    assert told == ["another scheduler leads now"]
    with pytest.raises(StoreUnavailable), store.transaction() as write:
        write.revision(3)
    assert store.load().revision == 1
    with pytest.raises(LeadershipLost):
        first.renew()
    store.close()
    first.close()
    second.close()


def test_a_commit_that_looked_before_the_change_of_leaders_is_seen_by_the_next_leader(
    postgresql: Database,
):
    """Nobody takes over between the look at the epoch and the commit: what is committed is in what
    the next leader reads.
    """
    store = Store(postgresql.url)
    first, second = (
        Leadership(postgresql.url, "first", silent_s=0.5),
        Leadership(postgresql.url, "second", silent_s=0),
    )
    assert first.try_to_lead("http://first")

    async def story() -> None:
        with store.transaction() as write:
            write.revision(7)
            first.check(write.connection)
            first._disconnect()  # the lock is free: only the row is in the way
            taking = asyncio.create_task(asyncio.to_thread(second.try_to_lead, "http://second"))
            waiting = sql.text(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            with store.engine.connect() as other:
                while other.execute(waiting).scalar() == 0:
                    other.rollback()  # a transaction sees one picture of the activity
                    await asyncio.sleep(0.01)
            assert not taking.done()
        assert await taking

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
    assert store.load().revision == 7
    store.close()
    first.close()
    second.close()


def write_and_lose_the_connection(store: Store, other: Store, *, write_again: bool = False) -> None:
    """In the middle of a transaction; without another write it is the commit that finds out."""
    with store.transaction() as write:
        write.revision(1)
        backend = write.connection.execute(sql.text("SELECT pg_backend_pid()")).scalar()
        with other.engine.begin() as killing:
            killing.execute(sql.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
        if write_again:
            write.revision(2)


def test_after_a_commit_whose_answer_is_lost_nothing_is_committed_before_everything_is_read_again(
    postgresql: Database,
):
    """It may have happened or not; who decided it must not go on from what is in its memory."""
    store, other = Store(postgresql.url), Store(postgresql.url)
    told: list[str] = []
    store.on_stopped = told.append
    with pytest.raises(StoreUnavailable):
        write_and_lose_the_connection(store, other)
    assert len(told) == 1
    with pytest.raises(StoreUnavailable, match="not known"), store.transaction() as write:
        write.revision(2)
    assert len(told) == 1
    store.close()
    other.close()


def test_a_statement_that_fails_leaves_no_doubt(postgresql: Database):
    """Nothing was committed, so the next one may try."""
    store, other = Store(postgresql.url), Store(postgresql.url)
    told: list[str] = []
    store.on_stopped = told.append
    with pytest.raises(StoreUnavailable):
        write_and_lose_the_connection(store, other, write_again=True)
    assert told == []
    with store.transaction() as write:
        write.revision(2)
    assert store.load().revision == 2
    store.close()
    other.close()


# -- whole services


def start(fork_server: ForkServer, folder: Path, database: Database, **more: object) -> Child:
    folder.mkdir(exist_ok=True)
    token = folder / "admin.token"
    token.write_text("t" * 40 + "\n")  # the same administrator on both
    token.chmod(0o600)
    return fork_server.start(folder, db_url=database.url, leader_silent_s=1.5, **more)


def to_both(*children: Child) -> SchedulerClient:
    urls = ",".join(child.url for child in children)
    return SchedulerClient(
        to_schedulers(urls, token_in(children[0].state_dir / "admin.token"), call_s=15)
    )


async def until_led(client: SchedulerClient) -> m.ServiceStatus:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(Unavailable):
                return await client.status()
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_a_standby_says_so_and_takes_over_with_everything(
    nurseries: list[ForkServer], postgresql: Database, tmp_path: Path
):
    async def story() -> None:
        leader = start(nurseries[0], tmp_path / "a", postgresql)
        standby = start(nurseries[1], tmp_path / "b", postgresql)
        assert (await raw(f"{standby.url}/healthz")) == (200, "ok\n")
        status, said = await raw(f"{standby.url}/readyz")
        assert (status, json.loads(said)["error"]["code"]) == (503, "standby")
        status, said = await raw(f"{standby.url}/api/v1/workloads", "POST", "t" * 40)
        assert status == 503
        assert leader.url in json.loads(said)["error"]["message"]
        assert (await raw(f"{standby.url}/api/v1/workloads", "POST"))[0] == 401
        client, agent = to_both(standby, leader), FakeAgent()
        async with agent.linked(to_both(leader)):
            assert (await client.submit(asking("a"))).id == "a"
            await agent.until(lambda: agent.holds)
            leader.kill()
        await until_led(client)
        assert [view.id for view in (await client.workloads()).workloads] == ["a"]
        agent.plan = None
        async with agent.linked(client):
            await agent.until(lambda: agent.plan is not None)
            assert [lease.id for lease in agent.plan.leases] == list(agent.holds)
            assert (await client.submit(asking("b"))).id == "b"
        client.transport.close()
        assert standby.end() == 0

    asyncio.run(story())
    check_invariants(postgresql.url)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_leader_that_hangs_is_replaced_and_commits_nothing_when_it_wakes(
    nurseries: list[ForkServer], postgresql: Database, tmp_path: Path
):
    async def story() -> None:
        leader = start(nurseries[0], tmp_path / "a", postgresql)
        standby = start(nurseries[1], tmp_path / "b", postgresql)
        client = to_both(standby)
        await to_both(leader).submit(asking("before"))
        os.kill(leader.pid, signal.SIGSTOP)
        late = asyncio.create_task(
            to_both(leader).submit(asking("late"))
        )  # it waits in the socket of the one that hangs
        await until_led(client)
        await client.submit(asking("after"))
        os.kill(leader.pid, signal.SIGCONT)
        with pytest.raises(Unavailable):
            await late
        assert {view.id for view in (await client.workloads()).workloads} == {"before", "after"}
        async with asyncio.timeout(TIMEOUT_S):  # and it stands by, as the other did
            while True:
                with contextlib.suppress(GpuShareError, OSError, HTTPError):  # it may restart
                    status, said = await raw(f"{leader.url}/readyz")
                    if status == 503 and standby.url in said:
                        break
                await asyncio.sleep(0.05)
        standby.kill()
        both = to_both(leader, standby)
        await until_led(both)
        assert {view.id for view in (await both.workloads()).workloads} == {"before", "after"}

    asyncio.run(story())
    check_invariants(postgresql.url)


@pytest.mark.slow
def test_streams_go_on_at_the_next_leader(
    nurseries: list[ForkServer], postgresql: Database, tmp_path: Path
):
    """Listeners get the lost connection, then the state of the new leader, then its
    changes.
    """

    async def story() -> None:
        leader = start(nurseries[0], tmp_path / "a", postgresql)
        standby = start(nurseries[1], tmp_path / "b", postgresql)
        client = to_both(leader, standby)
        await client.submit(asking("before"))
        async with asyncio.timeout(TIMEOUT_S), aclosing(client.changes()) as frames:
            first = await anext(frames)
            assert isinstance(first, m.SchedulerState)
            leader.kill()
            while not isinstance(frame := await anext(frames), m.SchedulerState):
                assert isinstance(frame, ConnectionLost) or frame.revision >= first.revision
            assert [view.id for view in frame.workloads] == ["before"]
            assert frame.revision > first.revision
            await until_led(client)
            await client.submit(asking("after"))
            while not (isinstance(frame, m.WorkloadChanged) and frame.workload.id == "after"):
                frame = await anext(frames)
        client.transport.close()
        standby.kill()

    asyncio.run(story())


def test_a_dead_scheduler_and_a_standby_are_passed_over(tmp_path: Path):
    """The first cannot be reached, the second is a standby, the third leads; when nobody leads, the
    standby's answer is the answer.
    """
    asyncio.run(_pass_over(tmp_path))


async def _pass_over(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with open_server(tmp_path) as running:
        waiting = Waiting()
        standby = StandbyServer(waiting, ListenAddress(), "")
        client = SchedulerClient(
            to_schedulers(f"{dead}, {standby.url},{running.url}", running.admin_token)
        )
        assert (await client.submit(asking("a"))).id == "a"
        assert client.transport.url == running.url
        nobody = SchedulerClient(to_schedulers(f"{dead},{standby.url}", running.admin_token))
        with pytest.raises(Unavailable, match="somebody leads") as caught:
            await nobody.status()
        assert caught.value.code == "standby"
        with pytest.raises(Unavailable, match="cannot be reached"):
            await SchedulerClient(to_schedulers(f"{dead},{dead}", "x")).status()
        client.transport.close()
        nobody.transport.close()
        await standby.stop()


class Waiting:
    """A claim that is never granted."""

    leader = "somebody"

    def try_to_lead(self, address: str) -> bool:
        return False


@pytest.mark.slow
def test_an_orderly_end_hands_over(
    nurseries: list[ForkServer], postgresql: Database, tmp_path: Path
):
    leader = start(nurseries[0], tmp_path / "a", postgresql)
    standby = start(nurseries[1], tmp_path / "b", postgresql)
    assert leader.end() == 0
    assert asyncio.run(until_led(to_both(standby))).leader
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", standby.url)


class EventualLeadership(Leadership):
    """Gets its turn at the try after so many, without a database."""

    def __init__(self, tries: int) -> None:
        self.leader, self._left = "another", tries

    def try_to_lead(self, url: str) -> bool:
        del url
        self._left -= 1
        return self._left < 0


def test_a_standby_waits_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_gpushare.scheduler.http.standby.TRY_S", 0)

    async def story() -> None:
        said: list[str] = []
        standby = StandbyServer(EventualLeadership(3_000), ListenAddress(), "")
        await standby.turn(said.append)
        await standby.stop()
        assert said == [f"standing by at {standby.url}: another leads"]

    asyncio.run(story())
