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
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.processes import is_kernel_process
from .user_actions import UserActions

__all__ = ["MessageHandlers"]

RELAY_S: Final = 60.0
UNSURE_MS: Final = 2_000
"""After a kernel came back to a restarted agent: the time in which it can say that a cell is
running.
"""


def _is_whose(kernel: KernelRecord, uid: int) -> bool:
    """Whether it is this user's; what nobody has registered yet is the agent's own."""
    return uid == (os.getuid() if kernel.registration.uid is None else kernel.registration.uid)


class MessageHandlers:
    """The listener behind the socket."""

    def __init__(
        self,
        node: NodeRuntime,
        socket_server: SocketServer,
        reconciler: Reconciler,
        lifecycle: KernelLifecycle,
        mover: MemoryMover,
    ) -> None:
        self._node, self._socket_server, self._reconciler, self._lifecycle = (
            node,
            socket_server,
            reconciler,
            lifecycle,
        )
        self._user_actions = UserActions(node, reconciler, mover)
        self._numbers = itertools.count(1)
        self._relayed: dict[int, tuple[str, int, asyncio.TimerHandle]] = {}
        self._tasks = BackgroundTasks(log)

    # ---- hellos ----------------------------------------------------------------------------------

    def greet_kernel(self, hello: KernelHello, line: SocketConnection) -> str | None:
        """Why this peer is not that kernel; None: welcome."""
        kernel = self._node.kernels.get(hello.kernel_id)
        if kernel is None:
            return "nobody registered it"
        if not token_matches(kernel, hello.token):
            return "its token is wrong"
        if not is_kernel_process(
            line.pid, line.uid, kernel.process.launch, kernel.process.main, kernel.registration.uid
        ):
            return "it does not belong to the kernel's processes"
        if kernel.process.main is None and not kernel.process.ending:
            self._lifecycle.launched(KernelLaunched(kernel_id=hello.kernel_id, pid=line.pid))
        old = self._socket_server.kernels.get(hello.kernel_id)
        self._socket_server.kernels[hello.kernel_id] = line
        if old is not None and old is not line:
            old.close()
        kernel.gate.connect(self._node.clock(), UNSURE_MS)
        kernel.heartbeat.received_at = 0
        line.send(
            KernelWelcome(
                node=self._node.config.node,
                simulated=self._node.devices.traits.simulated,
                kernel=self._view(kernel),
            )
        )
        for message in kernel.published.unsent:
            line.send(NotebookMessage(message=message))
        kernel.published.unsent.clear()
        kernel.published.key, kernel.published.devices, self._node.dirty = None, (), True
        self._node.wake()
        return None

    def lost_kernel(self, kernel_id: str, line: SocketConnection) -> None:  # noqa: ARG002 - the listener's signature
        """Its line broke; its process may live."""
        kernel = self._node.kernels.get(kernel_id)
        if kernel is not None and kernel_id not in self._socket_server.kernels:
            kernel.gate.disconnect()
            self._node.wake()

    def greet_server(self, hello: ServerHello, line: SocketConnection) -> str | None:
        """Every server that the socket lets in is welcome. It hears of the kernels of its own user."""
        self._socket_server.servers[hello.server] = line
        node = self._node
        kernels = [
            node.runtime(kernel) for kernel in node.kernels.values() if _is_whose(kernel, line.uid)
        ]
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
        for kernel in node.kernels.values():
            if kernel.registration.server == hello.server:
                kernel.published.key = None
        node.wake()
        return None

    def lost_server(self, server: str, line: SocketConnection) -> None:  # noqa: ARG002 - the listener's signature
        """Its kernels go on; a kernel that it was about to launch will not come."""
        if server not in self._socket_server.servers:
            self._lifecycle.server_lost(server)
            self._node.wake()

    def _view(self, kernel: KernelRecord) -> Kernel:
        return self._node.view(kernel)

    # ---- kernels ---------------------------------------------------------------------------------

    def from_kernel(self, kernel_id: str, body: FromKernel) -> None:
        """One thing that a kernel said."""
        kernel = self._node.kernels.get(kernel_id)
        if kernel is None:
            return
        match body:
            case KernelPing():
                kernel.heartbeat.received_at = self._node.clock()
            case CellStart():
                self._cell_start(kernel, body)
            case CellEnd(n=n):
                self._cell_end(kernel, n)
            case CellCancel(n=n):
                self._cell_cancel(kernel, n)
            case RpcRequest():
                self._ask(kernel, body)
            case CachesDropped():
                kernel.memory.caches_deadline = (
                    self._node.clock() if kernel.memory.caches_deadline is not None else None
                )
                self._reconciler.try_step()
            case _:
                pass  # a second hello

    def _cell_start(self, kernel: KernelRecord, body: CellStart) -> None:
        node, gate, n = self._node, kernel.gate, body.n
        gate.unsure_until = 0
        if body.running:  # it began while the connection was broken; it may wait in the driver
            gate.running.add(n)
            if body.wait:
                kernel.preferences.suspended_by_user = False
            node.wake()
            return
        if body.exempt:
            node.ports.to_kernel(kernel.kernel_id, CellAllowed(n=n))
            return
        if body.wait:
            gate.gave_up = False
        if kernel.process.killing:
            refusal = CellRefused(n=n, message="The kernel is about to be restarted.")
            node.ports.to_kernel(kernel.kernel_id, refusal)
        elif kernel.assignment.active_lease is None:
            self._start_without_lease(kernel, n)
        else:
            self._start_with_lease(kernel, n)

    def _start_without_lease(self, kernel: KernelRecord, n: int) -> None:
        now = self._node.clock()
        if kernel.gate.gave_up or not kernel.wants_gpu():
            self._reconciler.let_run(kernel, n, now)
            return
        kernel.gate.ask(n, now)
        ask_again(self._node, kernel, now)
        self._say_pending(kernel)

    def _start_with_lease(self, kernel: KernelRecord, n: int) -> None:
        if kernel.memory.suspended:
            kernel.preferences.suspended_by_user = False
        request = kernel.gate.ask(n, self._node.clock())
        self._reconciler.try_step()
        if (
            n in kernel.gate.waiting
            and not request.text
            and not self._reconciler.is_looking(kernel)
        ):
            self._reconciler.say_wait(kernel, self._node.text.waits_to_enter())

    def _say_pending(self, kernel: KernelRecord) -> None:
        reason = kernel.outlook.reason if kernel.outlook else None
        if kernel.outlook is not None and not kernel.outlook.pending:
            self._reconciler.say_wait(kernel, self._node.text.waits_to_enter())
            return
        expected = kernel.outlook.expected_wait if kernel.outlook else None
        self._reconciler.say_wait(
            kernel,
            self._node.text.waits_for_grant(
                reason.message if reason else "", expected.message if expected else ""
            ),
        )

    def _cell_end(self, kernel: KernelRecord, n: int) -> None:
        kernel.gate.end(n, self._node.clock())
        self._node.wake()

    def _cell_cancel(self, kernel: KernelRecord, n: int) -> None:
        if kernel.gate.waiting.pop(n, None) is not None:
            kernel.gate.gave_up = kernel.lease is None
            self._node.ports.to_kernel(
                kernel.kernel_id, CellRefused(n=n, message="The wait for the GPU was given up.")
            )
        kernel.gate.running.discard(n)
        self._node.wake()

    def _ask(self, kernel: KernelRecord, body: RpcRequest) -> None:
        if body.action in ("suspend", "resume", "pin", "unpin"):
            self._tasks.spawn(self._act_for_kernel(kernel, body))
        elif body.action == "status":
            self._reply(kernel.kernel_id, RpcResponse(n=body.n, body=to_json(self._view(kernel))))
        else:
            self._relay(kernel, body)

    def _reply(self, kernel_id: str, body: RpcResponse) -> None:
        self._node.ports.to_kernel(kernel_id, body)

    def _relay(self, kernel: KernelRecord, body: RpcRequest) -> None:
        n = next(self._numbers)
        if not self._node.ports.to_server(
            kernel.registration.server,
            RelayedRequest(n=n, kernel_id=kernel.kernel_id, action=body.action, body=body.body),
        ):
            if body.action == "history":  # its server knows more, but what we know is true as well
                self._reply(
                    kernel.kernel_id,
                    RpcResponse(n=body.n, body={"events": to_json(list(kernel.published.events))}),
                )
                return
            error = Unavailable("this kernel's Jupyter server is not connected to the node agent")
            self._reply(kernel.kernel_id, RpcResponse(n=body.n, error=error_detail(error)))
            return
        timer = asyncio.get_running_loop().call_later(RELAY_S, self._relay_late, n)
        self._relayed[n] = kernel.kernel_id, body.n, timer

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
        kernel = self._node.kernels.get(kernel_id)
        return kernel if kernel is not None and _is_whose(kernel, uid) else None

    def _asked(self, n: int) -> str:
        """The server that a relayed question went to: its number can be guessed, so nobody else may
        answer it.
        """
        kernel = self._node.kernels.get(self._relayed[n][0])
        return kernel.registration.server if kernel is not None else ""

    async def _register(self, server: str, uid: int, body: RegisterKernel) -> None:
        try:
            answer = Registered(n=body.n, env=await self._lifecycle.register(server, uid, body))
        except GpuShareError as error:
            log.warning("a kernel of user %d was not registered: %s", uid, error)
            answer = Registered(n=body.n, env={}, error=error_detail(error))
        self._node.ports.to_server(server, answer)

    def _outlook(self, body: KernelRequestState) -> None:
        kernel = self._node.kernels.get(body.kernel_id)
        if kernel is None or kernel.outlook == body:
            return
        kernel.outlook, self._node.dirty = body, True
        if not kernel.wants_gpu():
            kernel.gate.gave_up = False
        if kernel.gate.waiting and kernel.lease is None:
            self._answer_waiting(kernel, body.refuses)
        self._node.wake()

    def _answer_waiting(self, kernel: KernelRecord, refusal: str) -> None:
        """The state of its request changed while cells wait for it."""
        if kernel.wants_gpu():
            self._say_pending(kernel)
            return
        for n in list(kernel.gate.waiting):
            if refusal:
                del kernel.gate.waiting[n]
                self._node.ports.to_kernel(kernel.kernel_id, CellRefused(n=n, message=refusal))
            else:
                self._reconciler.let_run(kernel, n, self._node.clock())

    # ---- what owners ask for ---------------------------------------------------------------------

    async def _act_for_kernel(self, kernel: KernelRecord, body: RpcRequest) -> None:
        try:
            await self._user_actions.grant(kernel, body.action)
        except GpuShareError as error:
            self._reply(kernel.kernel_id, RpcResponse(n=body.n, error=error_detail(error)))
        else:
            self._reply(kernel.kernel_id, RpcResponse(n=body.n, body=to_json(self._view(kernel))))

    async def _act_for_server(
        self, server: str, kernel: KernelRecord | None, body: KernelActionRequest
    ) -> None:
        error: ErrorDetail | None = None
        try:
            if kernel is None:
                raise NotFound(
                    f"there is no kernel {body.kernel_id} on this node", field="kernel_id"
                )
            await self._user_actions.grant(kernel, body.action)
        except GpuShareError as problem:
            error = error_detail(problem)
        self._node.ports.to_server(server, KernelActionDone(n=body.n, error=error))

    async def close(self) -> None:
        """Nothing is answered any more."""
        for _, _, timer in self._relayed.values():
            timer.cancel()
        await self._tasks.close()
