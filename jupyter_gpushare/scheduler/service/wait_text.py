"""Messages of expected waits. Pure; times are ms."""

from __future__ import annotations

from typing import Final, Literal

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.estimates.wait_history import SimilarRequests

__all__ = ["about", "bounded", "by_history", "unknown"]

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MOMENT: Final = "under 1 min"
PERIODS: Final = {1: "in the last 24 h", 7: "in the last 7 days"}
UNLESS: Final = "unless other requests go first"


def about(ms: float) -> str:
    """An estimated time, no more precise than it is known: under 1 min, 6 min, 25 min, 2.5 h, 4
    days.
    """
    minutes = ms / MINUTE
    if minutes < 0.75:
        return MOMENT
    if minutes < 88:  # more would be rounded to 90
        return f"{max(1, round(minutes)) if minutes < 12 else 5 * round(minutes / 5)} min"
    hours = ms / HOUR
    if hours < 36:
        return f"{round(2 * hours) / 2 if hours < 5 else round(hours):g} h"
    return f"{max(2, round(ms / DAY))} days"


def by_history(
    found: SimilarRequests, pool: str, now: int, at_most: int | None, *, waits: bool
) -> m.ExpectedWait:
    """An estimate from past waits, with a bound if there is one. `waits`: the request is pending,
    so this is the remaining wait.
    """
    median, p90 = (
        None if one is None else one if at_most is None else min(one, at_most)
        for one in (found.expected.median, found.expected.p90)
    )
    assert median is not None  # otherwise there is no estimate
    kind = "requests of any size" if found.size is None else "similar requests"
    text = f"Expected {'remaining ' if waits else ''}wait: {_about(median)}"
    if p90 is None:
        text += ", possibly much longer"
    elif about(p90) != about(median):
        text += f", at most {about(p90)} in 9 of 10 cases"
    basis = f"{found.expected.based_on} {kind} {PERIODS[found.days]}"
    text += f' (based on {basis} in pool "{pool}").'
    return _body(
        "history",
        text + ("" if at_most is None else f" {_latest(at_most)}"),
        now,
        median,
        p90,
        at_most,
        found.expected.based_on,
    )


def bounded(at_most: int, now: int, why: str = "") -> m.ExpectedWait:
    """Only a bound by rules and notices. `why`: what ends by then; default: running times."""
    return _body("rules", _latest(at_most, why), now, at_most=at_most)


def unknown(now: int, why: str) -> m.ExpectedWait:
    """No estimate; `why` is the message."""
    return _body("none", why, now)


def _about(ms: float) -> str:
    when = about(ms)
    return when if when == MOMENT else f"about {when}"


def _latest(at_most: int, why: str = "") -> str:
    why = why or "running workloads reach their time limit by then"
    when = about(at_most)
    return f"{'Under 1 min' if when == MOMENT else f'At most {when}'}: {why}, {UNLESS}."


def _body(
    basis: Literal["history", "rules", "none"],
    message: str,
    now: int,
    median: float | None = None,
    p90: float | None = None,
    at_most: int | None = None,
    based_on: int = 0,
) -> m.ExpectedWait:
    return m.ExpectedWait(
        basis=basis,
        message=message,
        at=m.stamp(now),
        seconds_median=_seconds(median),
        seconds_p90=_seconds(p90),
        seconds_at_most=_seconds(at_most),
        based_on=based_on,
    )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else float(round(ms / 1000))
