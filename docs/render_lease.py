"""Writes docs/lease.md from the table in jupyter_gpushare/core/model/lease.py, so that picture and
code cannot part.

Run `python docs/render_lease.py` after a change of the table; a test fails while the page is stale.
"""

from __future__ import annotations

from pathlib import Path

from jupyter_gpushare.core.model.lease import HOLDING, TRANSITIONS, LeaseState, diagram

PAGE = Path(__file__).with_name("lease.md")

HEAD = """\
# The life of a lease

<!-- Written by docs/render_lease.py from the table in jupyter_gpushare/core/model/lease.py; do not edit. -->

A lease is an allocation in force, held by one pod until it is released or taken back.
A fact that a state has no place for is refused and counted, never ignored.
"""


def render() -> str:
    """The whole page: the diagram, then what each state has a place for."""
    rows = [
        f"| `{state}` | {'yes' if state in HOLDING else 'no'} | {_facts(state)} |"
        for state in LeaseState
    ]
    table = "\n".join(["| state | holds its spot | facts → next state |", "|---|---|---|", *rows])
    return f"{HEAD}\n```mermaid\n{diagram()}\n```\n\n{table}\n"


def _facts(state: LeaseState) -> str:
    return (
        ", ".join(f"{fact} → `{following}`" for fact, following in TRANSITIONS[state].items())
        or "none"
    )


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
