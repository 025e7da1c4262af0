"""`jupyter gpushare token create|list|revoke`: tokens of persons, servers and agents, through the
scheduler or its database.
"""

from __future__ import annotations

import functools
import getpass
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of
from jupyter_gpushare.cli.discovery import ask, late_scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput

if TYPE_CHECKING:
    from jupyter_gpushare.scheduler.auth.identity import TokenService

__all__ = ["token"]

T = TypeVar("T")
_COLUMNS: Final = ("id", "scope", "name", "for", "created", "expires", "state")


@click.group()
def token() -> None:
    """Create, list and revoke tokens (admins only).

    With --state-dir or --db-url, the command uses the database without the scheduler, for example
    for the first token.
    """


class _TokenStore:
    """The tokens of a scheduler, through its API or its database."""

    def __init__(
        self, connect: Callable[[], Any], db_url: str | None, state_dir: str | None
    ) -> None:
        self._connect, self._db_url, self._state_dir = connect, db_url, state_dir

    def create(self, request: m.TokenRequest) -> m.TokenView:
        return self._call(
            lambda tokens: tokens.create(request, _local_user()),
            lambda client: client.create_token(request),
        )

    def list(self) -> m.Tokens:
        return self._call(lambda tokens: tokens.list(), lambda client: client.tokens())

    def revoke(self, id_: str) -> m.TokenView:
        return self._call(
            lambda tokens: tokens.revoke(id_, _local_user()),
            lambda client: client.revoke_token(id_),
        )

    def _call(
        self, here: Callable[[TokenService], T], there: Callable[[SchedulerClient], Awaitable[T]]
    ) -> T:
        if not self._db_url and not self._state_dir:
            return ask(self._connect(), there)
        with self._database() as tokens:
            return here(tokens)

    @contextmanager
    def _database(self) -> Iterator[TokenService]:
        """Opens the database, and creates it if missing. A running scheduler sees changes within a
        second.
        """
        from jupyter_gpushare.scheduler.auth.identity import TokenService
        from jupyter_gpushare.scheduler.server import make_state_dir, own_database, wall_clock
        from jupyter_gpushare.scheduler.store.store import Store

        url = self._db_url
        if not url:
            folder = Path(str(self._state_dir))
            make_state_dir(folder)
            url = own_database(folder / "scheduler.sqlite")
        store = Store(url, upgrade=False)
        try:
            yield TokenService(store, wall_clock)
        finally:
            store.close()


def _local_user() -> str:
    """The actor for the audit log: the unix user."""
    return f"{getpass.getuser()} (at the database)"


def _token_store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for the place of tokens; the command receives `tokens`."""

    @click.option("--db-url", help="Use this database instead of the scheduler.")
    @click.option(
        "--state-dir",
        type=click.Path(file_okay=False),
        help="Use the SQLite database in this state directory instead of the scheduler.",
    )
    @functools.wraps(command)
    def with_store(
        *args: Any,
        connect: Callable[[], Any],
        db_url: str | None,
        state_dir: str | None,
        **more: Any,
    ) -> Any:
        if db_url and state_dir:
            raise InvalidInput("--db-url and --state-dir exclude each other", field="--db-url")
        return command(*args, tokens=_TokenStore(connect, db_url, state_dir), **more)

    return late_scheduler_options(with_store)


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["person", "server", "agent", "admin"]),
    default="person",
    show_default=True,
)
@click.option("--expires", metavar="TIME", help="Lifetime such as 30d. Default: unlimited.")
@click.option(
    "--user",
    "users",
    multiple=True,
    help="For a server: a user that it may act for; repeatable.  [default: all users]",
)
@click.option("--group", "groups", multiple=True, help="For a person: a group; repeatable.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the token to this new file (mode 0600) instead of printing it.",
)
@_token_store_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def create(
    name: str,
    scope: str,
    expires: str | None,
    users: tuple[str, ...],
    groups: tuple[str, ...],
    output: str | None,
    tokens: _TokenStore,
    as_json: bool,
) -> int:
    """Create a token for NAME: a user, a server or a node. It is shown only once."""
    if output is not None:
        _refuse_unless_new(Path(output))
    wanted = {
        "scope": scope,
        "name": name,
        "expires": expires,
        "users": list(users),
        "groups": list(groups),
    }
    made = tokens.create(m.convert(m.TokenRequest, wanted))
    secret = str(made.token)
    if output is not None:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
        click.echo(f"token {made.id} of {made.name} was written to {output}")
    else:
        click.echo(json.dumps(m.to_json(made), indent=2) if as_json else secret)
    return 0


def _refuse_unless_new(file: Path) -> None:
    """Checked before the token is created, which would be lost otherwise."""
    if file.exists():
        raise click.UsageError(f"{file} exists already")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        why = "is not writable" if file.parent.is_dir() else "does not exist"
        raise InvalidInput(f"the folder {file.parent} {why}", field="--output")


@token.command(name="list")
@_token_store_options
@output_options(*_COLUMNS)
def list_(tokens: _TokenStore, output: OutputFormat) -> int:
    """List all tokens without their secrets."""
    output.chosen(_COLUMNS, _COLUMNS)
    listed = tokens.list()
    return output.show(
        [_row(one) for one in listed.tokens],
        _COLUMNS,
        document=m.to_json(listed),
        key="tokens",
        empty="No tokens.",
    )


def _row(one: m.TokenView) -> dict[str, str]:
    values = (
        one.id,
        one.scope,
        one.name,
        _subjects(one),
        one.created,
        one.expires or "never",
        one.state,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _subjects(one: m.TokenView) -> str:
    """The users of a server, or the groups of a person."""
    if one.scope == "server":
        return ", ".join(one.users) or "all users"
    return ", ".join(f"group:{group}" for group in one.groups)


@token.command()
@click.argument("id_", metavar="ID", shell_complete=name_of("token"))
@_token_store_options
def revoke(id_: str, tokens: _TokenStore) -> int:
    """Revoke the token with this ID."""
    gone = tokens.revoke(id_)
    click.echo(f"token {gone.id} of {gone.name} is revoked")
    return 0
