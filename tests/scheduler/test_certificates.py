"""TLS, and agents that show a certificate for their node. The certificates are made here, by a CA
of the test's own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, Unavailable
from jupyter_gpushare.scheduler.http.listeners import ListenAddress, Listeners
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.server import SchedulerServer
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import POLICY


class Papers:
    """A CA with the certificates that it gave out, in files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._ca = folder, trustme.CA()
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def of(self, *names: str) -> str:
        """A certificate with its key, in one file."""
        file = self._folder / f"{'-'.join(names)}.pem"
        self._ca.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(file))
        return str(file)


@asynccontextmanager
async def secure(
    folder: Path, papers: Papers, client_ca: str
) -> AsyncIterator[tuple[SchedulerServer, str]]:
    server = SchedulerServer(folder / "state", policy=parse_policy(POLICY))
    server_file = papers.of("127.0.0.1")
    listeners = Listeners(
        server,
        ListenAddress(certfile=server_file, keyfile=server_file, client_ca=client_ca),
        folder / "state",
    )
    server.start()
    await server.decided.wait()
    try:
        yield server, listeners.url
    finally:
        server.events.close()
        server.agents.close()
        await listeners.stop()
        await server.stop()


def token(server: SchedulerServer, name: str, scope: str) -> str:
    return str(server.tokens.create(m.TokenRequest(scope=scope, name=name)).token)


async def links(client: SchedulerClient, node: str) -> str:
    """Empty when this node's agent was taken in, else why not."""
    try:
        async with client.agent_link() as link:
            await link.send(m.AgentHello(version="1", node=FakeAgent(node).node))
            async for _ in link:
                return ""
    except GpuShareError as error:
        return error.message
    return "closed"


def test_https_and_only_who_trusts_the_certificate(tmp_path: Path):
    papers = Papers(tmp_path / "papers")

    async def story():
        async with secure(tmp_path, papers, "") as (server, url):
            assert url.startswith("https://")
            alice = token(server, "alice", "person")
            trusting = SchedulerClient(HttpTransport(url, alice, ca_file=papers.ca))
            assert (await trusting.whoami()).user == "alice"
            frames = trusting.changes()
            assert isinstance(await anext(frames), m.SchedulerState)
            await frames.aclose()
            other_ca = Papers(tmp_path / "others").ca
            for ca_file in (None, other_ca):
                with pytest.raises(Unavailable, match="certificate verify failed"):
                    await SchedulerClient(HttpTransport(url, alice, ca_file=ca_file)).whoami()
            with pytest.raises(Unavailable):
                await SchedulerClient(HttpTransport(url.replace("https", "http"), alice)).whoami()
            agent = SchedulerClient(
                HttpTransport(url, token(server, "n0", "agent"), ca_file=papers.ca)
            )
            assert await links(agent, "n0") == ""  # none of them is asked for a certificate

    asyncio.run(story())


def test_an_agent_speaks_for_the_node_in_its_certificate(tmp_path: Path):
    papers = Papers(tmp_path / "papers")
    of_others = Papers(tmp_path / "others").of("n0")

    async def story():
        async with secure(tmp_path, papers, papers.ca) as (server, url):
            tokens = {
                "n0": token(server, "n0", "agent"),
                "all": token(server, "*", "agent"),
                "alice": token(server, "alice", "person"),
            }

            def client(who: str, cert: str | None) -> SchedulerClient:
                return SchedulerClient(
                    HttpTransport(
                        url, tokens[who], ca_file=papers.ca, cert_file=cert, key_file=cert
                    )
                )

            n0, several = papers.of("n0"), papers.of("n1", "n2")
            for who, cert, node, refused in (
                ("n0", n0, "n0", ""),
                ("all", several, "n2", ""),
                ("all", n0, "n1", "the certificate is for n0, not for node 'n1'"),
                ("n0", several, "n1", "is not valid for node"),
                ("n0", None, "n0", "client certificate that names the node"),
                ("alice", n0, "n0", "may not do this"),
            ):
                said = await links(client(who, cert), node)
                assert said == refused if not refused else refused in said, (who, cert, node, said)
            with pytest.raises((Unavailable, NotAllowed)):
                await client("n0", of_others).whoami()
            assert set(server.service.unit_of_work.cluster.nodes) == {"n0", "n2"}
            assert (
                await client("alice", None).whoami()
            ).user == "alice"  # people have none, and need none

    asyncio.run(story())


def test_certificates_of_agents_need_a_certificate_of_ours(tmp_path: Path):
    papers = Papers(tmp_path / "papers")

    async def story():
        server = SchedulerServer(tmp_path / "state", policy=parse_policy(POLICY))
        with pytest.raises(InvalidInput) as refused:
            Listeners(server, ListenAddress(client_ca=papers.ca), tmp_path / "state")
        assert refused.value.field == "tls-client-ca"
        (tmp_path / "bad.pem").write_text("no certificate")
        for address in (
            ListenAddress(certfile=str(tmp_path / "bad.pem")),
            ListenAddress(certfile=papers.of("x"), client_ca=str(tmp_path / "bad.pem")),
        ):
            with pytest.raises((Unavailable, ssl.SSLError)):
                Listeners(server, address, tmp_path / "state")
        await server.stop()

    asyncio.run(story())
