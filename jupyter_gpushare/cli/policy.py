"""`jupyter gpushare policy schema | diff`: what a policy file may say, and what one would change
before it is in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli import BAD_INPUT, say_error
from jupyter_gpushare.cli.discovery import ask, late_scheduler_options
from jupyter_gpushare.core.model.errors import InvalidInput

if TYPE_CHECKING:
    from jupyter_gpushare.failover import Failover
    from jupyter_gpushare.transports import HttpTransport

__all__ = ["dry_run", "policy", "show_check"]


@click.group()
def policy() -> None:
    """The administrator's policy file."""


@policy.command()
def schema() -> int:
    """Print the JSON Schema of policy files: editors complete and check with it.

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
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def diff(
    file: str, other: str | None, connect: Callable[[], HttpTransport | Failover], as_json: bool
) -> int:
    """What FILE would change in the running scheduler, and for whom; with OTHER, what differs from
    FILE to OTHER (asks no scheduler).

    Changes nothing. Exit status 0 when the file is good, 2 when it has problems (one per line), 1
    when the scheduler refuses to answer.
    """
    check = _between(file, other) if other else dry_run(connect(), file)
    return show_check(check, file if other is None else other, as_json)


def _between(file: str, other: str) -> m.PolicyCheck:
    """Two files; nobody is affected, because nobody is known."""
    from jupyter_gpushare.scheduler.policy.diff import changes
    from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors, load_policy

    try:
        return m.PolicyCheck(changes=changes(load_policy(file), load_policy(other)))
    except PolicyErrors as error:
        return m.PolicyCheck(problems=[str(problem) for problem in error.problems])


def dry_run(transport: HttpTransport | Failover, file: str) -> m.PolicyCheck:
    """What the running scheduler says of this file."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", field=file
        ) from None
    return ask(transport, lambda client: client.check_policy(m.PolicyText(text=text, source=file)))


def show_check(check: m.PolicyCheck, file: str, as_json: bool) -> int:
    """Prints it; gives the exit status."""
    if as_json:
        click.echo(json.dumps(m.to_json(check), indent=2))
    for problem in [] if as_json else check.problems:
        click.echo(problem)
    if check.problems:
        say_error(
            f"the policy has {len(check.problems)} problem{'s' if len(check.problems) > 1 else ''}",
            file,
        )
        return BAD_INPUT
    if not as_json:
        click.echo("\n".join(_lines(check)))
    return 0


def _lines(check: m.PolicyCheck) -> list[str]:
    if not check.changes:
        return ["Nothing changes."]
    lines = [change.message for change in check.changes]
    for one in check.affected:
        named = (
            f" [{', '.join(one.workloads[:10])}{', ...' if len(one.workloads) > 10 else ''}]"
            if one.workloads
            else ""
        )
        lines.append(f"affected: {one.kind.replace('_', ' ')} {one.message}{named}")
    return lines
