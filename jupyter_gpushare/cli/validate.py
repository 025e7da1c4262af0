"""`jupyter gpushare validate POLICY`: all problems of a policy file, one per line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from jupyter_gpushare.cli import BAD_INPUT, print_error
from jupyter_gpushare.cli.discovery import late_scheduler_options

if TYPE_CHECKING:
    from jupyter_gpushare.failover import Failover
    from jupyter_gpushare.transports import HttpTransport

__all__ = ["validate"]


@click.command()
@click.argument("policy", type=click.Path(), required=False)
@late_scheduler_options
@click.option(
    "--dry-run", is_flag=True, help="Also show what the file would change in the running scheduler."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of policy files instead.")
def validate(
    policy: str | None, schema: bool, dry_run: bool, connect: Callable[[], HttpTransport | Failover]
) -> int:
    """Check the policy file POLICY; print `FILE:LINE: field: problem` for each problem."""
    from jupyter_gpushare.scheduler.policy.policy_file import (
        PolicyErrors,
        load_policy,
        policy_schema,
    )

    if schema:
        import json

        click.echo(json.dumps(policy_schema(), indent=2))
        return 0
    if policy is None:
        raise click.UsageError("Missing argument 'POLICY'.")
    try:
        loaded = load_policy(policy).policy
    except PolicyErrors as error:
        for problem in error.problems:
            click.echo(str(problem))
        count = len(error.problems)
        print_error(f"the policy has {count} problem{'s' if count > 1 else ''}", policy)
        return BAD_INPUT
    parts = {
        "node pool": loaded.node_pools,
        "department": loaded.departments,
        "project": loaded.projects,
    }
    counted = [
        f"{len(found)} {name}{'' if len(found) == 1 else 's'}" for name, found in parts.items()
    ]
    if dry_run:
        from jupyter_gpushare.cli.policy import dry_run as asked
        from jupyter_gpushare.cli.policy import show_check

        return show_check(asked(connect(), policy), policy, as_json=False)
    click.echo(f"{policy}: valid ({', '.join(counted)})")
    return 0
