"""The program that starts a kernel without a Jupyter server: its name, and whether it runs inside a
share already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

__all__ = ["inherited", "is_inside_share", "tool_name"]

LAUNCH: Final = "GPUSHARE_LAUNCH"
"""Marks all processes of a command or kernel with a share."""
OF_THE_OTHER_KERNEL: Final = (
    "GPUSHARE_AGENT",
    "GPUSHARE_TOKEN_FILE",
    "GPUSHARE_WANTS_GPU",
    "GPUSHARE_PROBLEM",
)
"""With these a kernel would speak to the agent in the place of the one that it runs in."""
VOILA_PATH: Final = "/voila/render/"


def is_inside_share(env: Mapping[str, str]) -> bool:
    """Whether this program was started by `jupyter gpushare run` or in a notebook that we govern:
    its processes, and their GPU memory, count to that share.
    """
    return bool(env.get(LAUNCH))


def inherited(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a kernel that uses the share around it."""
    return {name: value for name, value in env.items() if name not in OF_THE_OTHER_KERNEL}


def tool_name(env: Mapping[str, str]) -> str:
    """The notebook that the program runs, else the program."""
    page = env.get("SCRIPT_NAME", "")
    if VOILA_PATH in page:
        return page.partition(VOILA_PATH)[2]
    notebooks = [word for word in sys.argv[1:] if word.endswith(".ipynb")]
    return notebooks[0] if notebooks else PurePath(sys.argv[0]).name
