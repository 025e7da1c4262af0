"""`usage`, `audit`: GPU-hours, and the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.transports import HttpTransport

__all__ = ["audit", "usage"]

WHO: Final = {
    "project": ("project",),
    "person": ("project", "user"),
    "notebook": ("project", "user", "notebook"),
}
KINDS: Final = ("held", "used", "idle", "borrowed", "lent")
USAGE, AUDIT = m.UsageRow.__struct_fields__, m.AuditRow.__struct_fields__
SHOWN: Final = ("time", "actor", "action", "object", "detail")


@click.command()
@scheduler_options
@click.option(
    "--by", type=click.Choice(list(WHO)), default="project", show_default=True, help="Grouping."
)
@click.option("--since", help="Start: a time, or an age. Default: 7d.")
@click.option("--until", help="End. Default: now.")
@output_options(*USAGE)
@click.option(
    "--plot", "picture", type=click.Path(dir_okay=False), help="Plot to this file (PNG, SVG, PDF)."
)
def usage(
    transport: HttpTransport,
    by: str,
    since: str | None,
    until: str | None,
    output: OutputFormat,
    picture: str | None,
) -> int:
    """GPU-hours allocated, used, idle, borrowed and lent, per project, person or notebook."""
    usual = (*WHO[by], *KINDS)
    output.chosen(USAGE, usual)  # refuse an unknown column before plotting
    found = ask(transport, lambda client: client.usage(by=by, since=since, until=until))
    if picture:
        from jupyter_gpushare.cli.plot import draw_usage

        draw_usage(found, by, Path(picture))
    empty = f"No usage from {found.since} to {found.until}."
    return output.show(
        [m.to_json(row) for row in found.usage],
        USAGE,
        default=usual,
        document=m.to_json(found),
        key="usage",
        empty=empty,
        note=f"GPU-hours from {found.since} to {found.until}.",
        cells=_cell,
    )


@click.command()
@scheduler_options
@click.option("--since", help="Start: a time, or an age. Default: 7d.")
@click.option("--until", help="End. Default: now.")
@click.option("--action", help="Only this action: evict, end, cordon, policy, create token, …")
@output_options(*AUDIT)
def audit(
    transport: HttpTransport,
    since: str | None,
    until: str | None,
    action: str | None,
    output: OutputFormat,
) -> int:
    """The audit log: actions of administrators, and evictions. For admins."""
    found = ask(transport, lambda client: client.audit(since=since, until=until, action=action))
    rows = [m.to_json(row) for row in found.audit]
    return output.show(
        rows,
        AUDIT,
        default=SHOWN,
        document=m.to_json(found),
        key="audit",
        empty="No entries in this period.",
    )


def _cell(value: object, _column: str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
