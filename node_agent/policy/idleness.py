"""When the user of an idle kernel is warned, when the kernel is suspended, releases its GPU, and is
shut down. Pure: one kernel and one moment in, at most one move out.

Two promises hold whatever the rules are and however they change: no step is taken before its time
without GPU work has passed, and none without a warning of this very step whose deadline has passed,
and which was at least `notice_ms` away when it was given. Times are monotonic ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from jupyter_gpushare.messages import LeaseRules

__all__ = [
    "ORDER",
    "CancelWarning",
    "IdleAction",
    "IdleKernel",
    "Move",
    "SendWarning",
    "Step",
    "next_move",
]

Step = Literal["warn", "suspend", "release", "end"]
ORDER: Final[dict[str, int]] = {"": 0, "warn": 0, "suspend": 1, "release": 2, "end": 3}
"""How severe a step is; a milder one is not taken after a more severe one."""


@dataclass(frozen=True, slots=True)
class IdleKernel:
    """One kernel. `since`: its last GPU work."""

    since: int
    working: bool = False
    """A cell runs or waits, or the GPU is busy at this moment."""
    done: Step | Literal[""] = ""
    """The most severe step taken since then."""
    warned: Step | Literal[""] = ""
    """The step that was announced for `deadline` (None: without one)."""
    deadline: int | None = None
    spared: frozenset[str] = frozenset()
    """Steps that cannot be taken now (pinned, nothing to save, or no way to save it)."""


@dataclass(frozen=True, slots=True)
class SendWarning:
    """Announce the step at `deadline`. The step `warn` only says that the kernel is idle, and has
    no deadline.
    """

    step: Step
    deadline: int | None


@dataclass(frozen=True, slots=True)
class IdleAction:
    """Take the announced step now."""

    step: Step


@dataclass(frozen=True, slots=True)
class CancelWarning:
    """The announcement is void."""


Move = SendWarning | IdleAction | CancelWarning


def next_move(rules: LeaseRules, idle: IdleKernel, now: int, notice_ms: int) -> Move | None:
    """What is to be done at this moment; None: nothing yet."""
    if idle.working:
        return CancelWarning() if idle.warned else None
    coming = _coming(rules, idle)
    if coming is None:
        return _only_warn(rules, idle, now)
    step, due = coming
    if idle.warned != step:
        if now >= min(_warn_from(rules, idle, due), due - notice_ms):
            return SendWarning(step, max(due, now + notice_ms))
        return CancelWarning() if _is_void(idle) else None
    if idle.deadline is None or due > idle.deadline:
        return CancelWarning()  # the rule was relaxed: announced again when its time comes
    return IdleAction(step) if now >= idle.deadline else None


def _warn_from(rules: LeaseRules, idle: IdleKernel, due: int) -> int:
    if rules.idle_warn_ms is None or idle.done:
        return due
    return idle.since + rules.idle_warn_ms


def _coming(rules: LeaseRules, idle: IdleKernel) -> tuple[Step, int] | None:
    """The next step and its moment; at the same moment the milder one comes first."""
    times: dict[Step, int | None] = {
        "suspend": rules.idle_suspend_ms,
        "release": rules.idle_release_ms,
        "end": rules.idle_end_ms,
    }
    possible = []
    for step, time in times.items():
        is_next = ORDER[step] > ORDER[idle.done] and step not in idle.spared
        if time is not None and is_next:
            possible.append((idle.since + time, ORDER[step], step))
    if not possible:
        return None
    due, _, step = min(possible)
    return step, due


def _only_warn(rules: LeaseRules, idle: IdleKernel, now: int) -> Move | None:
    """No step is possible (any more): one warning that it is idle, if the rules say so."""
    if _is_void(idle):
        return CancelWarning()
    if rules.idle_warn_ms is None or idle.warned or idle.done:
        return None
    return SendWarning("warn", None) if now - idle.since >= rules.idle_warn_ms else None


def _is_void(idle: IdleKernel) -> bool:
    """Whether a step is announced that will not happen as announced."""
    return idle.warned not in ("", "warn")
