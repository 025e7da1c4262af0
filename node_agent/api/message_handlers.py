"""What kernels and servers say, and what follows. What the agent knows it answers at once; what is
the scheduler's goes to the server.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Final

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, NotFound, Unavailable
from jupyter_gpushare.messages import (
    CachesDropped,
    CellAllowed,
    CellCancel,
    CellEnd,
    CellRefused,
    CellStart,
    ErrorDetail,
    FromKernel,
    FromServer,
    Kernel,
    KernelActionDone,
    KernelActionRequest,
    KernelGone,
    KernelHello,
    KernelLaunched,
    KernelPing,
    KernelRequestState,
    KernelWelcome,
    NotebookMessage,
    Registered,
    RegisterKernel,
    RelayedRequest,
    RelayedResponse,
    RpcRequest,
    RpcResponse,
    ServerHello,
    ServerWelcome,
    error_detail,
    to_json,
)

from ..reconcile.idle_culler import ask_again
from ..reconcile.lifecycle import KernelLifecycle
from ..reconcile.memory_mover import MemoryMover
from ..reconcile.reconciler import Reconciler
from ..socket.kernel_tokens import token_matches
from ..socket.socket_server import SocketConnection, SocketServer
from ..state.kernel_record import GateRequest, KernelRecord, view
from ..state.node import NodeRuntime, log
from ..system.processes import identify
from .user_actions import UserActions

__all__ = ["MessageHandlers"]

RELAY_S: Final = 60.0
UNSURE_MS: Final = 2_000
"""After a kernel came back to a restarted agent: the time in which it can say that a cell is
running.
"""


def _is_whose(book: KernelRecord, uid: int) -> bool:
    """Whether it is this user's; what nobody has registered yet is the agent's own."""
    return uid == (os.getuid() if book.uid is None else book.uid)


class MessageHandlers:
    """The listener behind the socket."""

    def __init__(
        self,
        node: NodeRuntime,
        gate: SocketServer,
        desk: Reconciler,
        lifecycle: KernelLifecycle,
        mover: MemoryMover,
    ) -> None:
        self._node, self._gate, self._desk, self._lifecycle = node, gate, desk, lifecycle
        self._wishes = UserActions(node, desk, mover)
        self._numbers = itertools.count(1)
        self._relayed: dict[int, tuple[str, int, asyncio.TimerHandle]] = {}
        self._tasks = BackgroundTasks(log)

    # ---- hellos ----------------------------------------------------------------------------------

    def greet_kernel(self, hello: KernelHello, line: SocketConnection) -> str | None:
        """Why this peer is not that kernel; None: welcome."""
        book = self._node.books.get(hello.kernel_id)
        if book is None:
            return "nobody registered it"
        if not token_matches(book, hello.token):
            return "its token is wrong"
        if not identify(line.pid, line.uid, book.launch, book.main, book.uid):
            return "it does not belong to the kernel's processes"
        if book.main is None and not book.ending:
            self._lifecycle.launched(KernelLaunched(kernel_id=hello.kernel_id, pid=line.pid))
        old = self._gate.kernels.get(hello.kernel_id)
        self._gate.kernels[hello.kernel_id] = line
        if old is not None and old is not line:
            old.close()
        book.connected, book.ever_connected, book.heard = True, True, 0
        if (
            book.unsure_until or book.cells
        ):  # what ended while the line was broken was told to nobody; what runs is said again now
            book.cells, book.unsure_until = set(), self._node.clock() + UNSURE_MS
        line.send(
            KernelWelcome(
                node=self._node.config.node,
                simulated=self._node.devices.traits.simulated,
                kernel=self._view(book),
            )
        )
        for message in book.told:
            line.send(NotebookMessage(message=message))
        book.told.clear()
        book.last_key, book.last_devices, self._node.dirty = None, (), True
        self._node.wake()
        return None

    def lost_kernel(self, kernel_id: str, line: SocketConnection) -> None:  # noqa: ARG002 - the listener's signature
        """Its line broke; its process may live."""
        book = self._node.books.get(kernel_id)
        if book is not None and kernel_id not in self._gate.kernels:
            book.connected, book.question = False, None
            self._node.wake()

    def greet_server(self, hello: ServerHello, line: SocketConnection) -> str | None:
        """Every server that the socket lets in is welcome. It hears of the kernels of its own user."""
        self._gate.servers[hello.server] = line
        node = self._node
        kernels = [self._view(book) for book in node.books.values() if _is_whose(book, line.uid)]
        tiers, problems = node.devices.capabilities()
        line.send(
            ServerWelcome(
                node=node.config.node,
                simulated=node.devices.traits.simulated,
                tiers=tiers,
                tier_problems=problems,
                kernels=kernels,
            )
        )
        for book in node.books.values():
            if book.server == hello.server:
                book.last_key = None
        node.wake()
        return None

    def lost_server(self, server: str, line: SocketConnection) -> None:  # noqa: ARG002 - the listener's signature
        """Its kernels go on; a kernel that it was about to launch will not come."""
        if server not in self._gate.servers:
            self._lifecycle.server_lost(server)
            self._node.wake()

    def _view(self, book: KernelRecord) -> Kernel:
        return view(
            book,
            self._node.config.node,
            self._node.uuids,
            self._node.totals,
            self._node.devices.traits.simulated,
        )

    # ---- kernels ---------------------------------------------------------------------------------

    def from_kernel(self, kernel_id: str, body: FromKernel) -> None:
        """One thing that a kernel said."""
        book = self._node.books.get(kernel_id)
        if book is None:
            return
        match body:
            case KernelPing():
                book.heard = self._node.clock()
            case CellStart():
                self._cell_start(book, body)
            case CellEnd(n=n):
                self._cell_end(book, n)
            case CellCancel(n=n):
                self._cell_cancel(book, n)
            case RpcRequest():
                self._ask(book, body)
            case CachesDropped():
                book.caches = self._node.clock() if book.caches is not None else None
                self._desk.try_step()
            case _:
                pass  # a second hello

    def _cell_start(self, book: KernelRecord, body: CellStart) -> None:
        node, now = self._node, self._node.clock()
        book.unsure_until = 0
        if body.running:
            book.cells.add(body.n)
            # it began while we were away, and stands still in the driver if its memory is away too
            if body.wait:
                book.held_back = False
            node.wake()
            return
        if body.exempt:
            node.ports.to_kernel(book.kernel_id, CellAllowed(n=body.n))
            return
        if body.wait:
            book.gave_up = False
        if book.killing:
            node.ports.to_kernel(
                book.kernel_id,
                CellRefused(n=body.n, message="The kernel is about to be restarted."),
            )
            return
        if book.lease is None or book.unwanted:
            if book.gave_up or not book.asks():
                self._desk.let_run(book, GateRequest(body.n, now), now)
                return
            book.question = GateRequest(body.n, now)
            ask_again(node, book, now)
            self._say_pending(book)
            return
        if book.holding.suspended and book.held_back:
            book.held_back = False
        book.question = GateRequest(body.n, now)
        self._desk.try_step()
        if book.question is not None and not book.question.told and not self._desk.is_looking(book):
            self._desk.say_wait(book, node.story.waits_to_enter())

    def _say_pending(self, book: KernelRecord) -> None:
        reason = book.outlook.reason if book.outlook else None
        if book.outlook is not None and not book.outlook.pending:
            self._desk.say_wait(book, self._node.story.waits_to_enter())
            return
        expected = book.outlook.expected_wait if book.outlook else None
        self._desk.say_wait(
            book,
            self._node.story.waits_for_grant(
                reason.message if reason else "", expected.message if expected else ""
            ),
        )

    def _cell_end(self, book: KernelRecord, n: int) -> None:
        book.cells.discard(n)
        book.unsure_until = 0
        if book.question is not None and book.question.n == n:
            book.question = None
        if not book.cells:
            book.idle_since = self._node.clock()
        self._node.wake()

    def _cell_cancel(self, book: KernelRecord, n: int) -> None:
        if book.question is not None and book.question.n == n:
            book.question = None
            book.gave_up = book.lease is None
            self._node.ports.to_kernel(
                book.kernel_id, CellRefused(n=n, message="The wait for the GPU was given up.")
            )
        book.cells.discard(n)
        self._node.wake()

    def _ask(self, book: KernelRecord, body: RpcRequest) -> None:
        if body.action in ("suspend", "resume", "pin", "unpin"):
            self._tasks.spawn(self._act_for_kernel(book, body))
        elif body.action == "status":
            self._reply(book.kernel_id, RpcResponse(n=body.n, body=to_json(self._view(book))))
        else:
            self._relay(book, body)

    def _reply(self, kernel_id: str, body: RpcResponse) -> None:
        self._node.ports.to_kernel(kernel_id, body)

    def _relay(self, book: KernelRecord, body: RpcRequest) -> None:
        n = next(self._numbers)
        if not self._node.ports.to_server(
            book.server,
            RelayedRequest(n=n, kernel_id=book.kernel_id, action=body.action, body=body.body),
        ):
            if body.action == "history":  # its server knows more, but what we know is true as well
                self._reply(
                    book.kernel_id,
                    RpcResponse(n=body.n, body={"events": to_json(list(book.events))}),
                )
                return
            error = Unavailable("this kernel's Jupyter server is not connected to the node agent")
            self._reply(book.kernel_id, RpcResponse(n=body.n, error=error_detail(error)))
            return
        timer = asyncio.get_running_loop().call_later(RELAY_S, self._relay_late, n)
        self._relayed[n] = book.kernel_id, body.n, timer

    def _relay_late(self, n: int) -> None:
        kernel_id, asked, _ = self._relayed.pop(n)
        self._reply(
            kernel_id,
            RpcResponse(
                n=asked,
                error=error_detail(Unavailable("this kernel's Jupyter server did not answer")),
            ),
        )

    # ---- servers ---------------------------------------------------------------------------------

    def from_server(self, server: str, uid: int, body: FromServer) -> None:
        """One thing that a server of this user said. Of other people's kernels it can say nothing:
        they are not there for it.
        """
        match body:
            case RegisterKernel():
                self._tasks.spawn(self._register(server, uid, body))
            case KernelActionRequest():
                self._tasks.spawn(
                    self._act_for_server(server, self._own(body.kernel_id, uid), body)
                )
            case KernelLaunched() | KernelGone() | KernelRequestState() if (
                self._own(body.kernel_id, uid) is None
            ):
                log.debug(
                    "server %s speaks of kernel %s, which is not there or not its user's",
                    server,
                    body.kernel_id,
                )
            case KernelLaunched():
                self._lifecycle.launched(body)
            case KernelGone():
                self._lifecycle.gone(body)
            case KernelRequestState():
                self._outlook(body)
            case RelayedResponse(n=n) if n in self._relayed and self._asked(n) == server:
                kernel_id, asked, timer = self._relayed.pop(n)
                timer.cancel()
                self._reply(kernel_id, RpcResponse(n=asked, body=body.body, error=body.error))
            case _:
                pass  # an answer that came too late, or a second hello

    def _own(self, kernel_id: str, uid: int) -> KernelRecord | None:
        book = self._node.books.get(kernel_id)
        return book if book is not None and _is_whose(book, uid) else None

    def _asked(self, n: int) -> str:
        """The server that a relayed question went to: its number can be guessed, so nobody else may
        answer it.
        """
        book = self._node.books.get(self._relayed[n][0])
        return book.server if book is not None else ""

    async def _register(self, server: str, uid: int, body: RegisterKernel) -> None:
        try:
            answer = Registered(n=body.n, env=await self._lifecycle.register(server, uid, body))
        except GpuShareError as error:
            log.warning("a kernel of user %d was not registered: %s", uid, error)
            answer = Registered(n=body.n, env={}, error=error_detail(error))
        self._node.ports.to_server(server, answer)

    def _outlook(self, body: KernelRequestState) -> None:
        book = self._node.books.get(body.kernel_id)
        if book is None or book.outlook == body:
            return
        book.outlook, self._node.dirty = body, True
        if not book.asks():
            book.gave_up = False
        if book.question is not None and book.lease is None:
            if book.asks():
                self._say_pending(book)
            elif body.refuses:
                n, book.question = book.question.n, None
                self._node.ports.to_kernel(book.kernel_id, CellRefused(n=n, message=body.refuses))
            else:
                self._desk.let_run(book, book.question, self._node.clock())
        self._node.wake()

    # ---- what owners ask for ---------------------------------------------------------------------

    async def _act_for_kernel(self, book: KernelRecord, body: RpcRequest) -> None:
        try:
            await self._wishes.grant(book, body.action)
        except GpuShareError as error:
            self._reply(book.kernel_id, RpcResponse(n=body.n, error=error_detail(error)))
        else:
            self._reply(book.kernel_id, RpcResponse(n=body.n, body=to_json(self._view(book))))

    async def _act_for_server(
        self, server: str, book: KernelRecord | None, body: KernelActionRequest
    ) -> None:
        error: ErrorDetail | None = None
        try:
            if book is None:
                raise NotFound(
                    f"there is no kernel {body.kernel_id} on this node", field="kernel_id"
                )
            await self._wishes.grant(book, body.action)
        except GpuShareError as problem:
            error = error_detail(problem)
        self._node.ports.to_server(server, KernelActionDone(n=body.n, error=error))

    async def close(self) -> None:
        """Nothing is answered any more."""
        for _, _, timer in self._relayed.values():
            timer.cancel()
        await self._tasks.close()
