"""The scheduler's side of agent connections, independent of the transport: reports in, orders out.

An invalid frame is logged and ignored: a newer agent may send more than this version knows, and
would send it again after reconnecting. When the store does not answer, the session ends: the agent
reconnects with all its leases, so nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, Unavailable

from ..auth.identity import Identity
from ..service.service import SchedulerService

__all__ = ["AgentSessions", "AgentSession"]

log = logging.getLogger("gpushare.scheduler")
BACKLOG: Final = 10_000
"""Orders that may be queued for an agent that does not read; then the session ends, and the next
hello is answered with the plan.
"""


class AgentSessions:
    """All sessions, one per node: a new one ends the older."""

    def __init__(self, service: SchedulerService) -> None:
        self.service = service
        self._sessions: dict[str, AgentSession] = {}
        self.on_report: Callable[[m.FromAgent], None] = lambda _: None
        """Called with every accepted report, for counting."""

    def open(self, identity: Identity, certified: frozenset[str] | None = None) -> AgentSession:
        """A new session of the owner of this token. `certified`: the names in its certificate;
        None: no certificate is required.
        """
        return AgentSession(self, self.service.visibility.promoted(identity), certified)

    def register(self, node: str, session: AgentSession) -> None:
        older = self._sessions.get(node)
        self._sessions[node] = session
        if older is not None and older is not session:
            older.end("another agent connected for this node")

    def forget(self, node: str, session: AgentSession) -> None:
        if self._sessions.get(node) is session:
            del self._sessions[node]

    def revoke(self, pods: Collection[str]) -> None:
        """Ends the sessions whose tokens are bound to pods that no longer exist."""
        for session in list(self._sessions.values()):
            if session.bound_to in pods:
                session.end("the agent's pod was deleted")

    def close(self) -> None:
        """Ends every session."""
        for session in list(self._sessions.values()):
            session.end("the scheduler is stopping")


class AgentSession:
    """One session. `hear` takes the agent's frames, `orders` gives the frames for it; both end with
    the session.
    """

    def __init__(
        self, sessions: AgentSessions, identity: Identity, certified: frozenset[str] | None = None
    ) -> None:
        self._sessions, self._identity, self._certified = sessions, identity, certified
        self._disk = sessions.service.unit_of_work.store.disk
        self._orders: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        """Each with the commit that must be on disk before it is sent."""
        self._node: str | None = None
        self.over: str | None = None
        """Why this session has ended."""

    @property
    def bound_to(self) -> str:
        """See `Identity.bound_to`."""
        return self._identity.bound_to

    def hear(self, data: bytes | str) -> None:
        """Handles one frame. Raises nothing: errors end the session or are logged."""
        if self.over is not None:
            return
        try:
            # a union is a type to msgspec
            message: m.FromAgent = m.decode(m.FromAgent, data)  # type: ignore[arg-type]
            self._handle(message)
        except Unavailable as error:
            log.error(
                "node %s: %s; its agent will reconnect",
                self._node or "?",
                error.message,
                extra={"node": self._node},
            )
            self.end(error.message)
        except GpuShareError as error:
            what, about = error.field or error.code, {"node": self._node}
            log.warning(
                "node %s: report refused: %s (%s)",
                self._node or "?",
                error.message,
                what,
                extra=about,
            )
            if self._node is None:
                self.end(error.message)
        except Exception:  # a bug here ends this session, not the service
            log.exception("node %s: a report failed", self._node or "?", extra={"node": self._node})
            self.end("internal error while handling a report; see the scheduler's log")

    def _handle(self, message: m.FromAgent) -> None:
        if self._node is not None:
            self._sessions.service.agent_report(self._node, message)
            self._sessions.on_report(message)
            return
        if not isinstance(message, m.AgentHello):
            raise InvalidInput("the first frame of an agent must be its hello", field="type")
        if not self._identity.may_act_for_node(message.node.name):
            raise NotAllowed(
                f"the token of {self._identity.user!r} is not valid for node {message.node.name!r}",
                field="node",
            )
        if self._certified is not None and message.node.name not in self._certified:
            names = ", ".join(sorted(self._certified)) or "nobody"
            raise NotAllowed(
                f"the certificate is for {names}, not for node {message.node.name!r}", field="node"
            )
        self._node = self._sessions.service.agent_hello(message, self._send)
        self._sessions.register(self._node, self)
        gpus, leases = len(message.node.devices), len(message.leases)
        log.info(
            "node %s connected: %d GPUs, %d leases",
            self._node,
            gpus,
            leases,
            extra={"node": self._node},
        )

    def _send(self, order: m.ToAgent) -> None:
        if self._orders.qsize() >= BACKLOG:
            self.end("the agent does not read its messages")
        elif self.over is None:
            self._orders.put_nowait((self._disk.written, m.encode(order)))

    async def orders(self) -> AsyncGenerator[bytes, None]:
        """Encoded orders until the session ends; those queued before its end are still sent.

        Raises StoreUnavailable: a commit that the next order depends on could not be written to
        disk.
        """
        while (order := await self._orders.get()) is not None:
            await self._disk.reached(order[0])
            yield order[1]

    def end(self, why: str) -> None:
        """Ends the session. Idempotent."""
        if self.over is not None:
            return
        self.over = why
        self._orders.put_nowait(None)
        if self._node is not None:
            self._sessions.forget(self._node, self)
            self._sessions.service.agent_disconnected(self._node, self._send)
            log.info("node %s disconnected: %s", self._node, why, extra={"node": self._node})
