"""The picture of `jupyter gpushare top`: what the program prints about a running server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

__all__ = ["take"]

COLUMNS: Final = 140
FILL: Final = "from jupyter_gpushare import simgpu; b = simgpu.alloc('{}'); b.fill(7)"
BUSY: Final = re.compile(r"running.* [1-9]\d* %")
COMMAND: Final = "jupyter gpushare top"
FONTS: Final = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""Of a web site; pictures in pages may load none."""


def take(picture: Path) -> None:
    """Two notebooks share the GPUs of a node, and a third one waits."""
    with TemporaryDirectory(prefix="gpushare-top-") as folder:
        server = Server(Path(folder) / "lab")
        try:
            server.start()
            _fill(server)
            picture.write_text(_drawn(_printed(server)))
        finally:
            server.stop()


def _fill(server: Server) -> None:
    for path, size in (("lesson.ipynb", "70GiB"), ("train.ipynb", "20GiB")):
        one = server.notebook("half", path)
        one.until("attached")
        one.ok(FILL.format(size))
    waiting = server.notebook("build", "evaluate.ipynb")
    eventually(lambda: waiting.view["queue_position"], "it waits, with its position")
    one.submit("simgpu.busy(120)")
    eventually(lambda: BUSY.search(_printed(server)), "the agent has reported the cell")


def _printed(server: Server) -> str:
    env = {**server.env, "GPUSHARE_STATE": str(server.state), "FORCE_COLOR": "1"}
    env |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    argv = [sys.executable, "-m", "jupyter_gpushare.cli", "top", "--once"]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout


def _drawn(printed: str) -> str:
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(printed))
    return console.export_svg(
        title=COMMAND, theme=MONOKAI, code_format=FONTS.sub("", CONSOLE_SVG_FORMAT), unique_id="top"
    )


if __name__ == "__main__":
    take(Path(sys.argv[1]))
