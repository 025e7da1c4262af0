"""`jupyter gpushare scheduler`: runs the scheduler service."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import click

from jupyter_gpushare.aio import raise_file_limit
from jupyter_gpushare.cli import BAD_INPUT, print_error
from jupyter_gpushare.cli.log_format import log_options, set_up

__all__ = ["scheduler"]


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="Configuration file.  [default: jupyter_gpushare_config.py]",
)
@click.option(
    "--policy",
    type=click.Path(dir_okay=False),
    help="Policy file (gpushare.yaml); changes take effect at once.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0: any free one.  [default: 8470]",
)
@click.option(
    "--socket",
    type=click.Path(dir_okay=False),
    help="Unix socket to listen on; then TCP only with --port or --host.",
)
@click.option(
    "--tls-cert",
    "certfile",
    type=click.Path(exists=True, dir_okay=False),
    help="TLS certificate (PEM).",
)
@click.option(
    "--tls-key",
    "keyfile",
    type=click.Path(exists=True, dir_okay=False),
    help="Key of the certificate, if in another file.",
)
@click.option(
    "--tls-client-ca",
    "client_ca",
    type=click.Path(exists=True, dir_okay=False),
    help="Require a certificate of this CA from agents.",
)
@click.option("--db-url", help="URL of the database.  [default: SQLite in the state directory]")
@click.option(
    "--db-upgrade",
    is_flag=True,
    default=None,
    help="Upgrade older tables of a PostgreSQL database.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False),
    help="Directory of the database and the admin token.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="File with the admin token; created if missing.",
)
@click.option(
    "--kubernetes",
    is_flag=True,
    default=None,
    help="Read nodes and pods of a Kubernetes cluster (this pod's, or the kubeconfig's), and accept"
    " its tokens from agents.",
)
@click.option(
    "--kubernetes-namespace",
    metavar="NAME",
    help="Namespace of agents and slots.  [default: this pod's, else gpushare]",
)
@click.option(
    "--kubernetes-operator-namespace",
    metavar="NAME",
    help="Namespace of the GPU Operator; its pods are read too.",
)
@click.option(
    "--kubernetes-no-reserve",
    "kubernetes_reserve",
    flag_value=False,
    default=None,
    help="Managed nodes are ready without slot pods.",
)
@click.option(
    "--kubernetes-agent-account",
    metavar="NAME",
    help="User name of the agents.  [default: system:serviceaccount:NAMESPACE:gpushare-agent]",
)
@log_options
def scheduler(
    config: str | None, policy: str | None, log_level: str, log_format: str, **given: Any
) -> int:
    """Run the scheduler service. SIGINT or SIGTERM ends it; leases stay in force."""
    from traitlets.config import Config

    from jupyter_gpushare.scheduler.app import SchedulerApp
    from jupyter_gpushare.scheduler.config.documents import FileErrors

    set_up(log_level, log_format)
    raise_file_limit()
    # the default logger of traitlets has another format
    app = SchedulerApp(
        config_file=config or "",
        raise_config_file_errors=True,
        log=logging.getLogger("gpushare.scheduler"),
    )
    app.read_configuration()
    stated = {name: value for name, value in given.items() if value is not None}
    if policy is not None:
        stated["policy_file"] = str(Path(policy).resolve())
    app.update_config(Config(SchedulerApp=stated))
    if app.kubernetes:
        from jupyter_gpushare.kube.integration import kubernetes_integration

        app.integrations = (kubernetes_integration(app),)
    try:
        asyncio.run(app.serve(click.echo))
    except FileErrors as error:
        print_error(error.message, error.where)
        return BAD_INPUT
    return 0
