"""Handles the messages of kernels and Jupyter servers. What the agent knows it answers at once; the
rest it relays to the kernel's server.
"""

from __future__ import annotations

from typing import Final, get_args

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotFound, Unavailable
from jupyter_gpushare.kernel.protocol import PROTOCOL
from jupyter_gpushare.messages import (
    CachesDropped,
    CellCancel,
    CellEnd,
    CellStart,
    ErrorDetail,
    FromKernel,
    FromServer,
    KernelAction,
    KernelActionDone,
    KernelActionRequest,
    KernelEnding,
    KernelGone,
    KernelHello,
    KernelLaunched,
    KernelPing,
    KernelRefused,
    KernelRequestState,
    KernelWelcome,
    NotebookMessage,
    Registered,
    RegisterKernel,
    RelayedResponse,
    RpcRequest,
    RpcResponse,
    ServerHello,
    ServerWelcome,
    StartPreviewed,
    StartPreviewRequest,
    encode,
    error_detail,
    to_json,
)

from ..devices.base.model import DevicesBusy
from ..reconcile.lifecycle import KernelLifecycle
from ..reconcile.memory_mover import MemoryMover
from ..reconcile.reconciler import Reconciler
from ..socket.kernel_tokens import token_matches
from ..socket.socket_server import SocketConnection, SocketServer
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.process_owner import ProcessOwner
from ..system.processes import ProcessId, is_kernel_process, is_proxy_process, process_at
from .cell_handlers import CellHandlers
from .relay import RequestRelay
from .user_actions import UserActions

__all__ = ["UNSURE_MS", "MessageHandlers"]

MAX_STATE_BYTES: Final = 1 << 15
"""Of a message about a kernel that the agent keeps."""
UNSURE_MS: Final = 2_000
"""After a kernel reconnected to a restarted agent: the time in which it reports running cells."""


def _check_size(body: RegisterKernel | KernelRequestState) -> None:
    """Raises InvalidInput: the agent keeps these messages, for many kernels and in the journal."""
    size = len(encode(body))
    if size > MAX_STATE_BYTES:
        text = f"a message about a kernel has at most {MAX_STATE_BYTES} bytes, got {size}"
        raise InvalidInput(text, field="kernel_id")


