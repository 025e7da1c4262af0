"""`jupyter gpushare agent`: the node agent of this machine as a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from jupyter_gpushare.core.errors import InvalidInput, Unavailable
from jupyter_gpushare.core.quantity import read_memory

from .logs import log_options, set_up
from .tables import table

if TYPE_CHECKING:
    from node_agent.app import Agent
    from node_agent.devices import Devices

__all__ = ["agent"]


@click.command()
@click.option("--scheduler", metavar="URL", envvar="GPUSHARE_SCHEDULER", help="The scheduler service; several on one database: separated by commas.")
@click.option("--token-file", metavar="FILE", envvar="GPUSHARE_TOKEN_FILE", help="File with a token of scope `agent`.")
@click.option("--ca-file", "--tls-ca", metavar="FILE", envvar="GPUSHARE_CA_FILE", help="Certificates to trust for https.")
@click.option("--tls-cert", metavar="FILE", help="This node's own certificate, for a scheduler that asks agents for one.")
@click.option("--tls-key", metavar="FILE", help="Its key, when that is not in the same file.")
@click.option("--simulate", metavar="MODEL:N", help="Simulate N GPUs, such as A100:2; never done without being asked.")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of each simulated GPU (default: that of the model).")
@click.option("--copy-rate", type=click.FloatRange(min=0), default=100.0, show_default=True, help="Simulated copies, GiB/s; 0: instant.")
@click.option("--node", metavar="NAME", default=platform.node() or "localhost", show_default="this machine", help="Name of this node.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label of this node; may be given several times.")
@click.option("--state-dir", metavar="DIR", envvar="GPUSHARE_STATE", help="Where the agent keeps its journal and its socket.")
@click.option(
    "--socket", metavar="FILE",
    help="Unix socket for kernels and Jupyter servers (default: agent.sock in the state directory; with --users all in /run/gpushare).",
)
@click.option("--host-memory", metavar="SIZE", help="At most so much host memory for saved GPU memory (default: what the machine can spare).")
@click.option("--host-reserve", metavar="SIZE", help="Leave so much of the machine's memory to others (default: a twentieth, at least 1GiB).")
@click.option(
    "--users", type=click.Choice(["own", "all"]), default="own", show_default=True,
    help="Serve kernels and Jupyter servers of the agent's own user, or of every unix user of this machine (the agent runs as root).",
)
@click.option(
    "--run-commands", type=click.Choice(["own", "users", "off"]), default="own", show_default=True,
    help="Batch work of the agent's own user, of everybody as their own unix user (the agent runs as root), or of nobody.",
)
@log_options
@click.option("--self-test", is_flag=True, help="Print the capability tiers of this machine, and why any is missing; then exit.")
def agent(
    scheduler: str | None, token_file: str | None, ca_file: str | None, tls_cert: str | None, tls_key: str | None,
    simulate: str | None, gpu_memory: str | None, copy_rate: float, node: str,
    labels: tuple[str, ...], state_dir: str | None, socket: str | None, host_memory: str | None, host_reserve: str | None,
    users: Literal["own", "all"], run_commands: Literal["own", "users", "off"], self_test: bool, log_level: str, log_format: str,
) -> int:  # fmt: skip
    """Run the node agent of this machine: it serves the GPUs to the kernels that the scheduler grants them to."""
    from node_agent.app import Config
    from node_agent.devices.simulated import read_simulation
    from node_agent.inventory import find_devices

    folder = Path(state_dir).absolute() if state_dir else _default_state_dir()  # kernels and commands run elsewhere, and are told of it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if users == "all" and os.geteuid() != 0:
        raise InvalidInput("only root can serve every user of the machine", field="--users")
    simulation = read_simulation(simulate, memory=gpu_memory, copy_gib_s=copy_rate) if simulate else None
    place = Path(socket) if socket else None
    devices = find_devices(node, folder, simulation, Config(node, folder, place, users=users).doors() if users == "all" else None)
    if self_test:
        return _print_tiers(devices)
    if not scheduler:
        raise InvalidInput("the agent needs a scheduler: give its address", field="--scheduler")
    host = {"host_memory_mib": _size(host_memory, "--host-memory"), "host_reserve_mib": _size(host_reserve, "--host-reserve")}
    tags = dict(_label(text) for text in labels)
    config = Config(node, folder, place, labels=tags, users=users, run_commands=run_commands, **host, **_machine())
    set_up(log_level, log_format, node=node)
    logging.getLogger("gpushare.agent").info("GPUs of this node: %d %s", len(devices.reports()), devices.reports()[0].model)
    files = {"ca_file": ca_file, "cert_file": tls_cert, "key_file": tls_key}
    asyncio.run(_serve(config, devices, scheduler, token_file, files))
    return 0


def _default_state_dir() -> Path:
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "gpushare"


def _size(text: str | None, option: str) -> int | None:
    return None if text is None else read_memory(text, what=option)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidInput(f"a label must be KEY=VALUE, got {text!r}", field="--label")
    return key, value


def _machine() -> dict[str, int]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu_milli": 1000 * (os.cpu_count() or 1), "memory_mib": memory >> 20}


def _print_tiers(devices: Devices) -> int:
    from node_agent.inventory import self_test
    from node_agent.selftest import advised

    models = Counter(report.model for report in devices.reports())
    driver = f", driver {devices.driver()}" if devices.driver() else ""
    click.echo(", ".join(f"{count} x {model}" for model, count in sorted(models.items())) + driver)
    rows: list[list[str]] = []
    try:
        for tier, has, problem in self_test(devices):
            why, what = advised(tier, problem)
            rows.append([tier, "yes" if has else "no", why])
            rows += [["", "", f"→ {what}"]] if problem else []
    finally:
        devices.close()
    click.echo(table("", ["tier", "here", "why not, and what to do"], rows))
    return 0


def _token(token_file: str | None) -> Callable[[], str]:
    """Read at every connection, so that a token can be replaced while the agent runs."""

    def read() -> str:
        if not token_file:
            return ""
        try:
            return Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Unavailable(f"the token file cannot be read: {error.strerror}", field=token_file) from None

    read()
    return read


async def _serve(config: object, devices: Devices, scheduler: str, token_file: str | None, files: dict[str, str | None]) -> None:
    from jupyter_gpushare.client import SchedulerClient
    from jupyter_gpushare.failover import to_schedulers
    from node_agent.app import Agent, Config

    assert isinstance(config, Config)
    client = SchedulerClient(to_schedulers(scheduler, _token(token_file), **files))
    made = Agent(config, devices, client.agent_link)
    await made.start()
    try:
        await _until_told()
    finally:
        await _stopped(made)


async def _until_told() -> None:
    """SIGINT or SIGTERM."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    await told.wait()


async def _stopped(made: Agent) -> None:
    await made.stop()
    logging.getLogger("gpushare.agent").info("stopped; the kernels live on")
