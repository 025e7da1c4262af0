"""Types that several protocols share: base classes, times, errors, reasons, shares, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

__all__ = [
    "Stamp",
    "Body",
    "ErrorBody",
    "ErrorDetail",
    "Event",
    "EventKind",
    "ExpectedWait",
    "GateKind",
    "HelpBody",
    "Json",
    "KernelAction",
    "KernelRequest",
    "KernelState",
    "MemoryMib",
    "ReasonBody",
    "Share",
    "Tagged",
    "stamp",
    "stamp_ms",
]

Stamp = str
"""ISO 8601 with a zone, e.g. `2026-11-21T09:30:00.123+00:00`."""

KernelState = Literal[
    "detached", "pending", "granted", "attached", "suspended", "reclaiming", "lost"
]
EventKind = Literal[
    "requested",
    "granted",
    "attached",
    "burst",
    "notice",
    "suspended",
    "resumed",
    "moved",
    "killed",
    "reattached",
    "released",
    "evicted",
    "pinned",
    "unpinned",
    "lost",
    "refused",
    "fault",
    "ungated",
]
KernelAction = Literal["suspend", "resume", "pin", "unpin", "run-without-gpu"]
"""`run-without-gpu`: cells that wait for a GPU, and later ones until it is granted, run without."""
GateKind = Literal["bootstrap", "proxy", "none"]
"""What makes a kernel's cells ask before they run: code in it, a proxy before it, or nothing."""
Json = dict[str, Any]


def stamp(ms: int) -> Stamp:
    """Wall-clock milliseconds since the epoch as an ISO 8601 time with a zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def stamp_ms(text: Stamp) -> int:
    """The milliseconds since the epoch of a stamp. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Body(Struct, frozen=True, omit_defaults=False, forbid_unknown_fields=False, kw_only=True):
    """Base of every body. Unknown fields are ignored, so that a newer peer can send more."""


class Tagged(Struct, frozen=True, tag_field="type", kw_only=True):
    """Base of every message on a stream; `type` holds the tag of its class."""


class ErrorDetail(Body, frozen=True, kw_only=True):
    """What is wrong, and the field of the request that is at fault, if any."""

    code: str
    message: str
    field: str | UnsetType = UNSET


class ErrorBody(Body, frozen=True, kw_only=True):
    """The body of every error of both REST services."""

    error: ErrorDetail


class HelpBody(Body, frozen=True, kw_only=True):
    """A suggestion: what to change, to which value, and a sentence."""

    change: str
    to: str
    message: str


class ReasonBody(Body, frozen=True, kw_only=True):
    """Why a workload is pending: a code, one sentence, numbers in GPUs, and suggestions."""

    code: str
    message: str
    numbers: dict[str, float] = field(default_factory=dict)
    helps: list[HelpBody] = field(default_factory=list)


class ExpectedWait(Body, frozen=True, kw_only=True):
    """The remaining wait of a request in seconds from `at`; null: not known. Half of the similar
    requests wait at most `seconds_median`, nine of ten at most `seconds_p90`. `basis` is `history`
    (`based_on` similar requests), `rules` (bounds from the policy and from notices), or `none`
    (not known; `message` says why).
    """

    basis: Literal["history", "rules", "none"]
    message: str
    at: Stamp
    seconds_median: float | None = None
    seconds_p90: float | None = None
    seconds_at_most: float | None = None
    """Upper bound from notices and longest running times, unless other workloads come first."""
    based_on: int = 0


class Event(Body, frozen=True, kw_only=True):
    """One event of a kernel. Lists of events are ordered from the oldest."""

    time: Stamp
    kind: EventKind
    message: str


class Share(Body, frozen=True, kw_only=True):
    """A request or a burst limit, in GPUs or in MiB; the unit that was not used is null."""

    gpu: float | None = None
    gpu_memory_mib: int | None = None


class MemoryMib(Body, frozen=True, kw_only=True):
    """GPU memory of one kernel: the guarantee of its share, the memory in use, and the part of it
    above the guarantee.
    """

    guaranteed: int = 0
    used: int = 0
    borrowed: int = 0


class KernelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request of one kernel: the `config` of a kernelspec, the body of `POST kernels/<id>` and
    of `POST what-if`.

    Amounts are numbers or text with a unit. Exactly one of `gpu`, `gpu_memory` or `preset` is
    given.
    """

    preset: str | None = None
    """The name of a preset. Other fields override those of the preset."""
    gpu: float | int | str | None = None
    gpu_memory: int | str | None = None
    gpu_limit: float | int | str | None = None
    project: str | None = None
    node_pools: list[str] | str | None = None
    priority_class: str | int | None = None
    queue_anyway: bool = False
    """Queue a request that no node can run now, in place of an error."""
