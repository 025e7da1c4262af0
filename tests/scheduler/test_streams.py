"""The stream of changes: everybody gets what they may see, in order, and misses nothing whatever
breaks.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import ConnectionLost, SchedulerClient
from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.scheduler.api.event_stream import EventStream
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.http import websockets
from tests.example_counts import examples
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import asking, open_server

pytestmark = pytest.mark.usefixtures("on_both")

ALICE, BOB = Identity("alice"), Identity("bob")


class Village:
    """A source of changes whose state is the list of everything that happened. Who has a project
    sees it.
    """

    def __init__(self, hub: EventStream, revision: int = 100) -> None:
        self.hub, self.revision = hub, revision
        self.happened: list[str] = []
        hub.connect(self)

    def happen(self, what: str, user: str = "alice", *, shares_revision: bool = False) -> None:
        self.revision += 0 if shares_revision else 1
        self.happened.append(what)
        event = m.Event(time="2026-11-21T10:00:00+00:00", kind="granted", message=what)
        self.hub.publish(
            m.WorkloadEvent(revision=self.revision, id=what, kernel_id=None, event=event),
            f"{user}'s",
            user,
        )

    def status(self, identity: Identity) -> m.ServiceStatus:
        return m.ServiceStatus(
            version=",".join(self.happened), revision=self.revision, user=identity.user
        )

    def scheduler_state(self, identity: Identity) -> m.SchedulerState:
        return m.SchedulerState(revision=self.revision, status=self.status(identity), workloads=[])

    rules = None

    def sees_names(self, identity: Identity, user: str | None) -> bool:
        return identity.user == user

    def may_see(self, identity: Identity, project: str | None, user: str | None) -> bool:
        return user is None or user == identity.user


async def take(
    hub: EventStream, identity: Identity, since: int | None, count: int
) -> list[m.SchedulerFrame]:
    frames = []
    async with asyncio.timeout(60), aclosing(hub.subscribe(identity, since)) as stream:
        while len(frames) < count:
            frames.append(m.decode(m.SchedulerFrame, await anext(stream)))
    return frames


def test_first_the_state_then_changes():
    async def story():
        village = Village(EventStream())
        village.happen("before")
        async with aclosing(village.hub.subscribe(ALICE)) as stream:
            state = m.decode(m.SchedulerFrame, await anext(stream))
            village.happen("after")
            change = m.decode(m.SchedulerFrame, await anext(stream))
        assert isinstance(state, m.SchedulerState)
        assert state.status.version == "before"
        assert (change.id, change.revision) == ("after", state.revision + 1)
        assert village.hub.listeners == 0

    asyncio.run(story())


def test_resuming_gives_what_came_after_and_repeats_what_shares_the_revision():
    async def story():
        village = Village(EventStream())
        for name in "abc":
            village.happen(name)
        village.happen("d", shares_revision=True)
        assert [f.id for f in await take(village.hub, ALICE, 102, 3)] == ["b", "c", "d"]
        assert [f.id for f in await take(village.hub, ALICE, 103, 2)] == ["c", "d"]

    asyncio.run(story())


@pytest.mark.parametrize("since", [0, 99, 104, 10**15])
def test_a_revision_that_is_too_old_or_of_another_life_gives_the_state(since):
    async def story():
        village = Village(EventStream(remembered=3))
        for name in "abc":
            village.happen(name)
        (first,) = await take(village.hub, ALICE, since, 1)
        assert isinstance(first, m.SchedulerState)

    asyncio.run(story())


def test_a_ring_that_was_full_does_not_pretend_to_remember():
    async def story():
        village = Village(EventStream(remembered=3))
        for name in "abcdef":
            village.happen(name)
        assert isinstance((await take(village.hub, ALICE, 103, 1))[0], m.SchedulerState)
        assert [f.id for f in await take(village.hub, ALICE, 104, 3)] == ["d", "e", "f"]

    asyncio.run(story())


def test_nobody_hears_of_others_and_a_status_says_who_one_is():
    async def story():
        village = Village(EventStream())
        village.happen("a", "alice")
        village.happen("b", "bob")
        village.revision += 1
        village.hub.publish(
            m.ServiceChanged(revision=village.revision, status=village.status(Identity.nobody())),
            None,
            None,
        )
        for who, own in ((ALICE, "a"), (BOB, "b")):
            event, status = await take(village.hub, who, 100, 2)
            assert (event.id, status.status.user) == (own, who.user)

    asyncio.run(story())


def test_who_does_not_read_is_cut_off_and_the_others_are_not():
    async def story():
        village = Village(EventStream(backlog=3))
        async with (
            aclosing(village.hub.subscribe(ALICE)) as slow,
            aclosing(village.hub.subscribe(ALICE)) as quick,
        ):
            await anext(slow), await anext(quick)
            for name in "abcde":
                village.happen(name)
                assert m.decode(m.SchedulerFrame, await anext(quick)).id == name
            with pytest.raises(StopAsyncIteration):
                await anext(slow)
            assert village.hub.listeners == 1

    asyncio.run(story())


class FlakyTransport:
    """Breaks every connection after the number of frames that it was given for it; then holds."""

    def __init__(self, hub: EventStream, breaks: list[int]) -> None:
        self.hub, self.breaks = hub, breaks

    @asynccontextmanager
    async def connect(self, path, query):
        since = int(query["since"]) if "since" in query else None
        left = self.breaks.pop(0) if self.breaks else None
        async with aclosing(self.hub.subscribe(ALICE, since)) as frames:
            yield self._until_it_breaks(frames, left)

    async def _until_it_breaks(self, frames, left):
        while left is None or left > 0:
            yield await anext(frames)
            left = None if left is None else left - 1
        raise Unavailable("somebody pulled the plug")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.booleans(), max_size=30),
    st.lists(st.integers(0, 6), max_size=6),
    st.sampled_from([4, 1000]),
)
def test_whatever_breaks_nothing_is_missed(changes, breaks, remembered):
    """Every change reaches the listener, as a frame or in a state, in the order in which it
    happened.
    """

    async def story():
        village = Village(EventStream(remembered=remembered))
        seen: list[str] = []
        client = SchedulerClient(FlakyTransport(village.hub, list(breaks)))
        happening = iter(enumerate(changes))
        async with asyncio.timeout(60), aclosing(client.changes()) as frames:
            while seen != village.happened or (step := next(happening, None)) is not None:
                if seen == village.happened:
                    village.happen(f"c{step[0]}", shares_revision=step[1] and step[0] > 0)
                match await anext(frames):
                    case ConnectionLost():
                        continue
                    case m.SchedulerState(status=status):
                        seen = [name for name in status.version.split(",") if name]
                    case m.WorkloadEvent(id=name) if name not in seen:
                        seen.append(name)
        assert seen == [f"c{i}" for i in range(len(changes))]

    import jupyter_gpushare.client as client_module

    pause, client_module.FIRST_PAUSE_S = client_module.FIRST_PAUSE_S, 0.0
    try:
        asyncio.run(story())
    finally:
        client_module.FIRST_PAUSE_S = pause


def test_over_http_a_broken_link_is_made_anew_and_goes_on_where_it_broke(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            alice = running.of("alice")
            async with asyncio.timeout(60), aclosing(alice.changes()) as frames:
                assert isinstance(await anext(frames), m.SchedulerState)
                assert alice.reachable
                running.server.events.close()  # every listener is sent away
                await running.admin.submit(asking("a", project="vision"))
                kinds = []
                while "WorkloadChanged" not in kinds:
                    kinds.append(type(await anext(frames)).__name__)
                assert "ConnectionLost" in kinds
                assert "SchedulerState" not in kinds

    asyncio.run(story())


def test_over_http_one_hears_of_a_grant(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            alice, bob = running.of("alice"), running.of("bob")
            async with (
                asyncio.timeout(60),
                aclosing(alice.changes()) as hers,
                aclosing(bob.changes()) as his,
            ):
                await anext(hers), await anext(his)
                await alice.submit(asking("a"))
                async for frame in hers:
                    if (
                        isinstance(frame, m.WorkloadChanged)
                        and frame.workload.pods[0].report is not None
                    ):
                        break
                assert frame.workload.pods[0].lease.request_mib == 40 * 1024
                await bob.submit(asking("b"))
                first = await anext(his)
                while isinstance(first, m.ServiceChanged):
                    first = await anext(his)
                assert "a" not in (
                    first.id if isinstance(first, m.WorkloadEvent) else first.workload.id
                )

    asyncio.run(story())


def test_over_http_who_does_not_read_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A listener that does not read: its socket fills, and the service disconnects it; others are
    served meanwhile.
    """
    monkeypatch.setattr(websockets, "SLOW_WRITE_S", 0.2)

    async def story():
        async with open_server(tmp_path) as running:
            with socket.socket() as sleeper:
                sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sleeper.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sleeper, ("127.0.0.1", int(running.url.rsplit(":", 1)[1])))
                upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                upgrade += "Sec-WebSocket-Version: 13\r\n"
                upgrade += "Sec-WebSocket-Key: eA==\r\n"
                who = f"Host: x\r\nAuthorization: Bearer {running.admin_token}\r\n"
                await loop.sock_sendall(
                    sleeper, f"GET /api/v1/stream HTTP/1.1\r\n{who}{upgrade}\r\n".encode()
                )
                assert b" 101 " in await loop.sock_recv(sleeper, 100)
                event = m.Event(time=m.stamp(0), kind="granted", message="x" * 500_000)
                async with asyncio.timeout(60):
                    while not running.server.events.listeners:
                        await asyncio.sleep(0.01)
                    for _ in range(20):
                        running.server.events.publish(
                            m.WorkloadEvent(revision=1, id="w", kernel_id=None, event=event),
                            None,
                            None,
                        )
                    while running.server.events.listeners:
                        assert (await running.admin.status()).version
                        await asyncio.sleep(0.02)

    asyncio.run(story())


def test_web_pages_open_no_websocket(tmp_path: Path):
    """A browser sends `Origin`; refused with an error body like every other."""
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }

    async def story() -> None:
        async with open_server(tmp_path) as running:
            for path in ("stream", "agent"):
                for origin in ("https://evil.example", running.url, "null"):
                    headers = {**upgrade, "Origin": origin}
                    headers["Authorization"] = f"Bearer {running.admin_token}"
                    answer = await running.raw("GET", f"/api/v1/{path}", headers=headers)
                    assert answer.code == 403, (path, origin)
                    error = json.loads(answer.body)["error"]
                    assert (error["code"], "Origin" in error["message"]) == ("not-allowed", True)

    asyncio.run(story())
