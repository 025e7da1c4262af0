"""Where the public traces are, and how to get them. They are no part of the project: their licences
are their owners' business.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["folder", "rows"]

SOURCES: Final = {
    "openb_node_list_gpu_node.csv": "https://raw.githubusercontent.com/hkust-adsl/kubernetes-scheduler-simulator/main/data/csv/",
    "openb_pod_list_default.csv": "https://raw.githubusercontent.com/hkust-adsl/kubernetes-scheduler-simulator/main/data/csv/",
    "philly.csv": "https://raw.githubusercontent.com/petuum/adaptdl/osdi21-artifact/simulator/traces/",
}


def folder(*names: str) -> Path | None:
    """The folder with all of these files: `GPUSHARE_TRACES`, else `../shared/data` beside the
    repository. None, after saying in one line how to get the data, when one of them is absent: a
    benchmark without its trace is left out, not failed.
    """
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    place = Path(os.environ.get("GPUSHARE_TRACES") or beside)
    absent = [name for name in names if not (place / name).is_file()]
    if not absent:
        return place
    wanted = " ".join(SOURCES[name] + name for name in absent)
    sys.stdout.write(
        f"left out: put {', '.join(absent)} into a folder and set GPUSHARE_TRACES to it (curl -O for each of: {wanted})\n"
    )
    return None


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file by column."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
