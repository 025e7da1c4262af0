"""Cause and remedy of every error code, reason and node condition. The command line, the messages
of the notebook and docs/reference/errors.md come from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .node_conditions import NodeCondition
from .reason import ReasonCode

__all__ = ["ERRORS", "GENERAL_ERRORS", "NODE_CONDITIONS", "REASONS", "CodeHelp"]


@dataclass(frozen=True, slots=True)
class CodeHelp:
    """One or two sentences each. The remedy is a command to the reader."""

    cause: str
    remedy: str


GENERAL_ERRORS: Final[Mapping[str, CodeHelp]] = {
    "error": CodeHelp(
        "A component failed in a way that has no code of its own.",
        "Read the log of the component that answered, and report it if it is a defect.",
    ),
    "invalid-input": CodeHelp(
        "The request cannot be read, or a value in it is not allowed. Nothing was changed.",
        "Correct the field that `field` or the message names.",
    ),
    "not-found": CodeHelp(
        "The named object does not exist, or you may not see it.",
        "Check the name; `jupyter gpushare list`, `projects`, `nodes` and `pools` show the names"
        " that you may use.",
    ),
    "not-allowed": CodeHelp(
        "Your token, user or project does not permit this action.",
        "`jupyter gpushare whoami` shows who you are and what you may do; ask an administrator for"
        " the permission, or for a token of another scope.",
    ),
    "conflict": CodeHelp(
        "The id is in use, or the current state does not permit the action.",
        "Look at the current state (`%gpu`, `jupyter gpushare status`), then repeat or change the"
        " request.",
    ),
    "unavailable": CodeHelp(
        "The scheduler, the node agent or another component cannot be reached.",
        "Try again in a moment. If it stays so, check that the component runs and that its address"
        " is right: `jupyter gpushare status`.",
    ),
}
"""Codes of a class of errors; only the message says what happened."""

ERRORS: Final[Mapping[str, CodeHelp]] = {
    **GENERAL_ERRORS,
    "not-authenticated": CodeHelp(
        "The call has no token, or the token is unknown, revoked or expired.",
        "Pass a valid token: `--token-file`, `$GPUSHARE_TOKEN_FILE` or `Authorization: Bearer`."
        " An administrator creates one with `jupyter gpushare token create`.",
    ),
    "too-many-requests": CodeHelp(
        "The caller made more calls, or opened more connections, than the scheduler allows.",
        "Wait for the seconds in `Retry-After`. For a script that needs more, raise"
        " `c.SchedulerApp.calls_per_second` and its companions.",
    ),
    "too-large": CodeHelp(
        "The body of the request is larger than `c.SchedulerApp.body_bytes`.",
        "Send less in one call, for example fewer pods.",
    ),
    "no-such-method": CodeHelp(
        "The path exists, but not with this HTTP method; or it is a WebSocket.",
        "Use one of the methods in the `Allow` header.",
    ),
    "http-status": CodeHelp(
        "Jupyter itself refused the call (`http-403`, `http-404` and so on): login, XSRF check,"
        " authorizer, or an unknown path.",
        "Log in again, or reload the page. A server behind a proxy must pass WebSockets on.",
    ),
    "invalid-file": CodeHelp(
        "A file cannot be read, or has problems; each is listed with its line and field.",
        "Correct the lines; the reference describes the file.",
    ),
    "invalid-policy": CodeHelp(
        "The policy file has problems; each is listed with its line and field. A running scheduler"
        " keeps the policy that it has.",
        "Correct the lines and run `jupyter gpushare validate FILE`.",
    ),
    "invalid-scenario": CodeHelp(
        "A scenario file has problems; each is listed with its line and field.",
        "Correct the lines and run `jupyter gpushare simulate FILE` again.",
    ),
    "standby": CodeHelp(
        "This scheduler waits until it leads; another one leads now.",
        "Give clients and agents the addresses of all schedulers, separated by commas: they find"
        " the one that leads.",
    ),
    "store-unavailable": CodeHelp(
        "The scheduler's database does not respond: full disk, locked, or not reachable. Nothing"
        " was changed, and kernels keep their GPUs.",
        "Free disk space or restore the connection to the database; the scheduler continues by"
        " itself. `jupyter gpushare db check` examines the tables.",
    ),
    "database-needs-upgrade": CodeHelp(
        "The tables were written by an older version, and an upgrade was not requested.",
        "Stop every scheduler, make a backup, and run `jupyter gpushare db upgrade`.",
    ),
    "database-too-new": CodeHelp(
        "The tables were written by a newer version than this program.",
        "Install that version again, or restore the backup from before the upgrade.",
    ),
    "too-many-pods": CodeHelp(
        "One submission has more pods than `c.SchedulerApp.pods_per_workload` allows.",
        "Submit several smaller workloads.",
    ),
    "too-many-pending": CodeHelp(
        "Your pending pods, or your pods without a GPU, would exceed the budget per user"
        " (`c.SchedulerApp.pending_pods_per_user`).",
        "Wait until some have started or ended, or cancel some: `jupyter gpushare cancel`.",
    ),
    "timeout": CodeHelp(
        "The GPU was not granted within the time that you gave. The request stays pending.",
        "`%gpu wait` waits on, `%gpu why` shows the reason, `%gpu cancel` cancels the request.",
    ),
    "interrupted": CodeHelp(
        "You interrupted the wait. The request stays pending, except that of `%%gpu`.",
        "`%gpu wait` waits on; `%gpu cancel` cancels the request.",
    ),
    "CellNotRun": CodeHelp(
        "A cell was refused before it ran, because its wait was stopped.",
        "Run it again: later cells run without a GPU until it is granted. `%gpu wait` waits.",
    ),
    "GpuReclaimed": CodeHelp(
        "The GPU was reclaimed while the cell ran, its memory could not be saved, and the kernel"
        " restarts.",
        "Run the notebook again. `gpu.on_notice` can save results at the notice before;"
        " `jupyter gpushare agent --self-test` shows whether the node can save GPU memory.",
    ),
}
"""Every code in an error body, and every exception that ends a cell."""

REASONS: Final[Mapping[ReasonCode, CodeHelp]] = {
    ReasonCode.HELD: CodeHelp(
        "Its owner holds the workload back, or the idle rule released its GPU.",
        "Run a cell of the notebook, which requests the GPU again; or resume the workload.",
    ),
    ReasonCode.UNKNOWN_PROJECT: CodeHelp(
        "The policy has no project of that name.",
        "Request with one of your projects (`jupyter gpushare projects`), or have an administrator"
        " add the project.",
    ),
    ReasonCode.UNKNOWN_POOL: CodeHelp(
        "The policy has no node pool of that name.",
        "Request with one of the node pools that the message lists (`jupyter gpushare pools`).",
    ),
    ReasonCode.INVALID_REQUEST: CodeHelp(
        "The request contradicts the policy, for example by a topology level that does not exist.",
        "Change the request as the message says.",
    ),
    ReasonCode.NEVER_FITS: CodeHelp(
        "No node of the pool could run it even if it were empty: too many GPUs, too much memory,"
        " or labels and taints that exclude every node.",
        "Request less, or another node pool. `--queue-anyway` keeps the request until a larger"
        " node joins.",
    ),
    ReasonCode.OVER_LIMIT: CodeHelp(
        "The project or its department is at its limit, which it may never exceed.",
        "Release GPUs of the project, request less, or have an administrator raise `limit` in the"
        " policy.",
    ),
    ReasonCode.OVER_PERSON_LIMIT: CodeHelp(
        "You already have what one person may have in the project: GPUs, notebooks, or waiting"
        " requests.",
        "Release the GPU of another notebook of yours in the project, or request less. A manager of"
        " the project or an administrator can raise the limit.",
    ),
    ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA: CodeHelp(
        "Non-preemptible work may use the quota only, and the quota is in use.",
        "Submit it as preemptible work, which may use free GPUs beyond the quota; or release"
        " non-preemptible work of the project.",
    ),
    ReasonCode.WAITING_FOR_TURN: CodeHelp(
        "Its cell waits for a turn: every share of the project is in use, and the node pool shares"
        " time.",
        "Wait: the first notebook that is idle gives way. `%gpu unpin` in your other notebooks"
        " lets them take turns too.",
    ),
    ReasonCode.HOST_MEMORY_FULL: CodeHelp(
        "Idle notebooks keep their shares, because the host memory for saved GPU memory is full.",
        "Free GPU memory in notebooks that you do not need (`%gpu release`, or shut them down). An"
        " administrator may raise `--host-memory` of the agent.",
    ),
    ReasonCode.WAITING_FOR_QUOTA: CodeHelp(
        "No GPU is free, and the project already holds its fair share, so it cannot reclaim.",
        "Wait for free GPUs, or release GPUs of the project. `jupyter gpushare queue` shows quota"
        " and fair share.",
    ),
    ReasonCode.WAITING_BEHIND: CodeHelp(
        "GPUs were free, and workloads ahead in the queue took them.",
        "Wait; a smaller share may fit sooner (`%gpu what-if 0.25`).",
    ),
    ReasonCode.WAITING_FOR_FREE_GPU: CodeHelp(
        "Not enough is free: GPUs, GPU memory, or CPU, memory and topology on one node.",
        "Wait, or request a share that fits into what the message says is free; other node pools"
        " may have room.",
    ),
    ReasonCode.WAITING_FOR_GANG: CodeHelp(
        "Only some pods of a gang fit, or fewer pods than its minimum are left; they start"
        " together or not at all.",
        "Wait, lower `--min-pods`, or submit fewer pods.",
    ),
    ReasonCode.WAITING_FOR_RECLAIM: CodeHelp(
        "Its place is promised, and the workloads that hold it are leaving after their notice.",
        "Wait: it starts as soon as they have left.",
    ),
    ReasonCode.WAITING_FOR_RESERVATION: CodeHelp(
        "The free GPUs are reserved for a workload that has waited longer (`reserve_after`).",
        "Wait, or request a share that fits beside the reservation, or another node pool.",
    ),
    ReasonCode.BOOKED_FOR: CodeHelp(
        "GPUs are kept free for a booking that is under way or begins soon, or the request is"
        " non-preemptible and would run into a booking.",
        "Wait until the booking ends; `jupyter gpushare bookings` shows when. Non-preemptible work"
        " may run before it with a shorter `max_running`.",
    ),
    ReasonCode.NODE_NOT_READY: CodeHelp(
        "Only nodes that are not ready could run it; the message lists them with their conditions.",
        "An administrator repairs or uncordons the node (`jupyter gpushare nodes`). With"
        " JupyterHub, a new server may start on another node.",
    ),
    ReasonCode.PENDING_EVALUATION: CodeHelp(
        "The request is on its way to the scheduler, or no cycle has seen it yet.",
        "Wait a second. If it stays so, the scheduler is not reachable: `jupyter gpushare status`.",
    ),
}

NODE_CONDITIONS: Final[Mapping[NodeCondition, CodeHelp]] = {
    NodeCondition.DISK_PRESSURE: CodeHelp(
        "Too little room is left where the agent keeps its state.",
        "Free space on that file system; the thresholds are `pressure` in the policy.",
    ),
    NodeCondition.MEMORY_PRESSURE: CodeHelp(
        "Too little memory is available (`MemAvailable`), or processes stall for memory (pressure"
        " stall information, `full avg10`).",
        "End processes that use memory, or lower the agent's `--host-memory` for saved GPU memory.",
    ),
    NodeCondition.PID_PRESSURE: CodeHelp(
        "Few process ids or threads are left, of the machine or of the agent's cgroup.",
        "End processes, or raise `pid_max` or the cgroup's `pids.max`.",
    ),
    NodeCondition.NETWORK_UNAVAILABLE: CodeHelp(
        "The connection between scheduler and agent has been broken for 20 s.",
        "Check that the agent runs and reaches the scheduler; it connects again by itself.",
    ),
    NodeCondition.SCHEDULING_DISABLED: CodeHelp(
        "An administrator cordoned the node.", "`jupyter gpushare uncordon NODE` ends it."
    ),
    NodeCondition.UNDRAINED_MIGRATED_NODE: CodeHelp(
        "The node moved from another node pool, or lost its label, and work that started there"
        " still runs.",
        "Wait for that work, or end it with `jupyter gpushare drain NODE`.",
    ),
    NodeCondition.KUBERNETES_NOT_READY: CodeHelp(
        "The condition `Ready` of the node in Kubernetes is not `True`.",
        "`kubectl describe node NODE` shows why.",
    ),
    NodeCondition.GPUS_NOT_RESERVED: CodeHelp(
        "Slots hold fewer GPUs than the node offers, so other pods may use them.",
        "End the pods that use the node's GPUs, and run `jupyter gpushare kube check`.",
    ),
    NodeCondition.NOT_MANAGED: CodeHelp(
        "The label `gpushare.jupyter.org/managed=true` of the node is missing.",
        "Label the node if its GPUs are to be shared.",
    ),
    NodeCondition.NODE_DELETED: CodeHelp(
        "The node object is gone, and its agent is still connected; when it no longer is, the"
        " node's leases end.",
        "Nothing, if the node was removed on purpose.",
    ),
    NodeCondition.MISSING_CONTAINER_TOOLKIT: CodeHelp(
        "The toolkit pod of the GPU Operator is not ready on the node.",
        "Look at the pods of the GPU Operator on that node.",
    ),
    NodeCondition.MISSING_DCGM_EXPORTER: CodeHelp(
        "The exporter pod of the GPU Operator is not ready on the node. A warning: the node stays"
        " ready, since the agent measures the GPUs by itself.",
        "Look at the pods of the GPU Operator on that node.",
    ),
    NodeCondition.AGENT_SILENT: CodeHelp(
        "The agent has not reported for longer than `defaults.agent_grace` (2 min).",
        "Start the agent again; kernels on the node keep running and are found again.",
    ),
    NodeCondition.GPU_UNHEALTHY: CodeHelp(
        "None of the node's GPUs is usable.",
        "`jupyter gpushare nodes --gpus` shows the errors of each GPU; reset or replace it.",
    ),
}
