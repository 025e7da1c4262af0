"""`jupyter gpushare token create|list|revoke`: who may talk to the scheduler. A token is shown once, when it is made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from jupyter_gpushare.cli.connect import Where, call, reaches_scheduler
from jupyter_gpushare.cli.query import print_rows, table_options
from jupyter_gpushare.core.errors import InvalidInput

__all__ = ["token"]

SCOPES = ("person", "server", "agent", "admin")


@click.group()
def token() -> None:
    """Tokens of people, Jupyter servers, node agents and admins."""


@token.command()
@reaches_scheduler
@click.argument("name")
@click.option("--scope", type=click.Choice(SCOPES), default="person", show_default=True, help="What it permits.")
@click.option("--expires", metavar="TIME", help="Its lifetime, as 30d; default: for ever.")
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write it to this new file (mode 0600).")
@click.option("--json", "form", flag_value="json", help="JSON, with everything.")
def create(where: Where, name: str, scope: str, expires: str | None, out: str | None, form: str | None) -> int:
    """Make a token for NAME (a user, server or node) and print it. It cannot be shown again."""
    from jupyter_gpushare import messages as m

    if out is not None and Path(out).exists():
        raise InvalidInput("the file is there already", field=out)
    made = call(where, lambda client: client.create_token(m.TokenRequest(scope=scope, name=name, expires=expires)))  # type: ignore[arg-type]  # click.Choice
    body = m.to_json(made)
    if out is not None:
        _keep(Path(out), body.pop("token"))
    if form == "json":
        click.echo(json.dumps(body, indent=1))
    elif out is None:
        click.echo(made.token)
        click.echo(f"token {made.id} for {name} ({scope}); it is not shown again", err=True)
    else:
        click.echo(f"token {made.id} for {name} ({scope}) is in {out}")
    return 0


def _keep(file: Path, secret: str) -> None:
    """Only its owner can read it, from its first moment."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secret + "\n")
    except OSError as error:
        raise InvalidInput(f"the token cannot be written: {error.strerror}; revoke it", field=str(file)) from None


@token.command("list")
@reaches_scheduler
@table_options
def list_(where: Where, form: str | None, columns: str | None) -> int:
    """All tokens, oldest first; their secrets are not known to anybody."""
    from jupyter_gpushare import messages as m

    rows = m.to_json(call(where, lambda client: client.tokens()))["tokens"]
    known = [name for name in m.TokenView.__struct_fields__ if name != "token"]
    return print_rows(form, "tokens", rows, known, columns, known)


@token.command()
@reaches_scheduler
@click.argument("id_", metavar="ID")
def revoke(where: Where, id_: str) -> int:
    """End the token of this ID, now and for ever."""
    gone = call(where, lambda client: client.revoke_token(id_))
    click.echo(f"token {gone.id} of {gone.name} ({gone.scope}) is revoked")
    return 0
