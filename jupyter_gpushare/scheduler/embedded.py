"""Embedded mode: the scheduler and this machine's node agent inside another event loop, for one
user.

The same messages cross the same router as over HTTP; only the transport differs. The only module
that imports both scheduler and agent.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Literal

from jupyter_gpushare.addresses import SCHEDULER_LOCK
from jupyter_gpushare.client import SchedulerClient, Wire
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound, Unavailable
from jupyter_gpushare.core.model.reason import counted
from jupyter_gpushare.routes import ROUTES
from node_agent.app import Agent, AgentConfig
from node_agent.devices.base.hang_detection import run_watched
from node_agent.devices.base.protocols import Devices, DiscoveryRequest
from node_agent.discovery.inventory import find_devices

from .api.agent_sessions import AgentSession
from .api.event_stream import revision_in
from .auth.identity import Identity
from .auth.peer_credentials import UnixPeers
from .http.listeners import NOTE, ListenAddress, Listeners
from .policy.policy_file import default_demo_policy, load_policy, parse_policy
from .server import SchedulerServer, make_state_dir
from .store.locks import is_held

__all__ = [
    "EmbeddedServer",
    "InProcessTransport",
    "devices_here",
    "run_watched",
    "is_served",
    "own_socket",
    "served_at",
    "this_node",
]

log = logging.getLogger("gpushare.scheduler")


class InProcessTransport:
    """A `client.Transport` to a scheduler in this process, as this identity."""

    def __init__(self, server: SchedulerServer, identity: Identity) -> None:
        self._server, self._identity = server, identity

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """Handled synchronously."""
        answer = self._server.router.handle(self._identity, verb, path, query, body)
        return answer.status, answer.content_type, answer.body

    def connect(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[Wire]:
        """The event stream or an agent's session. Raises NotFound, NotAllowed."""
        route = next((one for one in ROUTES if one.verb == "WS" and one.path == path), None)
        if route is None:
            raise NotFound(f"there is no WebSocket at {path}")
        self._server.router.permitted(route, self._identity)
        return self._listen(query.get("since")) if route.name == "stream" else self._speak()

    @asynccontextmanager
    async def _listen(self, since: str | None) -> AsyncIterator[Wire]:
        frames = self._server.events.subscribe(self._identity, revision_in(since))
        async with aclosing(frames):
            yield _InProcessStream(frames)

    @asynccontextmanager
    async def _speak(self) -> AsyncIterator[Wire]:
        session = self._server.agents.open(self._identity)
        try:
            yield _InProcessAgentLink(session)
        finally:
            session.end("the agent stopped")


class _InProcessStream:
    """One direction only: what is sent is ignored, as over HTTP."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self._frames = frames

    async def send(self, data: bytes) -> None:
        del data

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._frames


class _InProcessAgentLink:
    def __init__(self, session: AgentSession) -> None:
        self._session = session

    async def send(self, data: bytes) -> None:
        self._session.hear(data)
        if self._session.over is not None:
            raise Unavailable(self._session.over)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for order in self._session.orders():
            yield order
        raise Unavailable(f"the scheduler ended the session: {self._session.over}")


def is_served(state_dir: Path) -> bool:
    """Whether a scheduler runs in this state directory, usually the user's other server."""
    lock = state_dir / SCHEDULER_LOCK
    return lock.exists() and is_held(lock)


def served_at(state_dir: Path) -> str | None:
    """The last URL of the scheduler of this state directory."""
    try:
        url = json.loads((state_dir / NOTE).read_bytes())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(url)


def own_socket(state_dir: Path) -> Path:
    """Socket of the scheduler in a Jupyter server for the user's other programs: the command line,
    a second server.
    """
    return state_dir / "scheduler.sock"


def this_node() -> str:
    """The name of this machine."""
    return platform.node() or "localhost"


def devices_here(
    state_dir: Path, *, simulate: str, gpu_memory: str = "80GiB", node: str | None = None
) -> Devices:
    """The GPUs of this machine, or simulated ones. Blocks while a driver initializes. Raises
    GpuShareError: there are none.
    """
    make_state_dir(state_dir)
    return find_devices(
        DiscoveryRequest(node or this_node(), state_dir, simulate=simulate, gpu_memory=gpu_memory)
    )


class EmbeddedServer:
    """Scheduler and agent of one user's Jupyter server. After `start` use `transport` or `client`;
    `stop` leaves the kernels running.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        simulate: str,
        gpu_memory: str = "80GiB",
        socket: Path | None = None,
        policy_file: Path | None = None,
        user: str,
        node: str | None = None,
        host_memory_mib: int | None = None,
        ungated_devices: Literal["share", "none"] = "share",
        devices: Devices | None = None,
    ) -> None:
        """`devices`: discovered before. Raises GpuShareError: no GPUs, an invalid policy, or
        another scheduler in this state directory.
        """
        make_state_dir(state_dir)
        self._agent_config = AgentConfig(
            node or this_node(),
            state_dir,
            socket,
            host_memory_mib=host_memory_mib,
            ungated_devices=ungated_devices,
        )
        self._devices = devices or devices_here(
            state_dir, simulate=simulate, gpu_memory=gpu_memory, node=self._agent_config.node
        )
        count = len(self._devices.reports())
        policy = (
            load_policy(policy_file)
            if policy_file
            else parse_policy(default_demo_policy(count, user), "built in")
        )
        self._server = SchedulerServer(state_dir, policy_file=policy_file, policy=policy)
        self.transport = InProcessTransport(
            self._server, Identity(user, scope="admin", source="process")
        )
        self.client = SchedulerClient(self.transport)
        self._agent: Agent | None = None
        self._listeners: Listeners | None = None

    async def start(self) -> None:
        """Starts scheduling and managing. Raises GpuShareError if another agent manages this
        machine; then nothing runs.
        """
        self._server.start()
        self._listen(self._agent_config.state_dir)
        agent = Agent(self._agent_config, self._devices, self.client.agent_link)
        try:
            await agent.start()
        except BaseException:
            await self._stop_server()
            raise
        self._agent = agent

    def _listen(self, state_dir: Path) -> None:
        """Listens on a unix socket for the user's command line. Failing to do so is only logged."""
        try:
            self._server.authenticator.peers = UnixPeers(only_owner=True)
            address = ListenAddress(port=None, socket=own_socket(state_dir), socket_mode=0o600)
            self._listeners = Listeners(self._server, address, state_dir)
            self._listeners.leave_note()
        except (GpuShareError, OSError) as error:
            log.warning("`jupyter gpushare` commands cannot find this scheduler: %s", error)

    @property
    def gpus_text(self) -> str:
        """`2 GPUs`, `2 simulated GPUs`."""
        return counted(len(self._devices.reports()), self._devices.traits.label)

    async def stop(self) -> None:
        """Stops both; leases and kernels stay. Idempotent."""
        if self._agent is not None:
            agent, self._agent = self._agent, None
            await agent.stop()
            await self._stop_server()

    async def _stop_server(self) -> None:
        self._server.events.close()  # streams end first, so that stopping does not wait for them
        if self._listeners is not None:
            await self._listeners.stop()
        await self._server.stop()
