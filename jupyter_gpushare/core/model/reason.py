"""Why a workload waits: a closed set of codes, the numbers behind each, a message and
suggestions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Reason", "ReasonCode", "Suggestion", "clause", "counted"]


def counted(number: float, noun: str, many: str = "") -> str:
    """A number with its noun: 1 GPU, 2 GPUs, 0.5 GPU, 0 GPUs."""
    return f"{number:.10g} {noun}" if 0 < number <= 1 else f"{number:.10g} {many or noun + 's'}"


def clause(sentence: str) -> str:
    """A sentence as part of another one: without its period, and with a lower-case letter first
    unless it begins with an abbreviation.
    """
    text = sentence.rstrip(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


class ReasonCode(StrEnum):
    """The closed set of reasons (docs/explanation/scheduling.md, Reasons)."""

    HELD = "Held"
    UNKNOWN_PROJECT = "UnknownProject"
    UNKNOWN_POOL = "UnknownPool"
    INVALID_REQUEST = "InvalidRequest"
    NEVER_FITS = "NeverFits"
    OVER_LIMIT = "OverLimit"
    OVER_PERSON_LIMIT = "OverPersonLimit"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    WAITING_FOR_TURN = "WaitingForTurn"
    HOST_MEMORY_FULL = "HostMemoryFull"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_BEHIND = "WaitingBehind"
    WAITING_FOR_FREE_GPU = "WaitingForFreeGPU"
    WAITING_FOR_GANG = "WaitingForGang"
    WAITING_FOR_RECLAIM = "WaitingForReclaim"
    WAITING_FOR_RESERVATION = "WaitingForReservation"
    BOOKED_FOR = "BookedFor"
    NODE_NOT_READY = "NodeNotReady"
    PENDING_EVALUATION = "PendingEvaluation"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change that would help: `change` names the field (`gpu`, `priority`, `node_pools`,
    `nodes`, `preemptible`, `wait`), `to` the value.
    """

    change: str
    to: str
    message: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one workload is not running.

    `numbers` holds those of requested, quota, allocated, fair_share, limit, free_total,
    free_largest, booked, position and victims that apply; GPUs are floats, not milli-GPU.
    """

    code: ReasonCode
    message: str
    numbers: dict[str, float] = field(default_factory=dict)
    helps: tuple[Suggestion, ...] = ()
