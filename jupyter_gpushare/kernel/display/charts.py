"""Memory and state of a notebook's share over time, in block characters. Takes samples, returns
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ..kernel_body import Json
from ..sizes import memory_text
from .state_words import STATE_WORDS, state_word

__all__ = ["history_text"]

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
KEYS: Final = ("attached", "suspended", "pending", "reclaiming", "detached")
LEGEND: Final = "  ".join(f"{MARKS[state]} {STATE_WORDS[state]}" for state in KEYS)


def history_text(samples: Sequence[Json], minutes: int) -> str:
    """Used, borrowed and guaranteed memory and the state, one character per period of time."""
    if not samples:
        return "There are no samples for this time."
    columns = _columns(samples)
    top = max(1, *(max(one["used_mib"], one["guaranteed_mib"]) for one in samples))
    now = samples[-1]

    def row(name: str, key: str) -> str:
        heights = _blocks([max(one[key] for one in column) for column in columns], top)
        return f"  {name:<11}{heights}  {memory_text(now[key])} now"

    states = "".join(MARKS.get(column[-1]["state"], "?") for column in columns)
    scale = f"full height: {memory_text(top)}"
    return "\n".join(
        [
            f"GPU memory of this notebook, {_span(samples, minutes)} ({scale})",
            row("used", "used_mib"),
            row("borrowed", "borrowed_mib"),
            row("guaranteed", "guaranteed_mib"),
            f"  {'state':<11}{states}  {state_word(now)} now",
            f"  {'':<11}{LEGEND}",
        ]
    )


def _columns(samples: Sequence[Json]) -> list[list[Json]]:
    """The samples of each column; a column without samples repeats the last one before it."""
    begin = _seconds(samples[0])
    length = max(_seconds(samples[-1]) - begin, 1e-9)
    columns: list[list[Json]] = [[] for _ in range(COLUMNS)]
    for one in samples:
        columns[min(COLUMNS - 1, int((_seconds(one) - begin) / length * COLUMNS))].append(one)
    for i, column in enumerate(columns):
        if not column:
            column.append(columns[i - 1][-1])
    return columns


def _blocks(values: Sequence[int], top: int) -> str:
    """A value above 0 is at least one eighth high."""
    highest = len(BLOCKS) - 1
    return "".join(
        BLOCKS[max(1, round(value / top * highest))] if value else BLOCKS[0] for value in values
    )


def _seconds(sample: Json) -> float:
    return datetime.fromisoformat(sample["time"]).timestamp()


def _span(samples: Sequence[Json], minutes: int) -> str:
    """The requested time, or the beginning of the samples if they do not cover it."""
    begin = _seconds(samples[0])
    if _seconds(samples[-1]) - begin > 0.9 * 60 * minutes:
        return f"the last {minutes} min"
    return f"since {datetime.fromtimestamp(begin).astimezone():%H:%M:%S}"
