"""Agent <-> kernels of its machine: one unix socket, one JSON object per line."""

from __future__ import annotations

from msgspec import field

from .common import Body, ErrorDetail, Json, ReasonBody, Tagged
from .jupyter import Kernel

__all__ = [
    "RpcRequest",
    "CachesDropped",
    "CellCancel",
    "CellEnd",
    "CellAllowed",
    "CellRefused",
    "CellStart",
    "CellWait",
    "DropCaches",
    "EndCell",
    "FromKernel",
    "KernelDevice",
    "KernelHello",
    "KernelPing",
    "KernelRefused",
    "KernelUpdate",
    "KernelWelcome",
    "PeerRefused",
    "NoticeGiven",
    "NoticeEnded",
    "RpcResponse",
    "ToKernel",
    "NotebookMessage",
]


class KernelHello(Tagged, frozen=True, kw_only=True, tag="kernel_hello"):
    """First line of a kernel. The agent checks `token` and the peer's pid against the registration
    by the server.
    """

    kernel_id: str
    token: str
    pid: int
    proxy: bool = False
    """The peer is the proxy that gates a kernel of any language, not the kernel."""
    protocol: int = 1
    """`jupyter_gpushare.kernel.protocol`; kernels of version 0.1 do not send it."""


class CellStart(Tagged, frozen=True, kw_only=True, tag="cell_start"):
    """A cell asks for permission to run. `n` grows with every cell. `exempt`: the cell begins with
    `%gpu` and never waits. `wait`: the user asked to wait (`%gpu wait`), even if an earlier wait
    was interrupted.
    """

    n: int
    exempt: bool = False
    wait: bool = False
    running: bool = False
    """The cell is running already; sent to an agent that has restarted, so that it does not treat
    the kernel as idle. With `wait`: the cell began while the agent was away, and needs its saved
    memory.
    """


class CellCancel(Tagged, frozen=True, kw_only=True, tag="cell_cancel"):
    """The user interrupted the wait of cell `n`: later cells run without a GPU until it is granted
    or the user waits again.
    """

    n: int


class CellEnd(Tagged, frozen=True, kw_only=True, tag="cell_end"):
    """Cell `n` has ended."""

    n: int


class RpcRequest(Tagged, frozen=True, kw_only=True, tag="ask"):
    """A call of a magic or a `gpu` function: `action` is the verb of `%gpu`. The agent answers some
    itself and relays the others to the kernel's server.
    """

    n: int
    action: str
    body: Json = field(default_factory=dict)


class CachesDropped(Tagged, frozen=True, kw_only=True, tag="caches_dropped"):
    """Caches have been dropped (response to `DropCaches`)."""


class KernelPing(Tagged, frozen=True, kw_only=True, tag="ping"):
    """Heartbeat of the interpreter."""


FromKernel = (
    KernelHello | CellStart | CellCancel | CellEnd | RpcRequest | CachesDropped | KernelPing
)


class KernelWelcome(Tagged, frozen=True, kw_only=True, tag="kernel_welcome"):
    """Response to `KernelHello`."""

    node: str
    simulated: bool
    kernel: Kernel


class KernelRefused(Tagged, frozen=True, kw_only=True, tag="kernel_refused"):
    """Response to a `KernelHello` of another protocol, before the agent disconnects. `protocol`:
    the agent's.
    """

    protocol: int


class PeerRefused(Tagged, frozen=True, kw_only=True, tag="refused"):
    """Response to a process that may not use the socket, before the agent disconnects: why, without
    a word about kernels of others.
    """

    message: str


class CellAllowed(Tagged, frozen=True, kw_only=True, tag="cell_go"):
    """Cell `n` may run. `without_gpu`: the person chose to run the waiting cell without a GPU.

    A wait that the person stopped ends with `CellRefused`, never with this message.
    """

    n: int
    waited_ms: int = 0
    message: str = ""
    without_gpu: bool = False


class CellWait(Tagged, frozen=True, kw_only=True, tag="cell_wait"):
    """Cell `n` has to wait, and why; sent again when the message changes."""

    n: int
    message: str
    reason: ReasonBody | None = None
    position: int | None = None


class CellRefused(Tagged, frozen=True, kw_only=True, tag="cell_refused"):
    """Cell `n` must not run, and why."""

    n: int
    message: str


class KernelDevice(Body, frozen=True, kw_only=True):
    """One GPU of a kernel's share, in order. `visible`: the UUIDs for `CUDA_VISIBLE_DEVICES`, the
    kernel's own first. All GPUs of the node are listed where saved memory can be restored on
    another GPU, since the driver moves memory only between GPUs that the process can see.
    """

    uuid: str
    cap_mib: int
    total_mib: int
    visible: str


class KernelUpdate(Tagged, frozen=True, kw_only=True, tag="kernel"):
    """The kernel's state or its memory caps changed. `cap_mib`: the most memory that it may use on
    its GPU now. `devices`: the same for each of its GPUs, for frameworks in the kernel; empty: do
    not change them (simulated GPUs, no share, memory saved or being copied).
    """

    kernel: Kernel
    cap_mib: int = 0
    devices: list[KernelDevice] = field(default_factory=list)


class NoticeGiven(Tagged, frozen=True, kw_only=True, tag="notice"):
    """`take_mib` of memory will be reclaimed in `deadline_ms`. For `gpu.on_notice` and the
    message in the notebook.
    """

    message: str
    deadline_ms: int
    take_mib: int


class NoticeEnded(Tagged, frozen=True, kw_only=True, tag="notice_over"):
    """The notice is withdrawn or has been carried out."""

    message: str


class DropCaches(Tagged, frozen=True, kw_only=True, tag="drop_caches"):
    """Release cached, unused GPU memory now."""


class EndCell(Tagged, frozen=True, kw_only=True, tag="end_cell"):
    """The kernel is about to be restarted: end the running cell with this message."""

    message: str


class NotebookMessage(Tagged, frozen=True, kw_only=True, tag="told"):
    """A message to show once, under the next cell: what happened, why, what was kept or lost."""

    message: str


class RpcResponse(Tagged, frozen=True, kw_only=True, tag="reply"):
    """Response to an `RpcRequest`: a body or an error."""

    n: int
    body: Json | None = None
    error: ErrorDetail | None = None


ToKernel = (
    KernelWelcome
    | KernelRefused
    | PeerRefused
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
