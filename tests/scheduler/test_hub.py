"""A JupyterHub's people: whose token it is, what is remembered of it, what happens while the Hub is
away, and quotas in its groups.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, Unavailable
from jupyter_gpushare.scheduler.app import SchedulerApp
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.auth.jupyterhub import (
    ADMIN_SCOPE,
    HubAddress,
    JupyterHub,
    managed_by_hub,
)
from jupyter_gpushare.scheduler.http.listeners import ListenAddress, Listeners
from jupyter_gpushare.scheduler.hub_integration import integrate
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.scheduler.fake_hub import FakeHub
from tests.scheduler.running_server import POLICY, RunningServer, asking


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def story(telling):
    """Runs a coroutine function that takes an open fake Hub, with the connection to it and its
    clock.
    """

    def test():
        async def told():
            async with FakeHub().open() as fake:
                clock = Clock()
                hub = JupyterHub(
                    fake.address,
                    remember=60,
                    clock=clock,
                    groups_of=lambda user: ("local",) if user == "alice" else (),
                )
                try:
                    await telling(fake, hub, clock)
                finally:
                    await hub.stop()

        asyncio.run(told())

    test.__name__, test.__doc__ = telling.__name__, telling.__doc__
    return test


@story
async def test_whose_token_it_is(fake: FakeHub, hub: JupyterHub, clock: Clock):
    for said, expected in (
        (fake.knows("alice", "vision"), Identity("alice", ("vision", "local"), "person")),
        (fake.knows("bob", scopes=("access:services",)), Identity("bob", (), "person")),
        (fake.knows("lisa", admin=True), Identity("lisa", (), "admin")),
        (fake.knows("mo", scopes=("access:services", ADMIN_SCOPE)), Identity("mo", (), "admin")),
        (fake.knows("culler", kind="service"), Identity("service:culler", (), "person")),
        ("unknown", None),
    ):
        found = await hub.identity(said)
        assert found == expected, said
        assert found is None or found.source == "hub"


@story
async def test_a_token_that_was_not_made_for_this_service_is_refused_by_name(
    fake: FakeHub, hub: JupyterHub, clock: Clock
):
    for scopes in ((), ("access:services!service=other",), ("access:servers!server=alice/",)):
        with pytest.raises(NotAllowed, match="access:services!service=gpushare"):
            await hub.identity(fake.knows(f"alice{len(scopes)}{scopes}", scopes=scopes))


@story
async def test_the_hub_is_not_asked_each_time_and_a_revoked_token_ends(
    fake: FakeHub, hub: JupyterHub, clock: Clock
):
    token = fake.knows("alice")
    assert len({await one for one in [hub.identity(token) for _ in range(5)]}) == 1
    assert fake.asked["/user"] == 1
    del fake.users[token]
    clock.time = 59
    assert await hub.identity(token) is not None
    clock.time = 60
    assert await hub.identity(token) is None
    assert fake.asked["/user"] == 2
    fake.knows("alice")
    clock.time = 66
    assert await hub.identity(token) is not None  # what was not known is asked again soon


@story
async def test_many_calls_at_once_are_one_question(fake: FakeHub, hub: JupyterHub, clock: Clock):
    token = fake.knows("alice")
    found = await asyncio.gather(*(hub.identity(token) for _ in range(50)))
    assert {one.user for one in found if one} == {"alice"}
    assert fake.asked["/user"] == 1


@story
async def test_the_hub_is_not_kept_busy_by_made_up_tokens(
    fake: FakeHub, hub: JupyterHub, clock: Clock
):
    for i in range(1000):
        assert await hub.identity(f"made-up-{i}") is None
    with pytest.raises(Unavailable, match="too many unknown tokens"):
        await hub.identity("one-more")
    assert fake.asked["/user"] == 1000
    clock.time = 1
    assert await hub.identity(fake.knows("alice")) is not None


@story
async def test_a_hub_that_cannot_be_asked_refuses_nobody(
    fake: FakeHub, hub: JupyterHub, clock: Clock
):
    token, other = fake.knows("alice"), fake.knows("bob")
    await hub.identity(token)
    for mood in (
        (500, b""),
        (502, b"<html>"),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (302, b""),
        (429, b""),
    ):
        fake.mood = mood
        with pytest.raises(Unavailable, match="JupyterHub"):
            await hub.identity(other)
        assert await hub.identity(token) is not None  # remembered
    fake.mood = None
    assert await hub.identity(other) is not None
    for odd in ("x\ny", "ü", "x" * 5000):
        assert await hub.identity(odd) is None


def test_a_hub_that_is_gone():
    async def told():
        async with FakeHub().open() as fake:
            hub = JupyterHub(fake.address)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await hub.identity("x")
        with pytest.raises(Unavailable):
            await hub.read_groups()
        await hub.stop()

    asyncio.run(told())


@story
async def test_groups_are_read_page_by_page(fake: FakeHub, hub: JupyterHub, clock: Clock):
    for i in range(450):
        fake.group(f"g{i:03}", "alice" if i % 100 == 0 else "bob")
    changes = []
    hub.changed = lambda: changes.append(1)
    await hub.read_groups()
    await hub.read_groups()
    assert len(changes) == 1
    assert hub.groups_of("alice") == ("g000", "g100", "g200", "g300", "g400", "local")
    assert fake.asked["/groups"] == 6
    fake.mood = (403, b"")
    with pytest.raises(Unavailable, match="read:groups"):
        await hub.read_groups()
    assert len(hub.groups) == 450


def test_tokens_are_in_no_representation():
    assert "secret" not in repr(HubAddress("http://hub", "secret"))
    for url, token in (("hub:8081", "x"), ("", "x"), ("http://hub", "")):
        with pytest.raises(InvalidInput):
            HubAddress(url, token)


def test_who_was_started_by_a_hub():
    env = {
        "JUPYTERHUB_SERVICE_NAME": "gpus",
        "JUPYTERHUB_API_TOKEN": "x",
        "JUPYTERHUB_API_URL": "http://hub/api",
    }
    assert managed_by_hub(env) == HubAddress("http://hub/api", "x", "gpus")
    assert managed_by_hub({}) is None
    assert (
        managed_by_hub({**env, "JUPYTERHUB_SERVICE_NAME": ""}) is None
    )  # a single-user server's environment


def test_where_a_scheduler_listens_that_a_hub_started(monkeypatch: pytest.MonkeyPatch):
    """In a single-user server's terminal the Hub's variables speak of that server: its port is not
    ours to take.
    """
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.2:7777/services/gpus/")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/gpus/")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    alone = SchedulerApp().address()
    assert (alone.host, alone.port, alone.prefix) == ("127.0.0.1", 8470, "")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_NAME", "gpus")
    monkeypatch.setenv("JUPYTERHUB_API_URL", "http://hub/api")
    managed = SchedulerApp(socket="/run/s.sock").address()
    assert (managed.host, managed.port, managed.prefix) == ("127.0.0.2", 7777, "/services/gpus/")


# -- quotas --


@asynccontextmanager
async def server_with_hub(
    folder: Path, fake: FakeHub
) -> AsyncIterator[tuple[RunningServer, JupyterHub]]:
    server = SchedulerServer(folder / "state", policy=parse_policy(POLICY))
    hub = JupyterHub(fake.address, refresh=0.05)
    integrate(server, hub)
    listeners = Listeners(server, ListenAddress(prefix="/services/gpushare/"), folder / "state")
    server.start()
    await server.decided.wait()
    try:
        yield RunningServer(server, listeners), hub
    finally:
        server.events.close()
        server.agents.close()
        await listeners.stop()
        await server.stop()


async def until(question) -> None:
    async with asyncio.timeout(60):
        while not question():
            await asyncio.sleep(0.02)


def test_people_of_the_hub_use_the_scheduler(tmp_path: Path):
    async def told():
        async with FakeHub().open() as fake, server_with_hub(tmp_path, fake) as (running, _):
            alice, carol = (
                running.client(fake.knows("alice")),
                running.client(fake.knows("carol", "night")),
            )
            assert (await alice.submit(asking("a"))).project == "vision"
            assert (await carol.submit(asking("c", user="carol"))).project == "language"
            with pytest.raises(NotAllowed):
                await alice.submit(asking("x", user="carol"))
            who = await carol.whoami()
            assert (who.groups, who.source, who.admin) == (["night"], "hub", False)
            frames = carol.changes()
            assert [w.id for w in (await anext(frames)).workloads] == ["c"]
            await frames.aclose()
            assert (
                await running.admin.whoami()
            ).source == "token"  # tokens of ours are good beside it
            under = SchedulerClient(
                HttpTransport(f"{running.url}/services/gpushare", fake.knows("alice"))
            )
            assert (await under.whoami()).user == "alice"
            state = under.changes()
            assert [w.id for w in (await anext(state)).workloads] == ["a"]
            await state.aclose()

    asyncio.run(told())


def test_errors_when_the_hub_refuses_or_is_away(tmp_path: Path):
    async def told():
        async with FakeHub().open() as fake, server_with_hub(tmp_path, fake) as (running, _):
            outsider, other = fake.knows("outsider", scopes=()), fake.knows("other")
            answers = [("unknown", 401), (outsider, 403), (running.token("alice"), 200)]
            for token, code in answers:
                assert (await running.raw("GET", "/api/v1/status", None, token)).code == code
            fake.mood = (500, b"")
            answer = await running.raw("GET", "/api/v1/status", None, other)
            assert (answer.code, json.loads(answer.body)["error"]["code"]) == (503, "unavailable")
            assert (
                await running.raw("GET", "/api/v1/status", None, running.token("alice"))
            ).code == 200
            assert (await running.raw("GET", "/healthz")).code == 200

    asyncio.run(told())


def test_quotas_in_groups_come_into_force_and_mistakes_show_in_the_status(tmp_path: Path):
    async def told():
        async with FakeHub().open() as fake, server_with_hub(tmp_path, fake) as (running, hub):
            dora = running.client(fake.knows("dora", "physics"))
            await until(lambda: not hub.problem)
            assert (await dora.status()).projects == []
            fake.group("physics", "dora", gpushare={"department": "research", "gpu": {"quota": 1}})
            fake.group("vision", "dora", gpushare={"department": "research", "gpu": {"quota": 50}})
            fake.group("wrong", "dora", gpushare={"department": "research", "gpu": {"quota": "x"}})
            await until(
                lambda: len(running.server.service.unit_of_work.loaded.policy.projects) == 3
            )
            status = await dora.status()
            assert status.projects == ["physics"]
            assert len(status.policy_problems) == 1
            assert "group wrong: gpushare: gpu.quota" in status.policy_problems[0]
            assert (await dora.submit(asking("d"))).project == "physics"
            quota = {row.name: row.gpu_quota for row in (await dora.projects()).projects}
            assert quota == {"vision": 1.0, "language": 1.0, "physics": 1.0}
            server = running.of("box", "server")
            assert (
                await server.submit(asking("e", user="dora"))
            ).project == "physics"  # groups of who is not here themselves
            fake.mood = (500, b"")
            await until(lambda: hub.problem)
            assert "500" in (await running.admin.status()).policy_problems[0]
            assert (
                await running.admin.workload("d")
            ).project == "physics"  # what was read last is in force

    asyncio.run(told())


def test_no_log_has_a_token_of_the_hub(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def told():
        async with FakeHub().open() as fake, server_with_hub(tmp_path, fake) as (running, hub):
            token = fake.knows("alice")
            await running.client(token).status()
            fake.mood = (500, b"")
            await until(lambda: hub.problem)
            await running.raw("GET", "/api/v1/status", None, "other-secret-token")
            assert token not in caplog.text
            assert "the-services-own" not in caplog.text
            assert "other-secret-token" not in caplog.text

    caplog.set_level("DEBUG")
    asyncio.run(told())
