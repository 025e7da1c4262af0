"""What a shell may complete beside commands and options: names that a scheduler knows, if it
answers at once, and lists of words.

A completion says nothing when it knows nothing: no error, no line on stderr, and no waiting for
more than a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from jupyter_gpushare.client import SchedulerClient

__all__ = ["PATIENCE_S", "name_of", "names_of", "some_of"]

PATIENCE_S: Final = 1.0
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


async def _tables(client: SchedulerClient, what: str) -> Iterator[tuple[str, str]]:
    """Name and a word of help for each."""
    match what:
        case "project":
            return (
                (row.name, f"department {row.department}" if row.department else "")
                for row in (await client.projects()).projects
            )
        case "pool":
            return ((row.name, row.status) for row in (await client.pools()).pools)
        case "node":
            return ((row.name, row.status) for row in (await client.nodes()).nodes)
        case "priority":
            return ((name, "") for name in (await client.status()).priority_classes)
        case "token":
            return (
                (row.id, f"{row.scope} {row.name}")
                for row in (await client.tokens()).tokens
                if not row.revoked
            )
        case "batch":
            return (
                (row.id, f"{row.state} {row.name}")
                for row in (await client.workloads()).workloads
                if row.kernel_id is None
            )
        case _:
            return (
                (row.id, f"{row.state} {row.name}") for row in (await client.workloads()).workloads
            )


def _asked(context: click.Context, what: str) -> dict[str, str]:
    """What the scheduler of this command line knows; nothing if it does not answer."""
    from jupyter_gpushare.cli.discovery import ask, transport_to
    from jupyter_gpushare.core.model.errors import GpuShareError

    given = context.params
    question: Callable[[Any], Awaitable[Any]] = lambda client: asyncio.wait_for(  # noqa: E731
        _tables(client, what), PATIENCE_S
    )
    with contextlib.suppress(GpuShareError, OSError, TimeoutError):
        transport = transport_to(
            given.get("scheduler"), given.get("token_file"), given.get("ca_file")
        )
        return dict(ask(transport, question))
    return {}


def name_of(what: str) -> Completer:
    """The name of one `project`, `pool`, `node`, `workload`, `batch` (work), `priority` (class) or
    `token` (its id).
    """

    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=_line(said))
            for name, said in _asked(context, what).items()
            if name.startswith(begun)
        ]

    return complete


def names_of(what: str) -> Completer:
    """Several of them, with commas between them."""

    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return _next(begun, list(_asked(context, what)))

    return complete


def some_of(*words: str) -> Completer:
    """Several of these words, with commas between them."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return _next(begun, list(words))

    return complete


def _next(begun: str, words: list[str]) -> list[CompletionItem]:
    """Those that go on with what is written, each once."""
    before, comma, last = begun.rpartition(",")
    used = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{word}")
        for word in words
        if word.startswith(last) and word not in used
    ]


def _line(said: str) -> str | None:
    """Help is one line: a shell would take what follows for another completion."""
    return " ".join(said.split()) or None
