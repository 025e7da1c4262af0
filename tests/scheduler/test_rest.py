"""The REST API over real HTTP: authentication, the format of errors, and a full disk."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import ConnectionLost, HttpTransport, SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    Unavailable,
)
from jupyter_gpushare.routes import ROUTES
from jupyter_gpushare.scheduler.api.router import LONGEST_BODY
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.embedded import InProcessTransport
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import asking, open_server

pytestmark = pytest.mark.usefixtures("on_both")


def test_without_a_token_only_the_public_routes_answer(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            for token in (None, "gpushare_wrong"):
                for route in ROUTES:
                    verb = "GET" if route.verb == "WS" else route.verb
                    answer = await running.raw(
                        verb,
                        route.path.replace("{id}", "x"),
                        b"{}" if verb == "POST" else None,
                        token,
                    )
                    assert answer.code == (200 if route.scope == "open" else 401), route.name
                    assert (
                        route.scope == "open"
                        or json.loads(answer.body)["error"]["code"] == "not-authenticated"
                    )

    asyncio.run(story())


def test_unauthenticated_callers_do_not_learn_which_paths_exist(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            for verb, path in (
                ("GET", "/api/v1/nothing"),
                ("GET", "/"),
                ("PATCH", "/api/v1/workloads"),
                ("GET", "/api/v1/workloads/x/y"),
            ):
                assert (await running.raw(verb, path)).code == 401, path
            assert (await running.raw("POST", "/healthz", b"")).code == 405

    asyncio.run(story())


def test_scopes_open_no_more_than_they_say(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            person, agent = running.of("alice"), running.of("n0", "agent")
            for client, call in (
                (person, "snapshot"),
                (person, "tokens"),
                (agent, "status"),
                (agent, "queues"),
            ):
                with pytest.raises(NotAllowed):
                    await getattr(client, call)()
            with pytest.raises(NotAllowed):
                async with person.agent_link():
                    pass
            assert (await person.status()).user == "alice"
            assert (await running.admin.snapshot())["projects"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "field"),
    [
        ("GET", "/api/v1/nothing", None, 404, None),
        ("GET", "/", None, 404, None),
        ("PUT", "/api/v1/queues", b"", 405, None),
        ("DELETE", "/api/v1/workloads", None, 405, None),
        ("GET", "/api/v1/workloads/nobody", None, 404, "id"),
        ("DELETE", "/api/v1/workloads/nobody", None, 404, "id"),
        ("DELETE", "/api/v1/tokens/nobody", None, 404, "id"),
        ("POST", "/api/v1/workloads", b"", 400, None),
        ("POST", "/api/v1/workloads", b"{", 400, None),
        ("POST", "/api/v1/workloads", b"\xff\xfe", 400, None),
        ("POST", "/api/v1/workloads", b'{"id": "\xff", "pods": [{"gpu": 1}]}', 400, None),
        ("POST", "/api/v1/workloads", b"[" * 100_000, 400, None),
        ("POST", "/api/v1/workloads", b'{"pods":' * 50_000, 400, "pods"),
        ("POST", "/api/v1/workloads", b'{"pods": []}', 400, "id"),
        (
            "POST",
            "/api/v1/workloads",
            b'{"id": "a", "pods": [{"gpu": 1, "colour": 1}]}',
            400,
            "pods[0].colour",
        ),
        ("POST", "/api/v1/workloads", b'{"id": "a", "pods": [{"gpu": []}]}', 400, "pods[0].gpu"),
        (
            "POST",
            "/api/v1/workloads",
            b'{"id": "a", "project": "none", "pods": [{"gpu": 1}]}',
            400,
            "project",
        ),
        ("POST", "/api/v1/tokens", b'{"scope": "king", "name": "x"}', 400, "scope"),
        ("POST", "/api/v1/tokens", b'{"scope": "person", "name": " "}', 400, "name"),
        (
            "POST",
            "/api/v1/tokens",
            b'{"scope": "person", "name": "x", "expires": "soon"}',
            400,
            "expires",
        ),
        ("GET", "/api/v1/queues?format=xml", None, 400, "format"),
        ("GET", "/api/v1/queues?format=csv&columns=queue,colour", None, 400, "columns"),
        ("GET", "/api/v1/queues?format=%ff", None, 400, None),
        ("GET", "/api/v1/stream?since=yesterday", None, 400, None),
        ("GET", "/api/v1/usage?since=yesterday", None, 400, "since"),
        ("GET", "/api/v1/audit?until=soon", None, 400, "until"),
        ("POST", "/api/v1/workloads", b" " * (LONGEST_BODY + 1), 413, None),
    ],
)
def test_every_error_has_one_body(tmp_path: Path, verb, path, body, status, field):
    async def story():
        async with open_server(tmp_path) as running:
            answer = await running.raw(verb, path, body, running.admin_token)
            error = json.loads(answer.body)["error"]
            assert answer.code == status
            assert error["code"]
            assert error["message"]
            assert error.get("field") == field
            assert status != 405 or answer.headers["Allow"]

    asyncio.run(story())


def test_an_endless_body_is_refused_before_it_is_in_memory(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(running.url.rsplit(":", 1)[1])
            )
            head = "POST /api/v1/workloads HTTP/1.1\r\nHost: x\r\n"
            head += f"Authorization: Bearer {running.admin_token}\r\n"
            writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for _ in range(8):
                writer.write(
                    f"{LONGEST_BODY // 4:x}\r\n".encode() + b" " * (LONGEST_BODY // 4) + b"\r\n"
                )
            assert b" 413 " in await reader.readline()
            writer.close()

    asyncio.run(story())


def test_both_carriers_say_the_same(tmp_path: Path):
    calls = [
        ("GET", "/api/v1/status"),
        ("GET", "/api/v1/queues"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/pools"),
        ("GET", "/api/v1/projects"),
        ("GET", "/api/v1/workloads"),
        ("GET", "/api/v1/workloads/a"),
        ("GET", "/api/v1/none"),
        ("PUT", "/api/v1/queues"),
        ("GET", "/api/v1/tokens"),
        ("DELETE", "/api/v1/workloads/none"),
        ("GET", "/api/v1/openapi.json"),
    ]

    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            await running.admin.submit(asking("a", project="vision"))
            await running.admin.submit(asking("b", 2, project="language"))
            who = await running.admin.status()
            inside = InProcessTransport(running.server, Identity(who.user, scope="admin"))

            async def over_http(verb: str, path: str) -> tuple[int, bytes]:
                answer = await running.raw(verb, path, None, running.admin_token)
                return answer.code, answer.body

            for verb, path in calls:
                before, within, after = None, None, ()
                while (
                    before != after
                    # what an agent says, or a cycle decides, between two questions is in one answer
                    # only
                ):
                    before, within = (
                        await over_http(verb, path),
                        (await inside.call(verb, path, {}, None))[::2],
                    )
                    after = await over_http(verb, path)
                assert before == within, path

    asyncio.run(story())


def test_asking_again_is_no_second_request(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            alice = running.of("alice")
            first = await alice.submit(asking("a"))
            assert (await alice.submit(asking("a"))).id == first.id
            with pytest.raises(Conflict) as taken:
                await alice.submit(asking("a", 1))
            assert taken.value.field == "id"
            assert len((await alice.workloads()).workloads) == 1
            for _ in range(2):
                assert (await alice.end("a")).ended

    asyncio.run(story())


def test_servers_act_for_their_users(tmp_path: Path):
    """A server asks for its users; a person only for themselves; nobody sees another project's
    workloads.
    """

    async def story():
        async with open_server(
            tmp_path, groups_of=lambda user: ("night",) if user == "carol" else ()
        ) as running:
            server, alice, bob = running.of("hub", "server"), running.of("alice"), running.of("bob")
            assert (await server.submit(asking("a", user="alice"))).user == "alice"
            assert (await server.submit(asking("c", user="carol"))).project == "language"
            with pytest.raises(NotAllowed) as refused:
                await alice.submit(asking("x", user="bob"))
            assert refused.value.field == "user"
            assert [w.id for w in (await alice.workloads()).workloads] == ["a"]
            assert [w.id for w in (await bob.workloads()).workloads] == ["c"]
            with pytest.raises(NotFound):
                await bob.end("a")

    asyncio.run(story())


def test_a_revoked_token_opens_nothing_from_that_moment(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            made = await running.admin.create_token(m.TokenRequest(scope="person", name="alice"))
            alice = running.client(str(made.token))
            assert (await alice.status()).user == "alice"
            assert (await running.admin.revoke_token(made.id)).revoked
            with pytest.raises(NotAllowed) as refused:
                await alice.status()
            assert refused.value.status_hint == 401
            listed = await running.admin.tokens()
            assert {t.id: t.revoked for t in listed.tokens}[made.id]
            assert not any(isinstance(t.token, str) for t in listed.tokens)

    asyncio.run(story())


def test_a_link_ends_soon_after_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jupyter_gpushare.scheduler.http.websockets.RECHECK_S", 0.05)

    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            made = {
                name: await running.admin.create_token(m.TokenRequest(scope="person", name=name))
                for name in ("alice", "bob")
            }
            streams = {name: running.client(str(one.token)).changes() for name, one in made.items()}
            for stream in streams.values():
                assert isinstance(await anext(stream), m.SchedulerState)
            await running.admin.revoke_token(made["alice"].id)
            assert isinstance(lost := await anext(streams["alice"]), ConnectionLost)
            assert "no longer valid" in lost.message
            assert "a valid token is needed" in (await anext(streams["alice"])).message
            await asyncio.sleep(0.3)  # longer than several checks
            running.server.service.unit_of_work.status_changed()
            assert isinstance(await anext(streams["bob"]), m.ServiceChanged)
            assert (await running.admin.status()).agents == ["n0"]
            for stream in streams.values():
                await stream.aclose()

    asyncio.run(story())


def test_no_log_has_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            token = running.token("alice")
            await running.client(token).status()
            await running.raw("GET", f"/api/v1/none?token={token}", None, token)
            assert any("/api/v1/status" in record.getMessage() for record in caplog.records)
            assert token not in caplog.text
            assert running.admin_token not in caplog.text

    caplog.set_level(logging.DEBUG)
    asyncio.run(story())


def test_it_is_ready_when_it_has_decided(tmp_path: Path):
    server = SchedulerServer(tmp_path)

    def readiness() -> int:
        return server.router.handle(None, "GET", "/readyz", {}, None).status

    assert readiness() == 503
    assert server.router.handle(None, "GET", "/healthz", {}, None).status == 200
    server.loop.turn(is_tick=False)
    assert readiness() == 200
    asyncio.run(server.stop())


def test_metrics_can_be_protected(tmp_path: Path):
    server = SchedulerServer(tmp_path, open_metrics=False)
    assert server.router.handle(None, "GET", "/metrics", {}, None).status == 401
    assert server.router.handle(Identity("prometheus"), "GET", "/metrics", {}, None).status == 200
    asyncio.run(server.stop())


def test_what_cannot_be_reached_is_unavailable(tmp_path: Path):
    async def story():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            client = SchedulerClient(HttpTransport(url, "x"))
            with pytest.raises(Unavailable, match="cannot be reached"):
                await client.status()
            with pytest.raises(Unavailable, match="cannot be reached"):
                async with client.agent_link():
                    pass
            taken.listen()  # accepts, and never answers
            with pytest.raises(Unavailable):
                await SchedulerClient(HttpTransport(url, "x", call_s=0.1)).status()
        with pytest.raises(Unavailable) as unreadable:
            await SchedulerClient(HttpTransport(url, token_in(tmp_path / "none"))).status()
        assert unreadable.value.field == str(tmp_path / "none")
        with pytest.raises(InvalidInput):
            HttpTransport("localhost:8470", "x")

    asyncio.run(story())


@contextmanager
def full_disk(file: Path):
    """No file of this process may grow beyond this one's size: what SQLite meets is a real error of
    a real write.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "on_both", ["sqlite"], indirect=True
)  # whose file we can keep from growing; the other one: test_service
def test_a_full_disk_refuses_what_it_cannot_keep_and_loses_nothing(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running, FakeAgent().linked(running.admin):
            alice = running.of("alice")
            await alice.submit(asking("kept"))
            refused, said = [], set()
            with full_disk(tmp_path / "state/scheduler.sqlite-wal"):
                for i in range(
                    20
                ):  # a few may fit: the log is written over from its start now and then
                    try:
                        await alice.submit(asking(f"w{i}", 0.1))
                    except Unavailable as error:
                        refused.append(f"w{i}")
                        said.add(error.code)
                assert said == {"store-unavailable"}
                assert (await alice.workload("kept")).state in ("running", "pending")
            listed = {w.id for w in (await alice.workloads()).workloads}
            assert listed == {"kept", *(f"w{i}" for i in range(20))} - set(refused)
            assert (await alice.submit(asking(refused[0], 0.1))).id == refused[0]
        async with open_server(tmp_path) as running:
            assert {w.id for w in (await running.admin.workloads()).workloads} == listed | {
                refused[0]
            }

    asyncio.run(story())
