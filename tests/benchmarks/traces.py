"""Where to get the public traces, which are not part of this project for reasons of licences."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["folder", "rows"]

GITHUB: Final = "https://raw.githubusercontent.com"
OPENB: Final = f"{GITHUB}/hkust-adsl/kubernetes-scheduler-simulator/main/data/csv/"
SOURCES: Final = {
    "openb_node_list_gpu_node.csv": OPENB,
    "openb_pod_list_default.csv": OPENB,
    "philly.csv": f"{GITHUB}/petuum/adaptdl/osdi21-artifact/simulator/traces/",
}


def folder(*names: str) -> Path | None:
    """The directory with all of these files: `GPUSHARE_TRACES`, or `../shared/data` beside the
    repository. None when a file is missing, after printing where to get it: benchmarks without
    their trace are skipped.
    """
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    place = Path(os.environ.get("GPUSHARE_TRACES") or beside)
    absent = [name for name in names if not (place / name).is_file()]
    if not absent:
        return place
    wanted = " ".join(SOURCES.get(name, OPENB) + name for name in absent)
    sys.stdout.write(
        f"skipped: download {', '.join(absent)} to a directory (curl -O for each of: {wanted}), "
        "and set GPUSHARE_TRACES to it\n"
    )
    return None


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
