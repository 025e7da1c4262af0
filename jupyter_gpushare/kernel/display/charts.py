"""A notebook's share over time, drawn: block characters for a terminal, SVG for a notebook. Takes
samples, gives strings; loads nothing big.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from jupyter_gpushare.core.model.units import memory_text

from ..connection import Json

__all__ = ["history_html", "history_text"]

COLUMNS: Final = 60
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
MARKS: Final = {
    "detached": ".",
    "pending": "w",
    "granted": "w",
    "attached": "#",
    "suspended": "z",
    "reclaiming": "!",
    "lost": "x",
}
MARKS_KEY: Final = "# on a GPU  z saved in host memory  w waiting  ! being taken back  . no share"
WIDTH: Final = 640
HEIGHT: Final = 120
LEFT: Final = 64
"""Room for the words on the axis."""


def history_text(samples: Sequence[Json], minutes: int) -> str:
    """Memory, guarantee and state as lines of one character per time, and what their height means."""
    if not samples:
        return "Nothing is known of this time."
    columns = _columns(samples)
    top = _top(samples)
    used = _blocks(
        [max((one["used_mib"] for one in column), default=None) for column in columns], top
    )
    share = _blocks(
        [max((one["guaranteed_mib"] for one in column), default=None) for column in columns], top
    )
    state = "".join(MARKS.get(column[-1]["state"], "?") if column else " " for column in columns)
    return "\n".join(
        [
            f"GPU memory of this notebook, {_span(samples, minutes)} (full height: {memory_text(top)})",
            f"  used       {used}  {memory_text(samples[-1]['used_mib'])} now",
            f"  guaranteed {share}  {memory_text(samples[-1]['guaranteed_mib'])} now",
            f"  state      {state}  {samples[-1]['state']} now",
            f"             {MARKS_KEY}",
        ]
    )


def history_html(samples: Sequence[Json], minutes: int) -> str:
    """The same as a picture; its title says what the text says."""
    if not samples:
        return "<p>Nothing is known of this time.</p>"
    top, times = _top(samples), [_seconds(one) for one in samples]
    begin, length = times[0], max(times[-1] - times[0], 1.0)
    at = [LEFT + (WIDTH - LEFT) * (time - begin) / length for time in times]
    own = _steps(
        at, [min(one["used_mib"], one["used_mib"] - one["borrowed_mib"]) for one in samples], top
    )
    all_used = _steps(at, [one["used_mib"] for one in samples], top)
    share = _steps(at, [one["guaranteed_mib"] for one in samples], top)
    span = _span(samples, minutes)
    now = samples[-1]
    title = (
        f"GPU memory of this notebook, {span}: {memory_text(now['used_mib'])} used now, {memory_text(now['guaranteed_mib'])} guaranteed, "
        f"at most {memory_text(max(one['used_mib'] for one in samples))} used"
    )
    return _SVG.format(
        title=html.escape(title),
        width=WIDTH,
        height=HEIGHT + 34,
        left=LEFT,
        bottom=HEIGHT,
        words=HEIGHT + 14,
        key=HEIGHT + 30,
        top=memory_text(top),
        begin=_clock(samples[0]),
        end=_clock(now),
        own=_area(own),
        all=_area(all_used),
        share=" ".join(f"{x:.1f},{y:.1f}" for x, y in share),
        key2=LEFT + 150,
        key3=LEFT + 260,
    )


_GREEN, _ORANGE, _INK = (
    "var(--jp-success-color1,#388e3c)",
    "var(--jp-warn-color1,#f57c00)",
    "var(--jp-ui-font-color1,currentColor)",
)
# what is borrowed lies behind what is within the share, so that only what is above it shows
_SVG: Final = (
    '<svg viewBox="0 0 {width} {height}" role="img" style="max-width:{width}px;width:100%;font:11px sans-serif" '
    'xmlns="http://www.w3.org/2000/svg"><title>{title}</title>'
    f'<g fill="{_ORANGE}" fill-opacity=".55"><polygon points="{{all}}"/></g>'
    f'<g fill="{_GREEN}"><polygon points="{{own}}"/></g>'
    f'<g fill="none" stroke="{_INK}"><polyline points="{{share}}" stroke-dasharray="5 3"/>'
    '<line x1="{left}" y1="{bottom}" x2="{width}" y2="{bottom}"/></g>'
    f'<g fill="{_INK}"><text x="{{left}}" dx="-6" y="12" text-anchor="end">{{top}}</text>'
    '<text x="{left}" dx="-6" y="{bottom}" text-anchor="end">0</text><text x="{left}" y="{words}">{begin}</text>'
    '<text x="{width}" y="{words}" text-anchor="end">{end}</text>'
    f'<text x="{{left}}" y="{{key}}"><tspan fill="{_GREEN}">■</tspan> used within the share</text>'
    f'<text x="{{key2}}" y="{{key}}"><tspan fill="{_ORANGE}">■</tspan> borrowed</text>'
    '<text x="{key3}" y="{key}">- - guaranteed</text></g></svg>'
)


def _columns(samples: Sequence[Json]) -> list[list[Json]]:
    """The samples of each character's time; a time without any holds on to what was true before it."""
    begin = _seconds(samples[0])
    length = max(_seconds(samples[-1]) - begin, 1e-9)
    columns: list[list[Json]] = [[] for _ in range(COLUMNS)]
    for one in samples:
        columns[min(COLUMNS - 1, int((_seconds(one) - begin) / length * COLUMNS))].append(one)
    for i, column in enumerate(columns):
        if not column and i:
            column.append(columns[i - 1][-1])
    return columns


def _blocks(values: Sequence[int | None], top: int) -> str:
    """Something that is there is never shown as nothing."""
    return "".join(
        BLOCKS[0 if not value else max(1, round(value / top * (len(BLOCKS) - 1)))]
        for value in values
    )


def _top(samples: Sequence[Json]) -> int:
    return max(1, *(max(one["used_mib"], one["guaranteed_mib"]) for one in samples))


def _steps(at: Sequence[float], values: Sequence[int], top: int) -> list[tuple[float, float]]:
    """A value holds until the next sample."""
    heights = [HEIGHT - value / top * (HEIGHT - 4) for value in values]
    points = [(at[0], heights[0])]
    for x, before, after in zip(at[1:], heights, heights[1:], strict=False):
        points += [(x, before), (x, after)]
    return points


def _area(points: Sequence[tuple[float, float]]) -> str:
    closed = [(points[0][0], float(HEIGHT)), *points, (points[-1][0], float(HEIGHT))]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in closed)


def _seconds(sample: Json) -> float:
    return datetime.fromisoformat(sample["time"]).timestamp()


def _clock(sample: Json) -> str:
    return datetime.fromisoformat(sample["time"]).astimezone().strftime("%H:%M:%S")


def _span(samples: Sequence[Json], minutes: int) -> str:
    """What the samples cover, when that is less than what was asked."""
    covered = _seconds(samples[-1]) - _seconds(samples[0])
    return (
        f"the last {minutes} min" if covered > 0.9 * 60 * minutes else f"since {_clock(samples[0])}"
    )
