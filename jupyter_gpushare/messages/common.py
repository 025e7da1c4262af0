"""What several conversations share: base classes, times, errors, reasons, shares and events."""

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
    "HelpBody",
    "Json",
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
]
Json = dict[str, Any]


def stamp(ms: int) -> Stamp:
    """Wall-clock milliseconds since the epoch as an ISO 8601 time with a zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def stamp_ms(text: Stamp) -> int:
    """The wall-clock milliseconds since the epoch that a stamp says. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Body(Struct, frozen=True, omit_defaults=False, forbid_unknown_fields=False, kw_only=True):
    """Base of every body: unknown fields are ignored, so that a newer peer can say more."""


class Tagged(Struct, frozen=True, tag_field="type", kw_only=True):
    """Base of every message on a stream: `type` is the class name."""


class ErrorDetail(Body, frozen=True, kw_only=True):
    code: str
    message: str
    field: str | UnsetType = UNSET


class ErrorBody(Body, frozen=True, kw_only=True):
    """The body of every error, on every side."""

    error: ErrorDetail


class HelpBody(Body, frozen=True, kw_only=True):
    change: str
    to: str
    message: str


class ReasonBody(Body, frozen=True, kw_only=True):
    """Why something waits: code of the closed set, one sentence, numbers in GPUs, what would help."""

    code: str
    message: str
    numbers: dict[str, float] = field(default_factory=dict)
    helps: list[HelpBody] = field(default_factory=list)


class ExpectedWait(Body, frozen=True, kw_only=True):
    """How much longer a request will wait, in seconds from `at`; null: not known. Half of those
    like it wait for at most `seconds_median`, nine of ten for at most `seconds_p90`. `basis`:
    `history`: `based_on` like requests of the past; `rules`: only what the policy and announced
    notices bound; `none`: nothing is known, and `message` says why.
    """

    basis: Literal["history", "rules", "none"]
    message: str
    at: Stamp
    seconds_median: float | None = None
    seconds_p90: float | None = None
    seconds_at_most: float | None = None
    """By when it starts at the latest unless others come before it: notices and longest running
    times end by then.
    """
    based_on: int = 0


class Event(Body, frozen=True, kw_only=True):
    """One line of a kernel's story, oldest first in every list."""

    time: Stamp
    kind: EventKind
    message: str


class Share(Body, frozen=True, kw_only=True):
    """What was asked (`request`) or the burst ceiling (`limit`): GPUs or MiB; the one that was not
    given is null.
    """

    gpu: float | None = None
    gpu_memory_mib: int | None = None


class MemoryMib(Body, frozen=True, kw_only=True):
    """GPU memory of one kernel: what its share guarantees, what it holds on the GPU, and what of
    that is above the guarantee.
    """

    guaranteed: int = 0
    used: int = 0
    borrowed: int = 0


class KernelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person asks for one kernel: the kernelspec's `config`, the body of `POST kernels/<id>`
    and of `POST what-if`.

    Amounts are as people write them (numbers or text) and are read by `core.quantity`; exactly one
    of `gpu`, `gpu_memory`, or a `preset`.
    """

    preset: str | None = None
    """Name of one of the server's presets; what else is given stands in place of the preset's own
    word.
    """
    gpu: float | int | str | None = None
    gpu_memory: int | str | None = None
    gpu_limit: float | int | str | None = None
    project: str | None = None
    node_pools: list[str] | str | None = None
    priority_class: str | int | None = None
