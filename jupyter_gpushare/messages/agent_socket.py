"""Agent <-> the kernels and Jupyter servers of its machine: one unix socket, a JSON object per
line.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from .common import Body, ErrorDetail, Event, ExpectedWait, Json, ReasonBody, Share, Tagged
from .jupyter import Kernel

__all__ = [
    "KernelActionDone",
    "RelayedResponse",
    "RpcRequest",
    "RelayedRequest",
    "CachesDropped",
    "CellCancel",
    "CellEnd",
    "CellAllowed",
    "CellRefused",
    "CellStart",
    "CellWait",
    "DropCaches",
    "EndCell",
    "EndKernel",
    "FromKernel",
    "FromServer",
    "KernelActionRequest",
    "KernelDevice",
    "KernelGone",
    "KernelEvent",
    "KernelHello",
    "KernelLaunched",
    "KernelRequestState",
    "KernelPing",
    "KernelUpdate",
    "KernelReported",
    "KernelWelcome",
    "NoticeGiven",
    "NoticeEnded",
    "RegisterKernel",
    "Registered",
    "RelaunchKernel",
    "RpcResponse",
    "ServerHello",
    "ServerWelcome",
    "ToKernel",
    "ToServer",
    "TiersFound",
    "NotebookMessage",
]


class KernelHello(Tagged, frozen=True, kw_only=True, tag="kernel_hello"):
    """First line of a kernel. The agent compares `token` and the socket's peer pid with what the
    server registered.
    """

    kernel_id: str
    token: str
    pid: int


class CellStart(Tagged, frozen=True, kw_only=True, tag="cell_start"):
    """May I run? `n` grows with every question. `exempt`: the cell begins with `%gpu`: never waits.
    `wait`: the person asked to wait (`%gpu wait`), also where a wait was given up before.
    """

    n: int
    exempt: bool = False
    wait: bool = False
    running: bool = False
    """The cell was let go already: said to an agent that came back, so that it does not take the
    kernel for an idle one. With `wait`: it began while the agent was away, and needs what is saved.
    """


class CellCancel(Tagged, frozen=True, kw_only=True, tag="cell_cancel"):
    """The person interrupted the wait for question `n`: later cells run without a GPU until it
    arrives or somebody waits again.
    """

    n: int


class CellEnd(Tagged, frozen=True, kw_only=True, tag="cell_end"):
    n: int


class RpcRequest(Tagged, frozen=True, kw_only=True, tag="ask"):
    """A question of a person in a kernel (magics, `gpu` functions). Actions: status, request,
    release, why, what-if, suspend, resume, pin, unpin, queue, nodes, history. The agent answers
    what it knows and relays the rest to the kernel's server.
    """

    n: int
    action: str
    body: Json = field(default_factory=dict)


class CachesDropped(Tagged, frozen=True, kw_only=True, tag="caches_dropped"):
    """Answer to `DropCaches`."""


class KernelPing(Tagged, frozen=True, kw_only=True, tag="ping"):
    """The interpreter is alive."""


FromKernel = (
    KernelHello | CellStart | CellCancel | CellEnd | RpcRequest | CachesDropped | KernelPing
)


class KernelWelcome(Tagged, frozen=True, kw_only=True, tag="kernel_welcome"):
    node: str
    simulated: bool
    kernel: Kernel


class CellAllowed(Tagged, frozen=True, kw_only=True, tag="cell_go"):
    """The cell may run. `without_gpu`: the person chose to run the waiting cell without a GPU.

    A wait that the person stopped ends with `CellRefused`, never with this message.
    """

    n: int
    waited_ms: int = 0
    message: str = ""
    without_gpu: bool = False


class CellWait(Tagged, frozen=True, kw_only=True, tag="cell_wait"):
    """Not yet, and why; sent again whenever the sentence changes."""

    n: int
    message: str
    reason: ReasonBody | None = None
    position: int | None = None


class CellRefused(Tagged, frozen=True, kw_only=True, tag="cell_refused"):
    """The cell must not run: one clear sentence."""

    n: int
    message: str


class KernelDevice(Body, frozen=True, kw_only=True):
    """One GPU of a kernel's share, in its order. `visible`: the UUIDs that CUDA is to see, this
    kernel's own first: only them, or, where saved memory can be brought back on another GPU, all of
    the node (the driver moves nothing between GPUs that a process does not see).
    """

    uuid: str
    cap_mib: int
    total_mib: int
    visible: str


class KernelUpdate(Tagged, frozen=True, kw_only=True, tag="kernel"):
    """This kernel's state or its caps changed. `cap_mib`: what it may hold at most on its GPU right
    now. `devices`: the same for each of its GPUs, for the frameworks in the kernel; empty: leave
    them alone (simulated GPUs, no share, memory saved or being copied).
    """

    kernel: Kernel
    cap_mib: int = 0
    devices: list[KernelDevice] = field(default_factory=list)


class NoticeGiven(Tagged, frozen=True, kw_only=True, tag="notice"):
    """Memory above the share will be taken at `deadline_ms` from now. For `gpu.on_notice` and the
    message in the notebook.
    """

    message: str
    deadline_ms: int
    take_mib: int


class NoticeEnded(Tagged, frozen=True, kw_only=True, tag="notice_over"):
    message: str


class DropCaches(Tagged, frozen=True, kw_only=True, tag="drop_caches"):
    """Give cached, unused GPU memory back now."""


class EndCell(Tagged, frozen=True, kw_only=True, tag="end_cell"):
    """The kernel is about to be relaunched: end the running cell with this sentence."""

    message: str


class NotebookMessage(Tagged, frozen=True, kw_only=True, tag="told"):
    """Something to show once in the notebook, under the next cell: what happened, why, what was
    kept or lost.
    """

    message: str


class RpcResponse(Tagged, frozen=True, kw_only=True, tag="reply"):
    """Answer to an `RpcRequest`: a body, or an error with the words of the one who refused."""

    n: int
    body: Json | None = None
    error: ErrorDetail | None = None


ToKernel = (
    KernelWelcome
    | CellAllowed
    | CellWait
    | CellRefused
    | KernelUpdate
    | NoticeGiven
    | NoticeEnded
    | DropCaches
    | EndCell
    | NotebookMessage
    | RpcResponse
)


class ServerHello(Tagged, frozen=True, kw_only=True, tag="server_hello"):
    """First line of a Jupyter server: who it is (a random id for its life), and the kernels that it
    runs (after an agent's restart).
    """

    server: str
    pid: int


class RegisterKernel(Tagged, frozen=True, kw_only=True, tag="register_kernel"):
    """A kernel will be launched (or was, before the agent came back: then `pid` is set).
    `wants_gpu`: its cells wait until it is there.
    """

    n: int
    kernel_id: str
    name: str = ""
    user: str = ""
    wants_gpu: bool = False
    language: str = "python"
    pid: int | None = None


class KernelLaunched(Tagged, frozen=True, kw_only=True, tag="kernel_launched"):
    kernel_id: str
    pid: int


class KernelGone(Tagged, frozen=True, kw_only=True, tag="kernel_gone"):
    """Its server says that the kernel is over (`restarting`: it comes back at once with the same
    id).
    """

    kernel_id: str
    restarting: bool


class KernelRequestState(Tagged, frozen=True, kw_only=True, tag="kernel_outlook"):
    """What the server knows of the request of this kernel: pending with a reason, or nothing asked."""

    kernel_id: str
    pending: bool
    project: str | None = None
    request: Share = Share()
    limit: Share = Share()
    reason: ReasonBody | None = None
    position: int | None = None
    expected_wait: ExpectedWait | None = None
    refuses: str = ""
    """What it waited for will not come (the longest waiting time is over): a cell that waits is
    refused with this sentence.
    """


class KernelActionRequest(Tagged, frozen=True, kw_only=True, tag="kernel_act"):
    n: int
    kernel_id: str
    action: Literal["suspend", "resume", "pin", "unpin"]


class RelayedResponse(Tagged, frozen=True, kw_only=True, tag="answer"):
    """Answer to an `RelayedRequest`."""

    n: int
    body: Json | None = None
    error: ErrorDetail | None = None


FromServer = (
    ServerHello
    | RegisterKernel
    | KernelLaunched
    | KernelGone
    | KernelRequestState
    | KernelActionRequest
    | RelayedResponse
)


class ServerWelcome(Tagged, frozen=True, kw_only=True, tag="server_welcome"):
    node: str
    simulated: bool
    tiers: list[str]
    tier_problems: dict[str, str] = field(default_factory=dict)
    kernels: list[Kernel]


class TiersFound(Tagged, frozen=True, kw_only=True, tag="tiers_found"):
    """What the node can do has changed: its self-test takes a moment after the start."""

    tiers: list[str]
    tier_problems: dict[str, str]


class Registered(Tagged, frozen=True, kw_only=True, tag="registered"):
    """The environment that the kernel is to be launched with: GPUSHARE_KERNEL_ID, GPUSHARE_AGENT
    (socket), GPUSHARE_TOKEN_FILE, and what the devices need. Empty for a kernel that runs already.
    `error`: it was not registered.
    """

    n: int
    env: dict[str, str]
    error: ErrorDetail | None = None


class KernelReported(Tagged, frozen=True, kw_only=True, tag="kernel_reported"):
    """A kernel changed on this node (state, GPU, memory, busy, generation, events): the agent's
    part of `Kernel`.
    """

    kernel: Kernel


class KernelEvent(Tagged, frozen=True, kw_only=True, tag="kernel_happened"):
    kernel_id: str
    event: Event


class RelaunchKernel(Tagged, frozen=True, kw_only=True, tag="relaunch_kernel"):
    """Restart this kernel now by Jupyter's own restart, so that nobody sees "appears to have died".
    If it is not gone after `deadline_ms` the agent kills it.
    """

    kernel_id: str
    message: str
    deadline_ms: int


class EndKernel(Tagged, frozen=True, kw_only=True, tag="end_kernel"):
    """Shut this kernel down for good, the Jupyter way (the idle rule's last step). If it is not
    gone after `deadline_ms` the agent ends it.
    """

    kernel_id: str
    message: str
    deadline_ms: int


class RelayedRequest(Tagged, frozen=True, kw_only=True, tag="asked"):
    """A kernel's `RpcRequest` that the agent relays: request, release, why, what-if, queue, nodes."""

    n: int
    kernel_id: str
    action: str
    body: Json


class KernelActionDone(Tagged, frozen=True, kw_only=True, tag="act_done"):
    """Answer to a `KernelActionRequest`."""

    n: int
    error: ErrorDetail | None = None


ToServer = (
    ServerWelcome
    | TiersFound
    | Registered
    | KernelReported
    | KernelEvent
    | RelaunchKernel
    | EndKernel
    | RelayedRequest
    | KernelActionDone
)
