"""`enable`, `disable`: our provisioner as the default of the tools of one Python environment."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Literal

import click

from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable
from jupyter_gpushare.default_provisioner import PTH_NAME, PTH_TEXT

__all__ = ["disable", "enable"]

Scope = Literal["installed", "user", "sys-prefix", "system"]


def _scopes(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in (
        ("system", "All programs of this machine's own Python (not of virtual environments)."),
        ("sys-prefix", "Programs of this Python environment."),
        ("user", "Your programs of this Python version, outside of virtual environments."),
    ):
        option = click.option(f"--{name}", "scope", flag_value=name, help=text)
        command = option(command)
    return command


@click.command()
@_scopes
def enable(scope: Scope | None) -> int:
    """Start the kernels of papermill, nbconvert, `jupyter run` and other tools through gpushare,
    also if their kernelspec names no provisioner.

    Without an option: for the environment in which jupyter-gpushare is installed. Other
    environments are not changed: their tools would not find the provisioner.
    """
    folder = _folder(scope or "installed")
    path = folder / PTH_NAME
    try:
        path.write_text(PTH_TEXT)
    except OSError as error:
        raise Unavailable(
            f"the file cannot be written: {error.strerror}", field=str(path)
        ) from None
    click.echo(f"enabled for programs of {_prefix(folder)} ({path})")
    return 0


@click.command()
@_scopes
def disable(scope: Scope | None) -> int:
    """Undo `enable`: kernels whose kernelspec names no provisioner start without gpushare."""
    path = _folder(scope or "installed") / PTH_NAME
    try:
        path.unlink()
    except FileNotFoundError:
        click.echo(f"was not enabled (no {path})")
    except OSError as error:
        raise Unavailable(
            f"the file cannot be removed: {error.strerror}", field=str(path)
        ) from None
    else:
        click.echo(f"disabled ({path} removed)")
    return 0


def _folder(scope: Scope) -> Path:
    """The site-packages folder of a scope. Raises InvalidInput: it would be read by programs that
    do not find our package.
    """
    installed = Path(str(distribution("jupyter-gpushare").locate_file(""))).resolve()
    if scope == "installed":
        return installed
    in_environment = sys.prefix != sys.base_prefix
    if scope == "system" and in_environment:
        raise InvalidInput("this Python is a virtual environment; use --sys-prefix", field="system")
    user = Path(site.getusersitepackages())
    folder = user if scope == "user" else Path(sysconfig.get_path("purelib"))
    if folder.resolve() != installed:
        raise InvalidInput(
            f"jupyter-gpushare is installed in {installed}, not in {folder}: programs that read"
            " that folder would not find the provisioner",
            field=scope,
        )
    return folder


def _prefix(folder: Path) -> str:
    return "this user" if folder == Path(site.getusersitepackages()) else sys.prefix
