"""Starts the embedded scheduler and node agent, for one person on one machine.

The only file of this package that imports `scheduler.embedded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.core.model.units import read_memory
from jupyter_gpushare.scheduler_packages import missing_text
from jupyter_gpushare.transports import UNIX, HttpTransport

if TYPE_CHECKING:
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer

__all__ = ["EmbeddedOptions", "SchedulerRunsElsewhere", "start_local"]

ATTEMPTS: Final = 20
PAUSE_S: Final = 0.1


class SchedulerRunsElsewhere(Unavailable):
    """Another Jupyter server of the same user runs both in the same state directory.

    `transport` connects to its scheduler.
    """

    def __init__(self, socket: Path) -> None:
        super().__init__(
            "another Jupyter server of this user runs the scheduler and the node agent",
            field=str(socket.parent),
        )
        self.transport = HttpTransport(f"{UNIX}{socket}")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """Configuration of the embedded services. Amounts of memory are text with a unit."""

    state_dir: Path
    socket: Path
    policy_file: Path | None
    simulate: str
    gpu_memory: str
    host_memory: str
    """"": all free host memory."""
    user: str
    ungated_devices: Literal["share", "none"] = "share"


async def start_local(
    options: EmbeddedOptions, *, on_delay: Callable[[str], None]
) -> EmbeddedServer:
    """Start both in the running loop.

    `on_delay` is called with the reason when the GPU driver does not answer, and with "" when it
    answers again.

    Raises:
        SchedulerRunsElsewhere: another server of this user runs both.
        GpuShareError: no GPUs, a bad policy, another user's scheduler or agent uses the folder,
            or the scheduler's packages are not installed.
    """
    await _load_scheduler()
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer, devices_here, run_watched

    await _check_unused(options.state_dir)

    host_memory_mib = None
    if options.host_memory:
        host_memory_mib = read_memory(options.host_memory, what="host_memory")
    # A driver without persistence mode takes seconds to initialize its GPUs; a broken one hangs.
    devices = await run_watched(
        lambda: devices_here(
            options.state_dir, simulate=options.simulate, gpu_memory=options.gpu_memory
        ),
        on_delay,
    )
    await _check_unused(options.state_dir)
    server = EmbeddedServer(
        options.state_dir,
        simulate=options.simulate,
        socket=options.socket,
        policy_file=options.policy_file,
        user=options.user,
        host_memory_mib=host_memory_mib,
        ungated_devices=options.ungated_devices,
        devices=devices,
    )
    await server.start()
    return server


async def _load_scheduler() -> None:
    """SQL and NumPy are slow to import; the server's pages must not wait for them."""
    try:
        await asyncio.to_thread(import_module, "jupyter_gpushare.scheduler.embedded")
    except ModuleNotFoundError as error:
        if (text := missing_text(error, "the scheduler inside this server")) is None:
            raise
        raise Unavailable(
            f"{text}, or set scheduler_url to the address of a scheduler service"
        ) from None


async def _check_unused(state_dir: Path) -> None:
    """Raises SchedulerRunsElsewhere. A starting server holds the lock briefly before it listens."""
    from jupyter_gpushare.scheduler.embedded import is_served, own_socket, served_at

    for _ in range(ATTEMPTS):
        if not is_served(state_dir):
            return
        if served_at(state_dir) == f"{UNIX}{own_socket(state_dir)}":
            raise SchedulerRunsElsewhere(own_socket(state_dir))
        await asyncio.sleep(PAUSE_S)
