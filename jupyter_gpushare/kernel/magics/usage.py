"""Usage of `%gpu`: the verbs with a line each, and the overview of `%gpu --help` and `%gpu?`.

Loaded with the extension, when every kernel starts, so it imports nothing.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOCS", "OVERVIEW", "SUMMARIES"]

DOCS: Final = "docs/reference/notebook.md in the jupyter-gpushare repository"
SUMMARIES: Final = {
    "status": "show the share of this notebook (also `%gpu` alone)",
    "request": "request a GPU, or change the share, and wait for it",
    "cancel": "cancel the pending request; the current share stays",
    "release": "release the GPU; the kernel keeps running without one",
    "wait": "wait for the requested GPU",
    "why": "show why this notebook waits, with numbers and what would help",
    "what-if": "show whether a request would start now; changes nothing",
    "suspend": "save the GPU memory to host memory; the next cell restores it",
    "resume": "restore the saved GPU memory",
    "pin": "do not suspend this notebook while it is idle",
    "unpin": "allow suspending this notebook while it is idle",
    "queue": "list the queues with quota, fair share and allocation",
    "nodes": "list the nodes and their GPUs",
    "history": "show memory and share over time, and the events",
}


def _overview() -> str:
    width = max(map(len, SUMMARIES))
    verbs = "\n".join(f"  {verb:<{width}}  {summary}" for verb, summary in SUMMARIES.items())
    return f"""\
Share GPUs between notebooks.

usage: %gpu [VERB] [OPTIONS]     one of the verbs below
       %%gpu SHARE [OPTIONS]     run one cell with a share, then restore the previous one

verbs:
{verbs}

`%gpu VERB --help` shows the options and examples of a verb.

examples:
  %gpu request 0.5                  half a GPU
  %gpu request --memory 20GiB       an amount of GPU memory
  %gpu what-if 1 --project vision   ask before requesting
  %%gpu 1                           one cell with a whole GPU

Documentation: {DOCS}
"""


OVERVIEW: Final = _overview()
