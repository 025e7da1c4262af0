"""The Helm chart in this package."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.errors import Conflict, Unavailable
from jupyter_gpushare.core.model.reason import counted

__all__ = ["CHART", "write_chart"]

CHART: Final = Path(__file__).parent / "chart"


def write_chart(directory: str | Path) -> str:
    """Copies the chart; returns a text that says what was written.

    Raises:
        Conflict: the directory is not empty.
        Unavailable: it cannot be written.
    """
    target = Path(directory)
    if target.exists() and any(target.iterdir()):
        raise Conflict(f"the directory {target} is not empty", field="DIR")
    try:
        shutil.copytree(CHART, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    except OSError as error:
        raise Unavailable(f"the chart cannot be written: {error}", field="DIR") from error
    return counted(sum(path.is_file() for path in target.rglob("*")), "file")
