"""`jupyter gpushare policy schema|diff`: the schema, and what a policy file would change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli import BAD_INPUT, print_error
from jupyter_gpushare.cli.discovery import ask, late_scheduler_options
from jupyter_gpushare.core.model.errors import InvalidInput

if TYPE_CHECKING:
    from jupyter_gpushare.failover import Failover
    from jupyter_gpushare.transports import HttpTransport

__all__ = ["dry_run", "policy", "show_check"]


@click.group()
def policy() -> None:
    """The policy file."""


@policy.command()
def schema() -> int:
    """Print the JSON Schema of policy files, for completion and checks in editors.

    With the YAML language server, make the first line of the file `# yaml-language-server:
    $schema=FILE`.
    """
    from jupyter_gpushare.scheduler.policy.policy_file import policy_schema

    click.echo(json.dumps(policy_schema(), indent=2))
    return 0


@policy.command()
@click.argument("file", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@late_scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(
    file: str, other: str | None, connect: Callable[[], HttpTransport | Failover], as_json: bool
) -> int:
    """Show what FILE would change in the running scheduler, and the affected workloads; with OTHER,
    the differences from FILE to OTHER (without a scheduler).

    Changes nothing. Exit status 0 if the file is valid, 2 if it has problems (one per line), 1 if
    the scheduler refuses the request.
    """
    check = _between(file, other) if other else dry_run(connect(), file)
    return show_check(check, file if other is None else other, as_json)


def _between(file: str, other: str) -> m.PolicyCheck:
    """The differences between two files; affected workloads are not known."""
    from jupyter_gpushare.scheduler.policy.diff import changes
    from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors, load_policy

    try:
        return m.PolicyCheck(changes=changes(load_policy(file), load_policy(other)))
    except PolicyErrors as error:
        return m.PolicyCheck(problems=[str(problem) for problem in error.problems])


def dry_run(transport: HttpTransport | Failover, file: str) -> m.PolicyCheck:
    """The scheduler's check of this file."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", field=file
        ) from None
    return ask(transport, lambda client: client.check_policy(m.PolicyText(text=text, source=file)))


def show_check(check: m.PolicyCheck, file: str, as_json: bool) -> int:
    """Prints the check and returns the exit status."""
    if as_json:
        click.echo(json.dumps(m.to_json(check), indent=2))
    for problem in [] if as_json else check.problems:
        click.echo(problem)
    if check.problems:
        print_error(
            f"the policy has {len(check.problems)} problem{'s' if len(check.problems) > 1 else ''}",
            file,
        )
        return BAD_INPUT
    if not as_json:
        click.echo("\n".join(_lines(check)))
    return 0


def _lines(check: m.PolicyCheck) -> list[str]:
    if not check.changes:
        return ["No changes."]
    lines = [change.message for change in check.changes]
    for one in check.affected:
        named = (
            f" [{', '.join(one.workloads[:10])}{', ...' if len(one.workloads) > 10 else ''}]"
            if one.workloads
            else ""
        )
        lines.append(f"affected: {one.kind.replace('_', ' ')} {one.message}{named}")
    return lines
