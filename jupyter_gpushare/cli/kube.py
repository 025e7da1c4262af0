"""`jupyter gpushare kube`: checks a Kubernetes cluster, and writes the Helm chart out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from jupyter_gpushare.cli import REFUSED

if TYPE_CHECKING:
    from jupyter_gpushare.kube.checks import CheckResult

__all__ = ["kube"]

MARKS: Final = {"ok": "ok", "missing": "MISSING", "unknown": "unknown", "note": "note"}


@click.group()
def kube() -> None:
    """Share GPUs in a Kubernetes cluster."""


@kube.command()
@click.option(
    "--kubeconfig", default="", metavar="FILE", help="Default: this pod's account, or KUBECONFIG."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of the installation.  [default: this pod's, else gpushare]",
)
@click.option(
    "--operator-namespace",
    default="",
    metavar="NAME",
    help="Namespace of the GPU Operator, if the scheduler reads its pods.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    kubeconfig: str,
    context: str | None,
    namespace: str | None,
    operator_namespace: str,
    as_json: bool,
) -> int:
    """Check permissions, versions, GPUs, labels, slots, agents and network policies.

    One line each, and what to do. The exit status is 1 if something is missing.
    """
    from jupyter_gpushare.kube import names
    from jupyter_gpushare.kube.api_client import namespace_of_pod

    place = namespace or namespace_of_pod() or names.NAMESPACE
    results = asyncio.run(_results(kubeconfig, context, place, operator_namespace))
    is_complete = all(result.verdict != "missing" for result in results)
    if as_json:
        rows = [
            {
                "subject": result.subject,
                "verdict": result.verdict,
                "message": result.message,
                "to_do": result.to_do,
            }
            for result in results
        ]
        click.echo(json.dumps({"ok": is_complete, "checks": rows}, indent=2))
    else:
        for result in results:
            click.echo(_line(result))
    return 0 if is_complete else REFUSED


async def _results(
    kubeconfig: str, context: str | None, namespace: str, operator_namespace: str
) -> Sequence[CheckResult]:
    from jupyter_gpushare.core.model.errors import Unavailable
    from jupyter_gpushare.kube.api_client import ApiError, ClusterApi
    from jupyter_gpushare.kube.check_facts import read_facts
    from jupyter_gpushare.kube.checks import check_cluster

    api = ClusterApi(kubeconfig=kubeconfig, context=context)
    await api.open()
    try:
        return check_cluster(await read_facts(api, namespace, operator_namespace))
    except ApiError as error:
        raise Unavailable(error.message) from None
    finally:
        await api.close()


def _line(result: CheckResult) -> str:
    to_do = f"\n{'':9}-> {result.to_do}" if result.to_do else ""
    return f"{MARKS[result.verdict]:8} {result.subject}: {result.message}{to_do}"


@kube.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))
def chart(directory: str) -> int:
    """Write the Helm chart to DIR, which must not exist or be empty."""
    from jupyter_gpushare.kube.chart_files import write_chart

    click.echo(f"wrote {write_chart(directory)}; next: helm install gpushare {directory} …")
    return 0
