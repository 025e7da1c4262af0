"""The labels of states in the output of commands: the same as in JupyterLab
(`labextension/src/stateLabels.ts`) and `%gpu` (`kernel/display/state_words.py`).
"""

from __future__ import annotations

from typing import Final, Literal

from .common import KernelState
from .scheduler import PodView, WorkloadView

__all__ = ["KERNEL_LABELS", "StateLabel", "workload_label"]

StateLabel = Literal[
    "no GPU",
    "waiting",
    "starting",
    "running",
    "idle",
    "suspended",
    "giving back",
    "unknown",
    "partly running",
    "ended",
]
KERNEL_LABELS: Final[dict[KernelState, StateLabel]] = {
    "detached": "no GPU",
    "pending": "waiting",
    "granted": "starting",
    "attached": "running",  # "idle" while no cell runs
    "suspended": "suspended",
    "reclaiming": "giving back",
    "lost": "unknown",
}
_POD_LABELS: Final[dict[str, StateLabel]] = {
    "pending": "waiting",
    "pipelined": "waiting",
    "bound": "starting",
    "running": "running",
    "releasing": "giving back",
    "failed": "ended",
    "succeeded": "ended",
}
_MOST_ACTIVE_FIRST: Final[tuple[StateLabel, ...]] = (
    "running",
    "idle",
    "giving back",
    "starting",
    "suspended",
    "unknown",
)
"""A workload with several pods has the first label that one of its pods has."""


def workload_label(workload: WorkloadView) -> StateLabel:
    """The label of a workload."""
    match workload.state:
        case "pending":
            return "waiting"
        case "partial":
            return "partly running"
        case "ended":
            return "ended"
    labels = [_pod_label(pod) for pod in workload.pods]
    return next((label for label in _MOST_ACTIVE_FIRST if label in labels), "running")


def _pod_label(pod: PodView) -> StateLabel:
    """The agent's report is more precise than the scheduler's state."""
    if pod.state not in ("running", "bound") or pod.report is None:
        return _POD_LABELS[pod.state]
    if pod.report.state == "attached" and not pod.report.busy:
        return "idle"
    return KERNEL_LABELS[pod.report.state]
