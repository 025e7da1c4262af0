"""A unix socket: people are their unix user, and need no token. And the scheduler inside a Jupyter
server listens on no network.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, Unavailable
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.auth.peer_credentials import UnixPeers
from jupyter_gpushare.scheduler.embedded import EmbeddedServer
from jupyter_gpushare.scheduler.http.listeners import ListenAddress, Listeners
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import asking

ME = pwd.getpwuid(os.getuid()).pw_name
OTHER = "nobody"
SOCKET_POLICY = (
    "projects: [{name: vision, members: [alice]}, {name: night, members: ['group:nogroup']}]"
)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another unix user")


@asynccontextmanager
async def on_socket(
    folder: Path, *, port: int | None = None, peers: UnixPeers | None = None
) -> AsyncIterator[Listeners]:
    server = SchedulerServer(folder / "state", policy=parse_policy(SOCKET_POLICY))
    server.authenticator.peers = peers or UnixPeers()
    listeners = Listeners(
        server, ListenAddress(port=port, socket=folder / "s.sock"), folder / "state"
    )
    server.start()
    await server.decided.wait()
    listeners.leave_note()
    try:
        yield listeners
    finally:
        server.events.close()
        server.agents.close()
        await listeners.stop()
        await server.stop()


def test_who_one_is_needs_no_token(tmp_path: Path):
    """The user who runs the service is an admin: they could read its store as well."""

    async def story():
        async with on_socket(tmp_path) as listeners:
            client = SchedulerClient(HttpTransport(listeners.url))
            who = await client.whoami()
            assert (who.user, who.admin, who.source) == (ME, True, "socket")
            async with FakeAgent().linked(client):
                assert (await client.submit(asking("a", project="vision"))).user == ME
                frames = client.changes()
                assert isinstance(await anext(frames), m.SchedulerState)
                await frames.aclose()
            assert not (tmp_path / "state/admin.token").exists()
            note = json.loads((tmp_path / "state/scheduler.json").read_text())
            assert (note["url"], note["token_file"]) == (f"unix://{tmp_path}/s.sock", "")
        assert not (tmp_path / "s.sock").exists()

    asyncio.run(story())


SAY = """
import asyncio, os, pwd, sys
from jupyter_gpushare.client import HttpTransport, SchedulerClient
other = pwd.getpwnam(sys.argv[2])
os.setgroups([]), os.setgid(other.pw_gid), os.setuid(other.pw_uid)  # before any import
print(asyncio.run(SchedulerClient(HttpTransport(sys.argv[1])).whoami()))
try:
    asyncio.run(SchedulerClient(HttpTransport(sys.argv[1])).tokens())
except Exception as error:
    print(type(error).__name__, error)
