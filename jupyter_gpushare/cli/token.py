"""`jupyter gpushare token create|list|revoke`: the tokens of people, servers and agents; asked of
the scheduler, or of its database.
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

    With --state-dir or --db-url no scheduler is asked: whoever may write to its database is an
    admin, so the very first token can be made before it runs.
    """


class _TokenStore:
    """Where tokens are kept: a scheduler, or its database."""

    def __init__(
        self, connect: Callable[[], Any], db_url: str | None, state_dir: str | None
    ) -> None:
        self._connect, self._db_url, self._state_dir = connect, db_url, state_dir

    def create(self, request: m.TokenRequest) -> m.TokenView:
        return self._ask(
            lambda tokens: tokens.create(request, _somebody()),
            lambda client: client.create_token(request),
        )

    def list(self) -> m.Tokens:
        return self._ask(lambda tokens: tokens.list(), lambda client: client.tokens())

    def revoke(self, id_: str) -> m.TokenView:
        return self._ask(
            lambda tokens: tokens.revoke(id_, _somebody()), lambda client: client.revoke_token(id_)
        )

    def _ask(
        self, here: Callable[[TokenService], T], there: Callable[[SchedulerClient], Awaitable[T]]
    ) -> T:
        if not self._db_url and not self._state_dir:
            return ask(self._connect(), there)
        with self._database() as tokens:
            return here(tokens)

    @contextmanager
    def _database(self) -> Iterator[TokenService]:
        """Made when it is not there yet. A scheduler that runs on it knows of a change within a
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


def _somebody() -> str:
    """Who works at the database itself, for the audit log: their unix user."""
    return f"{getpass.getuser()} (at the database)"


def _desk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where tokens are kept; the command gets its `desk` in their place."""

    @click.option("--db-url", help="Ask no scheduler: its database.")
    @click.option(
        "--state-dir",
        type=click.Path(file_okay=False),
        help="Ask no scheduler: the SQLite database in its state directory.",
    )
    @functools.wraps(command)
    def with_desk(
        *args: Any,
        connect: Callable[[], Any],
        db_url: str | None,
        state_dir: str | None,
        **more: Any,
    ) -> Any:
        if db_url and state_dir:
            raise InvalidInput("--db-url and --state-dir exclude each other", field="--db-url")
        return command(*args, desk=_TokenStore(connect, db_url, state_dir), **more)

    return late_scheduler_options(with_desk)


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["person", "server", "agent", "admin"]),
    default="person",
    show_default=True,
)
@click.option(
    "--expires", metavar="TIME", help="Lifetime such as 30d; without one it does not end."
)
@click.option(
    "--user",
    "users",
    multiple=True,
    help="Of a server: a user for whom it may ask; several times for several.  [default: everybody]",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Of a person: a group that they are in; several times for several.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the token into this new file (mode 0600) instead of printing it.",
)
@_desk_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def create(
    name: str,
    scope: str,
    expires: str | None,
    users: tuple[str, ...],
    groups: tuple[str, ...],
    output: str | None,
    desk: _TokenStore,
    as_json: bool,
) -> int:
    """A token for NAME: a user, a server or a node. It is shown once and kept nowhere."""
    if output is not None:
        _refuse_unless_new(Path(output))
    wanted = {
        "scope": scope,
        "name": name,
        "expires": expires,
        "users": list(users),
        "groups": list(groups),
    }
    made = desk.create(m.convert(m.TokenRequest, wanted))
    secret = str(made.token)
    if output is not None:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
        click.echo(f"token {made.id} of {made.name} is in {output}")
    else:
        click.echo(json.dumps(m.to_json(made), indent=2) if as_json else secret)
    return 0


def _refuse_unless_new(file: Path) -> None:
    """Before the token is made: one that cannot be written down would be lost."""
    if file.exists():
        raise click.UsageError(f"{file} exists already")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        why = "cannot be written to" if file.parent.is_dir() else "is not there"
        raise InvalidInput(f"the folder {file.parent} {why}", field="--output")


@token.command(name="list")
@_desk_options
@output_options(*_COLUMNS)
def list_(desk: _TokenStore, output: OutputFormat) -> int:
    """All tokens, without their secrets."""
    output.chosen(_COLUMNS, _COLUMNS)
    listed = desk.list()
    return output.show(
        [_row(one) for one in listed.tokens],
        _COLUMNS,
        document=m.to_json(listed),
        key="tokens",
        empty="There are no tokens.",
    )


def _row(one: m.TokenView) -> dict[str, str]:
    values = (
        one.id,
        one.scope,
        one.name,
        _carries(one),
        one.created,
        one.expires or "never",
        one.state,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _carries(one: m.TokenView) -> str:
    """For whom a server asks, or the groups of a person."""
    if one.scope == "server":
        return ", ".join(one.users) or "everybody"
    return ", ".join(f"group:{group}" for group in one.groups)


@token.command()
@click.argument("id_", metavar="ID", shell_complete=name_of("token"))
@_desk_options
def revoke(id_: str, desk: _TokenStore) -> int:
    """From now on the token with this ID opens nothing."""
    gone = desk.revoke(id_)
    click.echo(f"token {gone.id} of {gone.name} is revoked")
    return 0
