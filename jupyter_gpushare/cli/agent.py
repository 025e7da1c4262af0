"""`jupyter gpushare agent`: the node agent of this machine as a separate process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import click

from jupyter_gpushare.aio import raise_file_limit
from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable
from jupyter_gpushare.core.model.labels import check_label_key, check_label_value
from jupyter_gpushare.core.model.units import read_memory

from .log_format import log_options, set_up
from .tables import table

if TYPE_CHECKING:
    from node_agent.app import Agent
    from node_agent.devices.base.hang_detection import WatchedCall
    from node_agent.devices.base.protocols import Devices
    from node_agent.discovery.inventory import TierResult
    from node_agent.system.tenancy import UserScope

__all__ = ["agent"]

T = TypeVar("T")
HUNG_S: Final = 60.0
"""Timeout of the self-test for one driver call; idle GPUs may take tens of seconds to wake up."""


@click.command()
@click.option(
    "--scheduler",
    metavar="URL",
    envvar="GPUSHARE_SCHEDULER",
    help="The scheduler; several addresses of one service are separated by commas.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    envvar="GPUSHARE_TOKEN_FILE",
    help="File with a token of scope `agent`.",
)
@click.option(
    "--ca-file",
    "--tls-ca",
    metavar="FILE",
    envvar="GPUSHARE_CA_FILE",
    help="Trusted certificates for https.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Certificate of this node, for a scheduler that requires one.",
)
@click.option("--tls-key", metavar="FILE", help="Key of the certificate, if in another file.")
@click.option(
    "--simulate", metavar="MODEL:N", help="Simulate N GPUs instead of using real ones: A100:2."
)
@click.option(
    "--gpu-memory",
    metavar="SIZE",
    help="Memory of each simulated GPU (default: that of the model).",
)
@click.option(
    "--copy-rate",
    type=click.FloatRange(min=0),
    default=100.0,
    show_default=True,
    help="Speed of simulated copies in GiB/s; 0: instant.",
)
@click.option(
    "--node",
    metavar="NAME",
    help="Name of this node (default: this machine's; with --users pods $NODE_NAME).",
)
@click.option(
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    help="A label of this node; repeatable.",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    envvar="GPUSHARE_STATE",
    help="Directory of the journal and the socket.",
)
@click.option(
    "--socket",
    metavar="FILE",
    help="Unix socket for kernels and Jupyter servers (default: agent.sock in the state directory;"
    " with --users all or pods in /run/gpushare).",
)
@click.option(
    "--host-memory",
    metavar="SIZE",
    help="Most host memory for saved GPU memory (default: the available memory).",
)
@click.option(
    "--host-reserve",
    metavar="SIZE",
    help="Host memory to leave free (default: 5 %, at least 1GiB).",
)
@click.option(
    "--command-log",
    metavar="SIZE",
    default="64MiB",
    show_default=True,
    help="Most output of one command that waits for the scheduler.",
)
@click.option(
    "--user-logs",
    metavar="SIZE",
    default="256MiB",
    show_default=True,
    help="The same for all commands of one user.",
)
@click.option(
    "--users",
    type=click.Choice(["own", "all", "pods"]),
    default="own",
    show_default=True,
    help="Serve kernels and Jupyter servers of the agent's user, of all unix users of this machine"
    " (requires root), or of all Kubernetes pods of this node (requires root and hostPID).",
)
@click.option(
    "--run-commands",
    type=click.Choice(["own", "users", "off"]),
    default="own",
    show_default=True,
    help="Run batch workloads of the agent's user, of all users as their unix user (requires root),"
    " or none. With --users pods none.",
)
@click.option(
    "--run-commands-of",
    multiple=True,
    metavar="ACCOUNT",
    help="With --run-commands users: also run commands of this system account, whose user id is"
    " below UID_MIN of /etc/login.defs (may be repeated; never root).",
)
@click.option(
    "--ungated-devices",
    type=click.Choice(["share", "none"]),
    default="share",
    show_default=True,
    help="GPUs that a kernel sees whose cells do not ask before they run: those of the share that"
    " it has when it starts, or none.",
)
@log_options
@click.option(
    "--self-test",
    is_flag=True,
    help="Print the capability tiers of this machine and why others are missing; then exit.",
)
def agent(
    scheduler: str | None,
    token_file: str | None,
    ca_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    simulate: str | None,
    gpu_memory: str | None,
    copy_rate: float,
    node: str | None,
    labels: tuple[str, ...],
    state_dir: str | None,
    socket: str | None,
    host_memory: str | None,
    host_reserve: str | None,
    command_log: str,
    user_logs: str,
    users: UserScope,
    run_commands: Literal["own", "users", "off"],
    run_commands_of: tuple[str, ...],
    ungated_devices: Literal["share", "none"],
    self_test: bool,
    log_level: str,
    log_format: str,
) -> int:
    """Run the node agent of this machine: it attaches GPUs to kernels as the scheduler decides."""
    from node_agent.app import AgentConfig
    from node_agent.devices.base.hang_detection import WatchedCall
    from node_agent.devices.base.protocols import DiscoveryRequest
    from node_agent.discovery.inventory import find_devices
    from node_agent.system.tenancy import tenancy_of

    tenancy = tenancy_of(users)
    tenancy.check()
    folder = (
        Path(state_dir).absolute() if state_dir else _default_state_dir()
    )  # absolute, since kernels and commands have other working directories
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place, name = Path(socket) if socket else None, node or tenancy.node_name()
    public = AgentConfig(name, folder, place, users=users).public_dir()
    request = DiscoveryRequest(
        name,
        folder,
        public if tenancy.is_shared else None,
        simulate or "",
        gpu_memory,
        copy_rate,
        no_cgroups=tenancy.no_cgroups,
    )
    find = partial(find_devices, request)
    if self_test:
        return _print_tiers(WatchedCall(find))
    if not scheduler:
        raise InvalidInput("the address of the scheduler is missing", field="--scheduler")
    tags = dict(_label(text) for text in labels)
    config = AgentConfig(
        name,
        folder,
        place,
        labels=tags,
        users=users,
        run_commands=run_commands,
        command_accounts=run_commands_of,
        ungated_devices=ungated_devices,
        host_memory_mib=_size(host_memory, "--host-memory"),
        host_reserve_mib=_size(host_reserve, "--host-reserve"),
        command_log_mib=read_memory(command_log, what="--command-log", needs_unit=True),
        user_logs_mib=read_memory(user_logs, what="--user-logs", needs_unit=True),
        cpu_milli=1000 * (os.cpu_count() or 1),
        memory_mib=_machine_memory_mib(),
    )
    set_up(log_level, log_format, node=name)
    raise_file_limit()
    files = {"ca_file": ca_file, "cert_file": tls_cert, "key_file": tls_key}
    asyncio.run(_serve(config, find, scheduler, token_file, files))
    return 0


def _default_state_dir() -> Path:
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "gpushare"


def _size(text: str | None, option: str) -> int | None:
    return None if text is None else read_memory(text, what=option, needs_unit=True)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidInput(f"a label must be KEY=VALUE, got {text!r}", field="--label")
    try:
        check_label_key(key)
        check_label_value(value)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="--label") from None
    return key, value


def _machine_memory_mib() -> int:
    return (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20


def _print_tiers(looking: WatchedCall[Devices]) -> int:
    """Prints all tiers as missing, with the reason, if there is no GPU or the driver hangs."""
    from node_agent.devices.base.hang_detection import WatchedCall
    from node_agent.discovery.inventory import missing_all, self_test

    try:
        devices = _in_time(looking)
    except Unavailable as error:
        click.echo("no usable GPU")
        _print_rows(missing_all(error.message))
        return 0
    models = Counter(report.model for report in devices.reports())
    driver = f", driver {devices.driver()}" if devices.driver() else ""
    click.echo(", ".join(f"{count} x {model}" for model, count in sorted(models.items())) + driver)
    try:
        _print_rows(_in_time(WatchedCall(lambda: self_test(devices))))
    except _DriverCallHung as error:  # devices cannot be closed while a call hangs
        _print_rows(missing_all(error.message))
        return 0
    devices.close()
    return 0


class _DriverCallHung(Unavailable):
    """Raised when a driver call exceeds its timeout."""


def _in_time(attempt: WatchedCall[T]) -> T:
    """The result. Prints a line while a driver call hangs, and gives up after `HUNG_S`.

    Raises _DriverCallHung, and errors of the call itself.
    """
    from node_agent.devices.base.call_tracker import hang_problem

    reported = False
    while not attempt.wait(0.2):
        if (problem := hang_problem()) and not reported:
            click.echo(f"waiting: {problem}", err=True)
            reported = True
        if problem := hang_problem(slow_s=HUNG_S):
            raise _DriverCallHung(f"{problem}; if it persists, restart the machine (see `dmesg`)")
    return attempt.result()


def _print_rows(results: list[TierResult]) -> None:
    rows: list[list[str]] = []
    for result in results:
        rows.append([result.tier, "yes" if result.present else "no", result.reason])
        if result.remedy:
            rows.append(["", "", f"→ {result.remedy}"])
    click.echo(table("", ["tier", "available", "problem and solution"], rows))


def _token(token_file: str | None) -> Callable[[], str]:
    """Read at every connection, so that the token can be replaced at run time."""

    def read() -> str:
        if not token_file:
            return ""
        try:
            return Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Unavailable(
                f"the token file cannot be read: {error.strerror}", field=token_file
            ) from None

    read()
    return read


async def _serve(
    config: object,
    find: Callable[[], Devices],
    scheduler: str,
    token_file: str | None,
    files: dict[str, str | None],
) -> None:
    from jupyter_gpushare.client import SchedulerClient
    from jupyter_gpushare.failover import to_schedulers
    from node_agent.api.link_renewal import renewed_with_token
    from node_agent.app import Agent, AgentConfig
    from node_agent.devices.base.hang_detection import run_watched

    assert isinstance(config, AgentConfig)
    token = _token(token_file)
    client = SchedulerClient(to_schedulers(scheduler, token, **files))
    devices = await run_watched(find, _report)
    logging.getLogger("gpushare.agent").info(
        "GPUs of this node: %d %s", len(devices.reports()), devices.reports()[0].model
    )
    made = Agent(config, devices, renewed_with_token(client.agent_link, token))
    await made.start()
    try:
        await _until_signal()
    finally:
        await _stopped(made)


def _report(problem: str) -> None:
    log = logging.getLogger("gpushare.agent")
    if problem:
        log.warning("%s; waiting for it, kernels start without a GPU (see `dmesg`)", problem)
    else:
        log.info("the GPU driver answers")


async def _until_signal() -> None:
    """Waits for SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def _stopped(made: Agent) -> None:
    await made.stop()
    logging.getLogger("gpushare.agent").info("stopped; kernels keep running")
