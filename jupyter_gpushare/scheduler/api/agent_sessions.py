"""The scheduler's end of one agent's link, whatever carries it: frames in, orders out.

A frame that makes no sense is logged and dropped: a newer agent may say more than we know, and a
link that breaks for it would break again. When the store does not answer, the link ends instead:
the agent comes back with everything it holds, so nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, Unavailable

from ..auth.identity import Identity
from ..service.service import SchedulerService

__all__ = ["AgentSessions", "AgentSession"]

log = logging.getLogger("gpushare.scheduler")
BACKLOG: Final = 10_000
"""Orders that may wait for an agent that does not read; then the link is ended, and the next hello
is answered with the plan.
"""


class AgentSessions:
    """All links of agents; one per node: a new one ends the older."""

    def __init__(self, service: SchedulerService) -> None:
        self.service = service
        self._sessions: dict[str, AgentSession] = {}
        self.tap: Callable[[m.FromAgent], None] = lambda _: None
        """Is told every report that was taken: for counting."""

    def open(self, identity: Identity, certified: frozenset[str] | None = None) -> AgentSession:
        """A link that has said nothing yet, by the owner of this token. `certified`: the names in
        its certificate; None: none is needed.
        """
        return AgentSession(self, self.service.visibility.promoted(identity), certified)

    def speaks_for(self, node: str, session: AgentSession) -> None:
        older = self._sessions.get(node)
        self._sessions[node] = session
        if older is not None and older is not session:
            older.end("another agent speaks for this node now")

    def forget(self, node: str, session: AgentSession) -> None:
        if self._sessions.get(node) is session:
            del self._sessions[node]

    def close(self) -> None:
        """Ends every link."""
        for session in list(self._sessions.values()):
            session.end("the scheduler stops")


class AgentSession:
    """One link. `hear` takes what the agent sends, `orders` gives what it is told; either ends when
    the link is over.
    """

    def __init__(
        self, sessions: AgentSessions, identity: Identity, certified: frozenset[str] | None = None
    ) -> None:
        self._sessions, self._identity, self._certified = sessions, identity, certified
        self._disk = sessions.service.unit_of_work.store.disk
        self._orders: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        """Each with the commit that must be on disk before the agent hears of it."""
        self._node: str | None = None
        self.over: str | None = None
        """Why this link is over."""

    def hear(self, data: bytes | str) -> None:
        """One frame. Raises nothing: what is wrong ends the link or is dropped."""
        if self.over is not None:
            return
        try:
            message: m.FromAgent = m.decode(m.FromAgent, data)  # type: ignore[arg-type]  # a union is a type to msgspec
            self._heard(message)
        except Unavailable as error:
            log.error(
                "node %s: %s; its agent is asked to come back",
                self._node or "?",
                error.message,
                extra={"node": self._node},
            )
            self.end(error.message)
        except GpuShareError as error:
            what, about = error.field or error.code, {"node": self._node}
            log.warning(
                "node %s: a report is not taken: %s (%s)",
                self._node or "?",
                error.message,
                what,
                extra=about,
            )
            if self._node is None:
                self.end(error.message)
        except Exception:  # ours, not the agent's: its link ends, the service does not
            log.exception(
                "node %s: a report cannot be dealt with",
                self._node or "?",
                extra={"node": self._node},
            )
            self.end("the scheduler failed at a report; its log says why")

    def _heard(self, message: m.FromAgent) -> None:
        if self._node is not None:
            self._sessions.service.agent_said(self._node, message)
            self._sessions.tap(message)
            return
        if not isinstance(message, m.AgentHello):
            raise InvalidInput("an agent's first frame is its hello", field="type")
        if not self._identity.may_act_for_node(message.node.name):
            raise NotAllowed(
                f"the token of {self._identity.user!r} does not speak for node {message.node.name!r}",
                field="node",
            )
        if self._certified is not None and message.node.name not in self._certified:
            names = ", ".join(sorted(self._certified)) or "nobody"
            raise NotAllowed(
                f"the certificate is for {names}, not for node {message.node.name!r}", field="node"
            )
        self._node = self._sessions.service.agent_hello(message, self._tell)
        self._sessions.speaks_for(self._node, self)
        gpus, leases = len(message.node.devices), len(message.leases)
        log.info(
            "node %s is here: %d GPUs, %d leases",
            self._node,
            gpus,
            leases,
            extra={"node": self._node},
        )

    def _tell(self, order: m.ToAgent) -> None:
        if self._orders.qsize() >= BACKLOG:
            self.end("the agent does not read its orders")
        elif self.over is None:
            self._orders.put_nowait((self._disk.written, m.encode(order)))

    async def orders(self) -> AsyncGenerator[bytes, None]:
        """Encoded orders until the link is over; what was given before its end is still handed out.

        Raises StoreUnavailable: the disk failed to keep what the next one tells.
        """
        while (order := await self._orders.get()) is not None:
            await self._disk.reached(order[0])
            yield order[1]

    def end(self, why: str) -> None:
        """The link is over. May be called twice."""
        if self.over is not None:
            return
        self.over = why
        self._orders.put_nowait(None)
        if self._node is not None:
            self._sessions.forget(self._node, self)
            self._sessions.service.agent_gone(self._node, self._tell)
            log.info("node %s is gone: %s", self._node, why, extra={"node": self._node})
