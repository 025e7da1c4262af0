"""Programs that run notebooks without a Jupyter server, beside the server of a story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.environments import ROOT, python_of
from tests.story.jupyter_process import Server

__all__ = ["ALLOCATE", "STATE", "TREE", "Tool", "notebook_file", "program", "qtconsole", "tool"]

ALLOCATE = "from jupyter_gpushare import simgpu; b = simgpu.alloc('1GiB'); print('on a GPU')"
TREE = {"PYTHONPATH": str(ROOT)}
"""For programs of another environment."""
STATE = "from jupyter_gpushare import gpu; print(gpu.status()['state'])"


def notebook_file(folder: Path, name: str, spec: str, *cells: str) -> Path:
    """A notebook of these cells, for that kernelspec."""
    made = [
        {
            "cell_type": "code",
            "source": cell,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for cell in cells
    ]
    kernelspec = {"name": spec, "display_name": spec, "language": "python"}
    content = {"cells": made, "metadata": {"kernelspec": kernelspec}, "nbformat": 4}
    path = folder / name
    path.write_text(json.dumps({**content, "nbformat_minor": 4}))
    return path


class Tool:
    """One running program."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process, self._log = process, log

    @property
    def text(self) -> str:
        """Its output so far."""
        return self._log.read_text()

    def wait(self, within: float = 60) -> int:
        """Its exit status."""
        return self.process.wait(within)


def tool(server: Server, name: str, *options: str, **environ: str) -> AbstractContextManager[Tool]:
    """`program`, of our environment."""
    return program(server, str(Path(sys.executable).with_name(name)), *options, **environ)


@contextmanager
def program(
    server: Server, *argv: str, stdin: int = subprocess.DEVNULL, **environ: str
) -> Iterator[Tool]:
    """Start a program in the server's folder; killed at the end."""
    log = server.folder / f"tool-{len(list(server.folder.glob('tool-*')))}.log"
    env = {**server.env, "GPUSHARE_STATE": str(server.state), **environ}
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv, env=env, stdout=file, stderr=file, stdin=stdin, cwd=server.folder
        )
    try:
        yield Tool(process, log)
    finally:
        process.kill()
        process.wait()


def qtconsole(spec: str, *cells: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command line and environment of a console that runs these cells and closes; skips the test
    where Qt cannot start.
    """
    python, environ = str(python_of("qt")), {**TREE, "QT_QPA_PLATFORM": "offscreen"}
    code = "from qtpy.QtWidgets import QApplication; QApplication([])"
    env = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"Qt does not start on this machine: {done.stderr.strip()[-300:]}")
    script = Path(__file__).with_name("typed_qtconsole.py")
    return (python, str(script), spec, *cells), environ
