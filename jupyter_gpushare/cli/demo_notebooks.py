"""The notebooks of a demo: its folder is temporary, but what was changed in it is kept."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click

from jupyter_gpushare.addresses import home

__all__ = ["changed_files", "demo_notebook", "kept_notebooks"]

KEPT: Final = "demo-notebooks"
"""Folder of kept notebooks in the state directory of this user, with one folder per demo."""


def demo_notebook(name: str) -> bytes:
    """A notebook of the demo as it is shipped."""
    return resources.files("jupyter_gpushare").joinpath("demo", name).read_bytes()


@contextlib.contextmanager
def kept_notebooks(folder: Path, shipped: Sequence[str]) -> Iterator[None]:
    """At the end: moves what was changed or added to a lasting folder, and says where it is."""
    yield
    files = changed_files(folder, shipped)
    if not files:
        click.echo("The demo has ended. No notebook was changed.")
        return
    place = _move(folder, files, home() / KEPT / time.strftime("%Y-%m-%d-%H%M%S"))
    names = ", ".join(str(file.relative_to(folder)) for file in files)
    click.echo(f"The demo has ended. Changed notebooks are in {place}: {names}")


def changed_files(folder: Path, shipped: Sequence[str]) -> list[Path]:
    """Files that were added, and notebooks with other cells or outputs than the shipped ones. Files
    of Jupyter itself (checkpoints) do not count.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    visible = [path for path in found if not _is_hidden(path.relative_to(folder))]
    return [path for path in visible if not _is_shipped(path, folder, shipped)]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_shipped(path: Path, folder: Path, shipped: Sequence[str]) -> bool:
    name = str(path.relative_to(folder))
    return name in shipped and _cells(path.read_bytes()) == _cells(demo_notebook(name))


def _cells(notebook: bytes) -> Any:
    """Sources and outputs: JupyterLab changes metadata when it opens a notebook."""
    try:
        cells = json.loads(notebook)["cells"]
        return [("".join(cell["source"]), cell.get("outputs", [])) for cell in cells]
    except (ValueError, KeyError, TypeError):
        return notebook


def _move(folder: Path, files: Sequence[Path], target: Path) -> Path:
    """The place; a temporary folder where the home directory cannot be written."""
    try:
        target.mkdir(mode=0o700, parents=True)
    except OSError:
        target = Path(f"{folder.parent}-{KEPT}")
        target.mkdir(mode=0o700)
    for file in files:
        place = target / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, place)
    return target
