"""`jupyter gpushare install-service`: writes the systemd unit of the scheduler or the agent."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from jupyter_gpushare.cli import gpushare
from jupyter_gpushare.cli.systemd_units import UNITS, Unit
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, Unavailable

__all__ = ["install_service"]

SYSTEM_UNITS: Final = "/etc/systemd/system"
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - not opened
"""The unit of the scheduler hides these (ProtectHome=, PrivateTmp=)."""
USER_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]*")


@click.command("install-service")
@click.argument("service", type=click.Choice(sorted(UNITS)))
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS...]")
@click.option(
    "--unit-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=SYSTEM_UNITS,
    show_default=True,
    help="Folder for the unit.",
)
@click.option(
    "--user", default="gpushare", show_default=True, help="Account that runs the scheduler."
)
@click.option("--print", "only_print", is_flag=True, help="Print the unit, write nothing.")
@click.option("--force", is_flag=True, help="Replace a unit with other content.")
def install_service(
    service: str, options: tuple[str, ...], unit_dir: Path, user: str, only_print: bool, force: bool
) -> int:
    """Write the systemd unit of the scheduler or of the node agent, for one machine with several
    users, and print what to do next. Nothing is started.

    OPTIONS are added to the command of the service, and replace those of the same name:
    install-service agent -- --simulate A100:2
    """
    unit = UNITS[service]
    _check_options(unit, options)
    if not USER_NAME.fullmatch(user):
        raise InvalidInput(f"a user name has letters, digits, - and _, got {user!r}", field="user")
    text = unit.text(_program(), options, user=user)
    if only_print:
        click.echo(text, nl=False)
        return 0
    path = unit_dir / unit.file_name
    _write(path, text, force)
    _print_next(unit, path, user)
    return 0


def _check_options(unit: Unit, options: tuple[str, ...]) -> None:
    """Raises click's UsageError, as the service itself would at each start."""
    name, *rest = unit.arguments
    command = gpushare.get_command(click.Context(gpushare), name)
    assert command is not None
    command.make_context(name, [*rest, *options])


def _program() -> str:
    """`jupyter` of this environment. Not resolved: a link to another folder may be intended."""
    return str(Path(sys.executable).with_name("jupyter"))


def _write(path: Path, text: str, force: bool) -> None:
    try:
        if path.exists() and path.read_text() != text and not force:
            raise Conflict(
                "the unit exists with other content; --force replaces it", field=str(path)
            )
        path.write_text(text)
        path.chmod(0o644)
    except OSError as error:
        raise Unavailable(
            f"the unit cannot be written: {error.strerror}", field=str(path)
        ) from None


def _print_next(unit: Unit, path: Path, user: str) -> None:
    click.echo(f"wrote {path}")
    if "ProtectHome=yes" in unit.settings and _program().startswith(
        tuple(f"{place}/" for place in HIDDEN)
    ):
        click.echo(
            f"warning: the service cannot read {_program()}, which is in a folder that the unit"
            " hides; install jupyter-gpushare in /opt/gpushare, for example",
            err=True,
        )
    click.echo("next:")
    for line in (*unit.before, "systemctl daemon-reload", f"systemctl enable --now {unit.name}"):
        click.echo(f"  {line.format(user=user)}")
