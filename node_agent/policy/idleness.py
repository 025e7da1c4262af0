"""When an idle kernel is told, suspended, gives its GPU back, and is ended. Pure: one kernel and
one moment in, at most one move out.

Two promises hold whatever the rules are and however they change: no step is taken before its time
without GPU work has passed, and none without an announcement of this very step whose deadline has
passed, and which was at least `notice_ms` away when it was made. Times are monotonic ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from jupyter_gpushare.messages import LeaseRules

__all__ = [
    "ORDER",
    "IdleAction",
    "CancelWarning",
    "IdleKernel",
    "Move",
    "Step",
    "SendWarning",
    "next_move",
]

Step = Literal["warn", "suspend", "release", "end"]
ORDER: Final[dict[str, int]] = {"": 0, "warn": 0, "suspend": 1, "release": 2, "end": 3}
"""How hard a step is; a milder one is not taken after a harder one."""


@dataclass(frozen=True, slots=True)
class IdleKernel:
    """One kernel. `since`: its last GPU work; `working`: a cell runs or waits, or the GPU is busy
    at this moment.

    `done`: the hardest step taken since then. `told`: the step that was announced, for `deadline`
    (None: without one). `spared`: steps that cannot be taken now (pinned, nothing to save, or no
    way to save it).
    """

    since: int
    working: bool = False
    done: Step | Literal[""] = ""
    told: Step | Literal[""] = ""
    deadline: int | None = None
    spared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SendWarning:
    """Say what comes: the step at `deadline`; the step `warn` only says that the kernel is idle,
    and has no deadline.
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
        return CancelWarning() if idle.told else None
    coming = _coming(rules, idle)
    if coming is None:
        return _only_warn(rules, idle, now)
    step, due = coming
    if idle.told != step:
        early = (
            idle.since + rules.idle_warn_ms
            if rules.idle_warn_ms is not None and not idle.done
            else due
        )
        return (
            SendWarning(step, max(due, now + notice_ms))
            if now >= min(early, due - notice_ms)
            else CancelWarning()
            if _is_void(idle)
            else None
        )
    if idle.deadline is None or due > idle.deadline:
        return CancelWarning()  # the rule was loosened: announced anew when its time comes
    return IdleAction(step) if now >= idle.deadline else None


def _coming(rules: LeaseRules, idle: IdleKernel) -> tuple[Step, int] | None:
    """The next step and its moment; at the same moment the milder one comes first."""
    times: dict[Step, int | None] = {
        "suspend": rules.idle_suspend_ms,
        "release": rules.idle_release_ms,
        "end": rules.idle_end_ms,
    }
    open_ = [
        (idle.since + time, ORDER[step], step)
        for step, time in times.items()
        if time is not None and step not in idle.spared and ORDER[step] > ORDER[idle.done]
    ]
    if not open_:
        return None
    due, _, step = min(open_)
    return step, due


def _only_warn(rules: LeaseRules, idle: IdleKernel, now: int) -> Move | None:
    """Nothing can be done (any more): it is told once that it is idle, if the rules say so."""
    if _is_void(idle):
        return CancelWarning()
    if (
        rules.idle_warn_ms is None
        or idle.told
        or idle.done
        or now - idle.since < rules.idle_warn_ms
    ):
        return None
    return SendWarning("warn", None)


def _is_void(idle: IdleKernel) -> bool:
    """Whether a step stands announced that will not come like this."""
    return idle.told not in ("", "warn")
