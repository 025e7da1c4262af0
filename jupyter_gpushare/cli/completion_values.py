"""Completion of names from the scheduler, and of lists of words.

Errors give no completions: nothing is printed, and the shell waits at most a second.
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

__all__ = ["TIMEOUT_S", "name_of", "names_of", "some_of"]

TIMEOUT_S: Final = 1.0
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


async def _tables(client: SchedulerClient, what: str) -> Iterator[tuple[str, str]]:
    """(name, help) pairs."""
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
    """Names with help from the scheduler; empty if it does not respond."""
    from jupyter_gpushare.cli.discovery import ask, transport_to
    from jupyter_gpushare.core.model.errors import GpuShareError

    given = context.params
    question: Callable[[Any], Awaitable[Any]] = lambda client: asyncio.wait_for(  # noqa: E731
        _tables(client, what), TIMEOUT_S
    )
    with contextlib.suppress(GpuShareError, OSError, TimeoutError):
        transport = transport_to(
            given.get("scheduler"), given.get("token_file"), given.get("ca_file")
        )
        return dict(ask(transport, question))
    return {}


def name_of(what: str) -> Completer:
    """Completes one name of a `project`, `pool`, `node`, `workload`, `batch` workload, `priority`
    class, or the id of a `token`.
    """

    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=_line(text))
            for name, text in _asked(context, what).items()
            if name.startswith(begun)
        ]

    return complete


def names_of(what: str) -> Completer:
    """Completes several names, separated by commas."""

    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return _next(begun, list(_asked(context, what)))

    return complete


def some_of(*words: str) -> Completer:
    """Completes several of these words, separated by commas."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        return _next(begun, list(words))

    return complete


def _next(begun: str, words: list[str]) -> list[CompletionItem]:
    """Words that continue the text and are not used yet."""
    before, comma, last = begun.rpartition(",")
    used = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{word}")
        for word in words
        if word.startswith(last) and word not in used
    ]


def _line(text: str) -> str | None:
    """Help as one line: a shell treats further lines as completions."""
    return " ".join(text.split()) or None