"""


@as_root
def test_another_user_is_another_person():
    """A real process of a real other user, with the groups that the operating system knows."""

    async def story(folder: Path):
        async with on_socket(folder) as listeners:
            say = [sys.executable, "-c", SAY, listeners.url, OTHER]
            done = await asyncio.to_thread(
                subprocess.run, say, capture_output=True, text=True, timeout=60
            )
            assert "user='nobody', scope='person', admin=False" in done.stdout, done
            assert "groups=['nogroup']" in done.stdout
            assert "projects=['night']" in done.stdout
            assert "NotAllowed" in done.stdout

    with tempfile.TemporaryDirectory() as folder:  # pytest's own are their owner's alone
        Path(folder).chmod(0o755)
        asyncio.run(story(Path(folder)))


def test_admins_are_listed_by_name_or_group():
    for admins, is_admin in (
        ((), False),
        ((OTHER,), True),
        (("group:nogroup",), True),
        (("group:wheel", "alice"), False),
    ):
        identity = UnixPeers(admins).identity(pwd.getpwnam(OTHER).pw_uid)
        assert isinstance(identity, Identity)
        assert (identity.user, identity.groups, identity.is_admin) == (
            OTHER,
            ("nogroup",),
            is_admin,
        )
    assert UnixPeers().identity(0).is_admin
    assert UnixPeers().identity(424242) == Identity("uid424242")
    assert UnixPeers(only_owner=True).identity(424242) is None
    assert UnixPeers(groups_of=lambda user: (f"friends of {user}",)).identity(424242).groups == (
        "friends of uid424242",
    )


def test_a_token_counts_on_a_socket_too_and_a_bad_one_is_nobody(tmp_path: Path):
    async def story():
        async with on_socket(tmp_path, port=0) as listeners:
            by_network = SchedulerClient(
                HttpTransport(listeners.url, listeners.token_file.read_text().strip())
            )
            made = await by_network.create_token(m.TokenRequest(scope="person", name="alice"))
            assert (
                await SchedulerClient(HttpTransport(listeners.socket_url, str(made.token))).whoami()
            ).user == "alice"
            for url in (listeners.url, listeners.socket_url):
                with pytest.raises(NotAllowed) as refused:
                    await SchedulerClient(HttpTransport(url, "gpushare_wrong")).whoami()
                assert refused.value.status_hint == 401
            with pytest.raises(NotAllowed):
                await SchedulerClient(HttpTransport(listeners.url)).whoami()

    asyncio.run(story())


def test_where_nothing_or_something_else_listens(tmp_path: Path):
    async def story():
        client = SchedulerClient(HttpTransport(f"unix://{tmp_path}/none"))
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.status()
        with pytest.raises(Unavailable, match="cannot be reached"):
            async with client.agent_link():
                pass
        async with on_socket(tmp_path):
            server = SchedulerServer(tmp_path / "second", policy=parse_policy(SOCKET_POLICY))
            (tmp_path / "file").write_text("mine")
            (tmp_path / "dead").touch()
            for path, words in (
                (tmp_path / "s.sock", "another service"),
                (tmp_path / "file", "not a socket"),
                (tmp_path / "no/s", "No such"),
            ):
                with pytest.raises(Unavailable, match=words):
                    Listeners(server, ListenAddress(port=None, socket=path), tmp_path / "second")
            with pytest.raises(InvalidInput, match="107"):
                Listeners(
                    server,
                    ListenAddress(port=None, socket=tmp_path / ("x" * 100)),
                    tmp_path / "second",
                )
            await server.stop()
        assert (tmp_path / "file").read_text() == "mine"

    asyncio.run(story())


def test_what_a_dead_service_left_is_replaced(tmp_path: Path):
    (tmp_path / "state").mkdir()
    code = "import socket; s = socket.socket(socket.AF_UNIX); "
    code += f"s.bind({str(tmp_path / 's.sock')!r}); s.listen()"
    subprocess.run([sys.executable, "-c", code], check=True)

    async def story():
        async with on_socket(tmp_path) as listeners:
            assert (await SchedulerClient(HttpTransport(listeners.url)).whoami()).admin

    asyncio.run(story())


def test_inside_a_jupyter_server_it_listens_on_no_network(tmp_path: Path):
    """Its socket is its owner's alone, and there is no token to lose."""

    async def story():
        before = {
            c.laddr
            for c in psutil.Process().net_connections("inet")
            if c.status == psutil.CONN_LISTEN
        }
        server = EmbeddedServer(tmp_path, simulate="1", user=ME)
        await server.start()
        try:
            now = {
                c.laddr
                for c in psutil.Process().net_connections("inet")
                if c.status == psutil.CONN_LISTEN
            }
            assert now == before
            assert (tmp_path / "scheduler.sock").stat().st_mode & 0o777 == 0o600
            assert not (tmp_path / "admin.token").exists()
            assert server._server.tokens.list().tokens == []
            who = await SchedulerClient(HttpTransport(f"unix://{tmp_path}/scheduler.sock")).whoami()
            assert (who.admin, who.source) == (True, "socket")
            assert (await server.client.whoami()).source == "process"
        finally:
            await server.stop()

    asyncio.run(story())
