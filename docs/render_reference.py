"""Generates pages of docs/reference from tables in the code: commands, routes, permissions,
columns, node pool options, and (in the modules beside it) codes, settings, metrics and bodies.

Run `make schema` after a change; `--check` writes nothing and exits with 1, naming the page, if a
page is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from render_bodies import bodies
from render_codes import errors
from render_settings import metrics, settings

from jupyter_gpushare.cli import COMMANDS, gpushare
from jupyter_gpushare.core.model.pool_option import Choice, Duration, Settings, WholeNumber
from jupyter_gpushare.core.pool_options import registered
from jupyter_gpushare.messages import (
    NodeRow,
    PersonRow,
    PoolRow,
    ProjectRow,
    QueueRow,
    WaitingRow,
    columns_of,
)
from jupyter_gpushare.routes import JUPYTER_ROUTES, ROUTES, Route
from jupyter_gpushare.scheduler.auth.permissions import CALLERS, REACH, WORDS, Caller, opens, reach
from jupyter_gpushare.scheduler.policy.policy_file import policy_schema

FOLDER = Path(__file__).with_name("reference")
WRITTEN = "<!-- Written by docs/render_reference.py; do not edit. -->"
WIDTH = 100
"""Of the help texts, whatever terminal the script runs in."""


def commands() -> str:
    """The page of commands: one line, then the help of each as it prints it."""
    parts = [
        "# Commands",
        WRITTEN,
        "`jupyter gpushare COMMAND`. Errors are one line on stderr. Exit status 2: invalid input.",
    ]
    looks = {**gpushare.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    group = click.Context(gpushare, info_name="jupyter gpushare", **looks)
    for name in COMMANDS:
        command = gpushare.get_command(group, name)
        assert command is not None
        parts += [f"## {name}", f"```text\n{command_help(command, name, group)}\n```"]
        if isinstance(command, click.Group):
            parts += [
                f"```text\n{command_help(sub, f'{name} {key}', group)}\n```"
                for key, sub in command.commands.items()
            ]
    return "\n\n".join(parts) + "\n"


def command_help(command: click.Command, name: str, parent: click.Context) -> str:
    """What `jupyter gpushare NAME --help` prints, in our width."""
    return command.get_help(click.Context(command, info_name=name, parent=parent))


def rest() -> str:
    """The page of addresses, both sides."""
    head = (
        "The bodies are in [openapi.json](../openapi.json) (scheduler;"
        " [as a page](rest-bodies.md)) and, as TypeScript, in"
        " [schema.ts](../../labextension/src/schema.ts) (Jupyter server). Every error has the body"
        ' `{"error": {"code", "message", "field"?}}`; `field` names the invalid field.'
        " Tables are also available as CSV: `?format=csv&columns=a,b`. Times are ISO 8601 with a"
        " zone, GPUs are numbers, memory is in MiB."
    )
    jupyter = (
        "Under the server's base URL, with Jupyter's own authentication, authorizer (resource"
        " `gpushare`) and XSRF rules."
    )
    scheduler = (
        "Bearer tokens, or peer credentials on a unix socket. `open` needs none, `secret`"
        " a key in its query, `known` accepts any, `person` is a person or a server; an admin may"
        " do everything. Details: [permissions](access.md)."
    )
    parts = [
        "# REST and streams",
        WRITTEN,
        head,
        "## Jupyter server",
        jupyter,
        table(JUPYTER_ROUTES),
        "## Scheduler",
        scheduler,
        table(ROUTES),
    ]
    return "\n\n".join(parts) + "\n"


def table(routes: tuple[Route, ...]) -> str:
    rows = [
        f"| `{route.verb} {route.path}` | {route.scope} | {route.summary} |" for route in routes
    ]
    return "\n".join(["| | who | |", "|---|---|---|", *rows])


def access() -> str:
    """The page of permissions: the tables of `scheduler/auth/permissions.py`."""
    head = (
        "Which callers may use a route of the scheduler, and which workloads they reach through"
        " it. Managers of a project are listed in the policy (`managers`). `own`: the caller's own"
        " workloads; for a server, those of the users on whose behalf"
        " it may make requests (of every user, for a token without users); for an agent, its node."
        " `yes`: the route shows or changes no user's workloads, or is the same for all callers. A"
        " person listed under `admins` in the policy is an admin. `waiting` and `nodes` count all"
        " workloads; the table says which of them are named."
    )
    rows = ["| | " + " | ".join(CALLERS) + " |", "|---|" + "---|" * len(CALLERS)]
    rows += [
        f"| `{route.verb} {route.path}` | "
        + " | ".join(_cell(route, caller) for caller in CALLERS)
        + " |"
        for route in ROUTES
    ]
    rows.append(
        "| names of notebooks | "
        + " | ".join(WORDS[reach("notebook names", caller)] for caller in CALLERS)
        + " |"
    )
    return "\n\n".join(["# Permissions", WRITTEN, head, "\n".join(rows)]) + "\n"


def _cell(route: Route, caller: Caller) -> str:
    if not opens(route, caller):
        return WORDS["nothing"]
    return WORDS[reach(route.name, caller)] if route.name in REACH else "yes"


def policy_schema_text() -> str:
    """What `jupyter gpushare policy schema` prints."""
    return json.dumps(policy_schema(), indent=2) + "\n"


def pool_options() -> str:
    """The page of named options of node pools: the registry in `core.pool_options`."""
    head = (
        "Keys of `node_pools[]` in policy and scenario files. Each is off unless it is set."
        " `jupyter gpushare policy diff` shows what a change of one means."
    )
    rows = ["| option | values | default | |", "|---|---|---|---|"]
    for key, option in registered().items():
        default = "off" if option.default is None else f"`{option.default}`"
        rows.append(f"| `{key}` | {_values(option.values)} | {default} | {option.documentation} |")
    return "\n\n".join(["# Options of node pools", WRITTEN, head, "\n".join(rows)]) + "\n"


def _values(values: object) -> str:
    match values:
        case Choice(words):
            return " or ".join(f"`{word}`" for word in words)
        case Duration():
            return "a time such as `30m`"
        case WholeNumber(minimum, maximum):
            return f"{minimum} to {maximum}"
        case Settings(parts):
            return "; ".join(f"`{key}`: {_part(kind, part)}" for key, kind, part in parts)
    return "`true` or `false`"


def _part(values: object, default: object) -> str:
    if isinstance(values, Duration) and isinstance(default, int):
        return f"{_values(values)} (`{default / 1000:g}s`)"
    known = "off" if default is None else f"`{default}`".lower()
    return f"{_values(values)} ({known})"


def tables() -> str:
    """The page of tables and their columns."""
    head = (
        "The columns of REST answers, of CSV (`?format=csv&columns=a,b`), of `jupyter gpushare`"
        " (`--columns a,b`) and of the dashboard. A dot selects a field of a field"
        " (`reason.code`). In CSV, null is `unlimited` where the table below says so and empty"
        " elsewhere; a list of words is joined with `;`; deeper values are JSON; text that a"
        " spreadsheet would execute gets a leading apostrophe."
    )
    parts = ["# Tables", WRITTEN, head]
    for title, row in TABLES.items():
        rows = ["| column | dashboard | null means | |", "|---|---|---|---|"]
        for column in columns_of(row).values():
            null = f"`{column.null}`" if column.null else ""
            rows.append(f"| `{column.name}` | {column.label} | {null} | {column.description} |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


TABLES = {
    "Queues": QueueRow,
    "Nodes": NodeRow,
    "Node pools": PoolRow,
    "Projects": ProjectRow,
    "People": PersonRow,
    "Pending workloads": WaitingRow,
}
PAGES = {
    FOLDER / "pool-options.md": pool_options,
    FOLDER / "tables.md": tables,
    FOLDER / "access.md": access,
    FOLDER / "commands.md": commands,
    FOLDER / "rest.md": rest,
    FOLDER / "policy.schema.json": policy_schema_text,
    FOLDER / "errors.md": lambda: errors(WRITTEN),
    FOLDER / "settings.md": lambda: settings(WRITTEN),
    FOLDER / "metrics.md": lambda: metrics(WRITTEN),
    FOLDER / "rest-bodies.md": lambda: bodies(WRITTEN),
}


def stale() -> list[str]:
    """The pages that rendering would change."""
    return [
        path.name
        for path, render in PAGES.items()
        if not path.exists() or path.read_text() != render()
    ]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(f"{name} is stale: run `make schema`" for name in stale()) or None)
    for path, render in PAGES.items():
        path.write_text(render())
