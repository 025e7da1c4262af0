"""Agent <-> Jupyter servers of its machine, over the socket of `agent_socket`."""

from __future__ import annotations

from msgspec import field

from .agent_socket import PeerRefused
from .common import ErrorDetail, Event, GateKind, Json, KernelAction, Tagged
from .kernel_state import KernelRequestState, KernelRuntime
from .start_preview import StartPreviewed, StartPreviewRequest

__all__ = [
    "KernelActionDone",
    "RelayedResponse",
    "RelayedRequest",
    "EndKernel",
    "FromServer",
    "KernelActionRequest",
    "KernelEnding",
    "KernelGone",
    "KernelEvent",
    "KernelLaunched",
    "KernelReported",
    "RegisterKernel",
    "Registered",
    "RelaunchKernel",
    "ServerHello",
    "ServerWelcome",
    "ToServer",
    "TiersFound",
]


class ServerHello(Tagged, frozen=True, kw_only=True, tag="server_hello"):
    """First line of a Jupyter server. `server` is a random id for the life of its process."""

    server: str
    pid: int


class RegisterKernel(Tagged, frozen=True, kw_only=True, tag="register_kernel"):
    """A kernel will be launched, or (with `pid`) runs already when the agent restarts.
    `request`: the state of its request; its cells wait while that is pending. A running kernel may
    have been launched while there was no agent: `token_hash` is then the SHA-256 of the token that
    its server gave it, and `launch` the value of GPUSHARE_LAUNCH in its environment.
    """

    n: int
    kernel_id: str
    name: str = ""
    user: str = ""
    request: KernelRequestState | None = None
    language: str = "python"
    gate: GateKind | None = None
    """None: a server of version 0.1, which loads our code into every Python kernel."""
    gate_reason: str = ""
    """Why, as one clause; shown with a kernel that has no gate."""
    ends_with_server: bool = False
    """The kernel is ended when the process that registers it has ended: nbconvert, papermill."""
    pid: int | None = None
    token_hash: str = ""
    launch: str = ""


class KernelLaunched(Tagged, frozen=True, kw_only=True, tag="kernel_launched"):
    """A registered kernel has been launched."""

    kernel_id: str
    pid: int


class KernelEnding(Tagged, frozen=True, kw_only=True, tag="kernel_ending"):
    """The Jupyter server is about to end the kernel's process: its user shuts it down or restarts
    it, so the loss of its GPU memory is no error.
    """

    kernel_id: str


class KernelGone(Tagged, frozen=True, kw_only=True, tag="kernel_gone"):
    """The kernel has ended, according to its server. `restarting`: it will be launched again with
    the same id.
    """

    kernel_id: str
    restarting: bool


class KernelActionRequest(Tagged, frozen=True, kw_only=True, tag="kernel_act"):
    """An action of the user on a kernel."""

    n: int
    kernel_id: str
    action: KernelAction


class RelayedResponse(Tagged, frozen=True, kw_only=True, tag="answer"):
    """Response to a `RelayedRequest`."""

    n: int
    body: Json | None = None
    error: ErrorDetail | None = None


FromServer = (
    ServerHello
    | RegisterKernel
    | KernelLaunched
    | KernelEnding
    | KernelGone
    | KernelRequestState
    | KernelActionRequest
    | StartPreviewRequest
    | RelayedResponse
)


class ServerWelcome(Tagged, frozen=True, kw_only=True, tag="server_welcome"):
    """Response to `ServerHello`, with the kernels that the agent knows."""

    node: str
    simulated: bool
    tiers: list[str]
    tier_problems: dict[str, str] = field(default_factory=dict)
    kernels: list[KernelRuntime]


class TiersFound(Tagged, frozen=True, kw_only=True, tag="tiers_found"):
    """The self-test has finished: capability tiers of the node, and why others are missing."""

    tiers: list[str]
    tier_problems: dict[str, str]


class Registered(Tagged, frozen=True, kw_only=True, tag="registered"):
    """Response to `RegisterKernel`: the environment for the kernel (GPUSHARE_KERNEL_ID,
    GPUSHARE_AGENT (socket), GPUSHARE_TOKEN_FILE, variables of the devices), empty for a running
    kernel; or an error. `token`: the kernel's token, where the agent and the kernel share no folder
    for it: the server writes it to a file that its user alone can read, and names that in
    GPUSHARE_TOKEN_FILE.
    """

    n: int
    env: dict[str, str]
    token: str = ""
    error: ErrorDetail | None = None


class KernelReported(Tagged, frozen=True, kw_only=True, tag="kernel_reported"):
    """A kernel changed on this node."""

    kernel: KernelRuntime


class KernelEvent(Tagged, frozen=True, kw_only=True, tag="kernel_happened"):
    """An event of one kernel."""

    kernel_id: str
    event: Event


class RelaunchKernel(Tagged, frozen=True, kw_only=True, tag="relaunch_kernel"):
    """Restart the kernel through Jupyter's own restart, so that no "appears to have died" message
    is shown. If it has not ended after `deadline_ms`, the agent kills it.
    """

    kernel_id: str
    message: str
    deadline_ms: int


class EndKernel(Tagged, frozen=True, kw_only=True, tag="end_kernel"):
    """Shut the kernel down through Jupyter (the last step of the idle rule). If it has not ended
    after `deadline_ms`, the agent ends it.
    """

    kernel_id: str
    message: str
    deadline_ms: int


class RelayedRequest(Tagged, frozen=True, kw_only=True, tag="asked"):
    """A kernel's `RpcRequest` that the agent relays to the kernel's server."""

    n: int
    kernel_id: str
    action: str
    body: Json


class KernelActionDone(Tagged, frozen=True, kw_only=True, tag="act_done"):
    """Response to a `KernelActionRequest`."""

    n: int
    error: ErrorDetail | None = None


ToServer = (
    ServerWelcome
    | PeerRefused
    | TiersFound
    | Registered
    | KernelReported
    | KernelEvent
    | RelaunchKernel
    | EndKernel
    | RelayedRequest
    | KernelActionDone
    | StartPreviewed
)
