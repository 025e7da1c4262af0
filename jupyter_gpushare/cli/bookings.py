"""`book`, `bookings`, `unbook`: GPUs in a window of time."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final, Literal
from zoneinfo import available_timezones

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import duration_text, read_duration
from jupyter_gpushare.transports import UNIX, HttpTransport

__all__ = ["book", "bookings", "local_zone", "unbook"]

COLUMNS = tuple(m.columns_of(m.BookingRow))
SHOWN: Final = (
    "id",
    "name",
    "project",
    "pool",
    "gpu",
    "start",
    "hours",
    "time_zone",
    "repeats",
    "state",
    "problem",
)
LOCALTIME: Final = Path("/etc/localtime")
HOUR_MS: Final = 3_600_000


def local_zone() -> str:
    """The name of this machine's time zone, from `TZ` or /etc/localtime; `UTC` if it has none."""
    stated = os.environ.get("TZ", "").removeprefix(":")
    linked = re.sub(r"^.*/zoneinfo/", "", os.path.realpath(LOCALTIME)) if LOCALTIME.exists() else ""
    known = available_timezones()
    return next((name for name in (stated, linked) if name in known), "UTC")


@click.command()
@scheduler_options
@click.option("--project", required=True, shell_complete=name_of("project"))
@click.option("--gpu", type=float, required=True, help="GPUs, such as 2 or 0.5.")
@click.option("--pool", default="default", show_default=True, shell_complete=name_of("pool"))
@click.option("--from", "start", required=True, help='Wall time, such as "2026-12-01 14:00".')
@click.option("--for", "duration", required=True, help="How long, such as 2h or 90m.")
@click.option("--time-zone", help="Such as Europe/Berlin; default: this machine's.")
@click.option("--daily", "frequency", flag_value="daily", help="Every day.")
@click.option("--weekly", "frequency", flag_value="weekly", help="Every week.")
@click.option("--until", help="The last day of a repeated booking, such as 2027-02-28.")
@click.option("--times", type=int, help="How often a repeated booking takes place.")
@click.option(
    "--who",
    type=click.Choice(["project", "me"]),
    help="Who may use it; default: the project if you manage it, else you.",
)
@click.option(
    "--source",
    type=click.Choice(["quota", "bookable"]),
    help="The project's quota, or the bookable part of the node pool; default: what fits.",
)
@click.option("--name", default="", help="Shown in lists and calendars.")
@click.option("--no-show", default="10m", show_default=True, help="Unused so long: given back.")
@click.option("--dry-run", is_flag=True, help="Only tell whether it fits.")
def book(
    transport: HttpTransport,
    project: str,
    gpu: float,
    pool: str,
    start: str,
    duration: str,
    time_zone: str | None,
    frequency: Literal["daily", "weekly"] | None,
    until: str | None,
    times: int | None,
    who: Literal["project", "me"] | None,
    source: Literal["quota", "bookable"] | None,
    name: str,
    no_show: str,
    dry_run: bool,
) -> int:
    """Book GPUs: they are free when the booking begins, and nobody else gets them until it ends.

    Who may book how much is in the policy. Exit 1: it does not fit.
    """
    if frequency is None and (until is not None or times is not None):
        raise InvalidInput("--until and --times need --daily or --weekly", field="repeat")
    repeat = None
    if frequency is not None:
        repeat = m.Repeat(frequency=frequency, until=until, times=times)
    request = m.BookingRequest(
        id=f"b-{secrets.token_hex(4)}",
        project=project,
        gpu=gpu,
        pool=pool,
        start=start,
        hours=read_duration(duration, what="--for") / HOUR_MS,
        time_zone=time_zone or local_zone(),
        repeat=repeat,
        who=who,
        source=source,
        name=name,
        no_show_minutes=read_duration(no_show, what="--no-show") / 60_000,
        dry_run=dry_run,
    )
    fit = ask(transport, lambda client: client.book(request))
    if fit.booking is None:
        click.echo(fit.message)
        return 0 if fit.fits else 1
    click.echo(_sentence(fit.booking))
    return 0


def _length(row: m.BookingRow) -> str:
    return duration_text(round(row.hours * HOUR_MS))


def _sentence(row: m.BookingRow) -> str:
    whose = "all members of" if row.who == "project" else "you in"
    repeats = f", {row.repeats}" if row.repeats else ""
    return (
        f"Booked {row.id}: {row.gpu:g} GPU in {row.pool} for {whose} {row.project}, from"
        f" {row.start} {row.time_zone} for {_length(row)}{repeats}."
        f" `jupyter gpushare unbook {row.id}` cancels it."
    )


@click.command()
@scheduler_options
@output_options(*COLUMNS)
@click.option(
    "--ics/--no-ics",
    default=None,
    help="Print a new secret address for your calendar program; the one before ends. --no-ics only"
    " ends it.",
)
def bookings(transport: HttpTransport, output: OutputFormat, ics: bool | None) -> int:
    """Bookings of your projects, the next first."""
    if ics is not None:
        click.echo(_address(transport) if ics else _without_address(transport))
        return 0
    found = ask(transport, lambda client: client.bookings())
    return output.show(
        [m.to_json(row) for row in found.bookings],
        COLUMNS,
        default=SHOWN,
        document=m.to_json(found),
        key="bookings",
        empty="No bookings.",
    )


def _address(transport: HttpTransport) -> str:
    """A new address for calendar programs, as this machine reaches the scheduler."""
    feed = ask(transport, lambda client: client.renew_booking_feed())
    return feed.path if transport.url.startswith(UNIX) else f"{transport.url}{feed.path}"


def _without_address(transport: HttpTransport) -> str:
    ask(transport, lambda client: client.revoke_booking_feed())
    return "The address for calendar programs has ended."


@click.command()
@click.argument("booking")
@scheduler_options
def unbook(booking: str, transport: HttpTransport) -> int:
    """Cancel BOOKING: yours, or of a project that you manage."""
    ended = ask(transport, lambda client: client.cancel_booking(booking))
    click.echo(f"Booking {ended.id} is cancelled.")
    return 0
