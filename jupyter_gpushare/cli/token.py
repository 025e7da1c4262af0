"""`jupyter gpushare token create|list|revoke`: the tokens of people, servers and agents."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.finding import ask, scheduler_options
from jupyter_gpushare.cli.tables import table
from jupyter_gpushare.client import HttpTransport

__all__ = ["token"]


@click.group()
def token() -> None:
    """Create, list and revoke tokens (admins only)."""


@token.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(["person", "server", "agent", "admin"]), default="person", show_default=True)
@click.option("--expires", metavar="TIME", help="Lifetime such as 30d; without one it does not end.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write the token into this new file (mode 0600) instead of printing it.")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def create(name: str, scope: str, expires: str | None, output: str | None, transport: HttpTransport, as_json: bool) -> int:
    """A token for NAME: a user, a server or a node. It is shown once and kept nowhere."""
    if output is not None and Path(output).exists():
        raise click.UsageError(f"{output} exists already")
    request = m.TokenRequest(scope=scope, name=name, expires=expires)  # type: ignore[arg-type]  # click has checked the choice
    made = ask(transport, lambda client: client.create_token(request))
    secret = str(made.token)
    if output is not None:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
        click.echo(f"token {made.id} of {made.name} is in {output}")
    else:
        click.echo(json.dumps(m.to_json(made), indent=2) if as_json else secret)
    return 0


@token.command(name="list")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def list_(transport: HttpTransport, as_json: bool) -> int:
    """All tokens, without their secrets."""
    listed = ask(transport, lambda client: client.tokens())
    if as_json:
        click.echo(json.dumps(m.to_json(listed), indent=2))
        return 0
    rows = [[t.id, t.scope, t.name, t.created, t.expires or "never", "revoked or expired" if t.revoked else "good"] for t in listed.tokens]
    click.echo(table("", ["id", "scope", "name", "created", "expires", "state"], rows))
    return 0


@token.command()
@click.argument("id_", metavar="ID")
@scheduler_options
def revoke(id_: str, transport: HttpTransport) -> int:
    """From now on the token with this ID opens nothing."""
    gone = ask(transport, lambda client: client.revoke_token(id_))
    click.echo(f"token {gone.id} of {gone.name} is revoked")
    return 0