class MessageHandlers:
    """The listener behind the socket (see `SocketListener`)."""

    def __init__(
        self,
        node: NodeRuntime,
        socket_server: SocketServer,
        reconciler: Reconciler,
        lifecycle: KernelLifecycle,
        mover: MemoryMover,
    ) -> None:
        self._node, self._socket_server = node, socket_server
        self._peer_log = socket_server.peer_log
        self._reconciler, self._lifecycle = reconciler, lifecycle
        self._cells = CellHandlers(node, reconciler)
        self._relay = RequestRelay(node)
        self._user_actions = UserActions(node, reconciler, mover)
        self._tasks = BackgroundTasks(log)

    async def close(self) -> None:
        """Answer nothing any more."""
        self._relay.close()
        await self._tasks.close()

    # ---- connections of kernels ------------------------------------------------------------------

    def greet_kernel(self, hello: KernelHello, connection: SocketConnection) -> str | None:
        """Why this peer is not that kernel; None: it is."""
        kernel = self._node.kernels.get(hello.kernel_id)
        if kernel is None:
            return "the kernel is not registered"
        problem = self._identity_problem(kernel, hello, connection)
        if problem:
            return problem
        kernel.gate.proxied = hello.proxy
        kernel.registration.never_connected = False
        if kernel.process.main is None and not kernel.process.ending and not hello.proxy:
            launched = KernelLaunched(kernel_id=hello.kernel_id, pid=connection.pid)
            self._lifecycle.launched(launched)
        old = self._socket_server.kernels.get(hello.kernel_id)
        self._socket_server.kernels[hello.kernel_id] = connection
        if old is not None and old is not connection:
            kernel.gate.disconnect()
            old.close()
        self._welcome(kernel, connection)
        return None

    def _identity_problem(
        self, kernel: KernelRecord, hello: KernelHello, connection: SocketConnection
    ) -> str:
        process, owner = kernel.process, connection.owner
        if not token_matches(kernel, hello.token):
            return "its token is wrong"
        if hello.protocol != PROTOCOL:
            connection.send(KernelRefused(protocol=PROTOCOL))
            return f"it has protocol {hello.protocol}, this agent {PROTOCOL}"
        if not self._node.belongs_to(kernel, owner):
            is_ours = False
        elif hello.proxy:
            is_ours = is_proxy_process(connection.pid, kernel.kernel_id, owner)
        else:
            is_ours = is_kernel_process(connection.pid, process.launch, process.main, owner)
        return "" if is_ours else "it does not belong to the kernel's processes"

    def _welcome(self, kernel: KernelRecord, connection: SocketConnection) -> None:
        node = self._node
        kernel.gate.connect(node.clock(), UNSURE_MS)
        kernel.heartbeat.received_at = 0
        connection.send(
            KernelWelcome(
                node=node.config.node,
                simulated=node.devices.traits.simulated,
                kernel=node.view(kernel),
            )
        )
        for message in kernel.published.unsent:
            connection.send(NotebookMessage(message=message))
        kernel.published.kernel_connected()
        node.dirty = True
        node.wake()

    def lost_kernel(
        self,
        kernel_id: str,
        connection: SocketConnection,  # noqa: ARG002 - the protocol
    ) -> None:
        """Its connection broke; its process may live."""
        kernel = self._node.kernels.get(kernel_id)
        if kernel is not None and kernel_id not in self._socket_server.kernels:
            kernel.gate.disconnect()
            self._node.wake()

    # ---- connections of servers ------------------------------------------------------------------

    def greet_server(self, hello: ServerHello, connection: SocketConnection) -> str | None:
        """Every server that the socket accepts is welcome. It sees the kernels of its own owner."""
        self._socket_server.servers[hello.server] = connection
        node = self._node
        kernels = list(node.kernels.values())
        own = [kernel for kernel in kernels if node.belongs_to(kernel, connection.owner)]
        tiers, problems = node.devices.capabilities()
        connection.send(
            ServerWelcome(
                node=node.config.node,
                simulated=node.devices.traits.simulated,
                tiers=tiers,
                tier_problems=problems,
                kernels=[node.runtime(kernel) for kernel in own],
            )
        )
        for kernel in kernels:
            if kernel.registration.server == hello.server:
                kernel.published.key = None
        node.wake()
        return None

    def lost_server(
        self,
        server: str,
        connection: SocketConnection,  # noqa: ARG002 - the protocol
    ) -> None:
        """Its kernels continue; a kernel that it was about to launch will not come."""
        if server not in self._socket_server.servers:
            self._lifecycle.server_lost(server)
            self._node.wake()

    # ---- messages of kernels ---------------------------------------------------------------------

    def from_kernel(self, kernel_id: str, body: FromKernel) -> None:
        """One message of a kernel."""
        kernel = self._node.kernels.get(kernel_id)
        if kernel is None:
            return
        match body:
            case KernelPing():
                kernel.heartbeat.received_at = self._node.clock()
            case CellStart():
                self._cells.start(kernel, body)
            case CellEnd(n=n):
                self._cells.end(kernel, n)
            case CellCancel(n=n):
                self._cells.cancel(kernel, n)
            case RpcRequest():
                self._request(kernel, body)
            case CachesDropped():
                self._caches_dropped(kernel)
            case _:
                pass  # a second hello

    def _caches_dropped(self, kernel: KernelRecord) -> None:
        if kernel.memory.caches_deadline is not None:
            kernel.memory.caches_deadline = self._node.clock()
        self._reconciler.try_step()

    def _request(self, kernel: KernelRecord, body: RpcRequest) -> None:
        action = next((one for one in get_args(KernelAction) if one == body.action), None)
        if action is not None:
            self._tasks.spawn(self._act_for_kernel(kernel, body.n, action))
        elif body.action == "status":
            response = RpcResponse(n=body.n, body=to_json(self._node.view(kernel)))
            self._node.ports.to_kernel(kernel.kernel_id, response)
        else:
            self._relay.request(kernel, body)

    async def _act_for_kernel(self, kernel: KernelRecord, n: int, action: KernelAction) -> None:
        try:
            await self._user_actions.perform(kernel, action)
        except GpuShareError as error:
            response = RpcResponse(n=n, error=error_detail(error))
        else:
            response = RpcResponse(n=n, body=to_json(self._node.view(kernel)))
        self._node.ports.to_kernel(kernel.kernel_id, response)

    # ---- messages of servers ---------------------------------------------------------------------

    def from_server(self, server: str, owner: ProcessOwner, body: FromServer) -> None:
        """One message of a server of this owner. Kernels of other owners do not exist for it."""
        match body:
            case RegisterKernel():
                self._tasks.spawn(self._register(server, owner, body))
            case KernelActionRequest():
                kernel = self._own_kernel(body.kernel_id, owner)
                self._tasks.spawn(self._act_for_server(server, kernel, body))
            case StartPreviewRequest():
                self._node.ports.to_server(server, self._preview(owner, body))
            case RelayedResponse():
                self._relay.response(server, body)
            case KernelLaunched() | KernelEnding() | KernelGone() | KernelRequestState():
                self._kernel_message(server, owner, body)
            case _:
                pass  # a second hello

    def _kernel_message(
        self,
        server: str,
        owner: ProcessOwner,
        body: KernelLaunched | KernelEnding | KernelGone | KernelRequestState,
    ) -> None:
        kernel = self._own_kernel(body.kernel_id, owner)
        if kernel is None:
            log.debug("server %s: no kernel %s of its %s", server, body.kernel_id, owner.kind)
            return
        match body:
            case KernelLaunched():
                self._lifecycle.launched(body)
            case KernelEnding():
                kernel.process.end_requested = True
            case KernelGone():
                self._lifecycle.gone(body)
            case KernelRequestState():
                _check_size(body)
                self._request_state(kernel, body)

    def _own_kernel(self, kernel_id: str, owner: ProcessOwner) -> KernelRecord | None:
        kernel = self._node.kernels.get(kernel_id)
        is_own = kernel is not None and self._node.belongs_to(kernel, owner)
        return kernel if is_own else None

    async def _register(self, server: str, owner: ProcessOwner, body: RegisterKernel) -> None:
        try:
            _check_size(body)
            registrar = self._registrar(server) if body.ends_with_server else None
            environment, token = await self._lifecycle.register(server, owner, body, registrar)
            answer = Registered(n=body.n, env=environment, token=token)
        except GpuShareError as error:
            self._peer_log.warning(owner, "a kernel of %s was not registered: %s", owner, error)
            answer = Registered(n=body.n, env={}, error=error_detail(error))
        self._node.ports.to_server(server, answer)

    def _registrar(self, server: str) -> ProcessId | None:
        connection = self._socket_server.servers.get(server)
        return process_at(connection.pid) if connection is not None else None

    def _request_state(self, kernel: KernelRecord, body: KernelRequestState) -> None:
        if kernel.request_state == body:
            return
        kernel.request_state, self._node.dirty = body, True
        if not kernel.wants_gpu():
            kernel.gate.gave_up = False
        self._cells.request_changed(kernel, body.refuses)
        self._node.wake()

    def _preview(self, owner: ProcessOwner, body: StartPreviewRequest) -> StartPreviewed:
        try:
            return self._reconciler.start_preview.preview(body, owner)
        except DevicesBusy as error:
            detail = error_detail(Unavailable(f"the devices do not answer: {error}"))
            return StartPreviewed(n=body.n, error=detail)

    async def _act_for_server(
        self, server: str, kernel: KernelRecord | None, body: KernelActionRequest
    ) -> None:
        error: ErrorDetail | None = None
        try:
            if kernel is None:
                raise NotFound(f"this node has no kernel {body.kernel_id}", field="kernel_id")
            await self._user_actions.perform(kernel, body.action)
        except GpuShareError as problem:
            error = error_detail(problem)
        self._node.ports.to_server(server, KernelActionDone(n=body.n, error=error))
