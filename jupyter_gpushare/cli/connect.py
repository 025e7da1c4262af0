"""How a command finds its scheduler and the token that opens it, and calls it.

In this order: what the command line says, `GPUSHARE_SCHEDULER` and `GPUSHARE_TOKEN_FILE`, and what a scheduler that runs on this
machine left in its state directory (`scheduler.json`). The token that it names goes to that scheduler and to no other.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from jupyter_gpushare.core.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from jupyter_gpushare.client import SchedulerClient

__all__ = ["Where", "call", "reaches_scheduler", "state_dir"]

T = TypeVar("T")

NOTE: Final = "scheduler.json"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Where:
    """What the command line said; None: nothing."""

    scheduler: str | None
    token_file: str | None
    state_dir: str | None
    ca_file: str | None


def state_dir(given: str | None = None) -> Path:
    """Where a scheduler of this user keeps its state on this machine: as given, `GPUSHARE_STATE`, else in Jupyter's data directory."""
    if chosen := given or os.environ.get("GPUSHARE_STATE"):
        return Path(chosen)
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "gpushare"


def reaches_scheduler(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where the scheduler is; the command gets them as `where`."""

    @click.option("--scheduler", metavar="URL", help="Address of the scheduler; default: $GPUSHARE_SCHEDULER, else this machine's.")
    @click.option("--token-file", metavar="FILE", help="File with the token; default: $GPUSHARE_TOKEN_FILE, else the admin's beside it.")
    @click.option("--state-dir", metavar="DIR", help="State directory of this machine's scheduler; default: $GPUSHARE_STATE.")
    @click.option("--ca-file", metavar="FILE", help="Certificates to trust for https.")
    def reaching(scheduler: str | None, token_file: str | None, state_dir: str | None, ca_file: str | None, **more: Any) -> Any:
        return command(where=Where(scheduler, token_file, state_dir, ca_file), **more)

    reaching.__name__, reaching.__doc__ = command.__name__, command.__doc__
    reaching.__click_params__ = getattr(command, "__click_params__", []) + reaching.__click_params__  # type: ignore[attr-defined]
    return reaching


def call(where: Where, ask: Callable[[SchedulerClient], Awaitable[T]]) -> T:
    """What the scheduler answers.

    Raises:
        GpuShareError: there is no scheduler, it cannot be reached, or it refused.
    """
    from jupyter_gpushare.client import HttpTransport, SchedulerClient, token_in

    url, token_file = _find(where)

    async def asked() -> T:
        transport = HttpTransport(url, token_in(token_file), ca_file=where.ca_file)
        try:
            return await ask(SchedulerClient(transport))
        finally:
            transport.close()

    return asyncio.run(asked())


def _find(where: Where) -> tuple[str, Path]:
    """(address, file of the token)."""
    folder = state_dir(where.state_dir)
    here = _note(folder / NOTE)
    url = where.scheduler or os.environ.get("GPUSHARE_SCHEDULER") or here.get("url")
    if url is None:
        raise Unavailable(
            "no scheduler is known: give --scheduler URL, or start one with `jupyter gpushare scheduler`"
            " (one embedded in a Jupyter server listens to nobody else; ask it with %gpu in a notebook)",
            field=str(folder),
        )
    token = where.token_file or os.environ.get("GPUSHARE_TOKEN_FILE")
    if token is None and "url" in here and _is_same(url, here["url"]):
        token = here.get("token_file")
    if token is None:
        raise InvalidInput(f"a token for {url} is needed: give --token-file FILE or set GPUSHARE_TOKEN_FILE", field="token-file")
    return url, Path(token)


def _note(file: Path) -> dict[str, str]:
    """`url` and `token_file` of the scheduler that runs here; empty: none does."""
    try:
        note = json.loads(file.read_text())
        return {"url": str(note["url"]), "token_file": str(note["token_file"])}
    except OSError:
        return {}
    except (ValueError, KeyError, TypeError):
        raise Unavailable("the scheduler's note of its address cannot be read", field=str(file)) from None


def _is_same(one: str, other: str) -> bool:
    return _place(one) == _place(other)


def _place(url: str) -> tuple[str, str, int | None]:
    """All names of this machine's own address are one."""
    try:
        parts = urlsplit(url)
        return parts.scheme, "localhost" if parts.hostname in _LOOPBACK else parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput(f"the scheduler's address cannot be read: {url!r}", field="scheduler") from None
