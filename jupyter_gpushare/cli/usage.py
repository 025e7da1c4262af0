"""`usage`, `audit`: what was used, by whom, and what administrators and the scheduler did."""

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
    "--by",
    type=click.Choice(list(WHO)),
    default="project",
    show_default=True,
    help="What the hours are added up for.",
)
@click.option("--since", help="From when: a time, or how long ago. Default: 7d.")
@click.option("--until", help="Until when. Default: now.")
@output_options(*USAGE)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False),
    help="Draw it into this file (PNG, SVG, PDF).",
)
def usage(
    transport: HttpTransport,
    by: str,
    since: str | None,
    until: str | None,
    output: OutputFormat,
    picture: str | None,
) -> int:
    """GPU-hours held, used, idle, borrowed and lent, per project, person or notebook."""
    usual = (*WHO[by], *KINDS)
    output.chosen(USAGE, usual)  # a mistake is said before anything is drawn
    said = ask(transport, lambda client: client.usage(by=by, since=since, until=until))
    if picture:
        from jupyter_gpushare.cli.plot import draw_usage

        draw_usage(said, by, Path(picture))
    nothing = f"No GPU was held from {said.since} to {said.until}."
    return output.show(
        [m.to_json(row) for row in said.usage],
        USAGE,
        default=usual,
        document=m.to_json(said),
        key="usage",
        empty=nothing,
        cells=_cell,
    )


@click.command()
@scheduler_options
@click.option("--since", help="From when: a time, or how long ago. Default: 7d.")
@click.option("--until", help="Until when. Default: now.")
@click.option("--action", help="Only this action: evict, end, cordon, policy, create token, …")
@output_options(*AUDIT)
def audit(
    transport: HttpTransport,
    since: str | None,
    until: str | None,
    action: str | None,
    output: OutputFormat,
) -> int:
    """What administrators did, and who was evicted, why and for whom. For admins."""
    said = ask(transport, lambda client: client.audit(since=since, until=until, action=action))
    rows = [m.to_json(row) for row in said.audit]
    return output.show(
        rows,
        AUDIT,
        default=SHOWN,
        document=m.to_json(said),
        key="audit",
        empty="Nothing of this is written down in that time.",
    )


def _cell(value: object, _column: str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
