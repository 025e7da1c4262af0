"""An expected wait in words and as a body. Pure; times are ms."""

from __future__ import annotations

from typing import Final, Literal

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.estimates.wait_history import SimilarRequests

__all__ = ["about", "bounded", "by_history", "unknown"]

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MOMENT: Final = "less than a minute"
LATELY: Final = {1: "of the last day", 7: "of the last week"}
UNLESS: Final = "unless others come before it"


def about(ms: float) -> str:
    """A time that is an estimate, said no more exactly than it is known: less than a minute, 6 min,
    25 min, 2.5 h, 4 days.
    """
    minutes = ms / MINUTE
    if minutes < 0.75:
        return MOMENT
    if minutes < 88:  # which would be rounded to 90
        return f"{max(1, round(minutes)) if minutes < 12 else 5 * round(minutes / 5)} min"
    hours = ms / HOUR
    if hours < 36:
        return f"{round(2 * hours) / 2 if hours < 5 else round(hours):g} h"
    return f"{max(2, round(ms / DAY))} days"


def by_history(
    found: SimilarRequests, pool: str, now: int, at_most: int | None, *, waits: bool
) -> m.ExpectedWait:
    """What like requests of the past say, and the bound where there is one. `waits`: it waits
    already, so this is what is left.
    """
    median, p90 = (
        None if one is None else one if at_most is None else min(one, at_most)
        for one in (found.expected.median, found.expected.p90)
    )
    assert median is not None  # otherwise nothing was found
    like = "requests of any size" if found.size is None else "like requests"
    told = f"{'Probably' if about(median) == MOMENT else 'About'} {about(median)}{' more' if waits else ''}"
    if p90 is None:
        told += ", perhaps much longer"
    elif about(p90) != about(median):
        told += f", in 9 of 10 cases at most {about(p90)}"
    told += f" (going by {found.expected.based_on} {like} {LATELY[found.days]} in pool {pool})."
    return _body(
        "history",
        told + ("" if at_most is None else f" {_latest(at_most)}"),
        now,
        median,
        p90,
        at_most,
        found.expected.based_on,
    )


def bounded(at_most: int, now: int, why: str = "") -> m.ExpectedWait:
    """Only what rules and notices bound. `why`: what ends by then, instead of the longest running
    times.
    """
    return _body("rules", _latest(at_most, why), now, at_most=at_most)


def unknown(now: int, why: str) -> m.ExpectedWait:
    """Nothing is known, and the sentence says why."""
    return _body("none", why, now)


def _latest(at_most: int, why: str = "") -> str:
    why = why or "the longest running times of others are over by then"
    when = about(at_most)
    return (
        f"{'Within a minute' if when == MOMENT else f'In {when} at the latest'}: {why}, {UNLESS}."
    )


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
