"""Scheduler and node agent inside this server, for one person on one machine. The only file here
that knows of `scheduler.embedded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.core.model.units import read_memory
from jupyter_gpushare.transports import UNIX, HttpTransport

if TYPE_CHECKING:
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer

__all__ = ["SchedulerRunsElsewhere", "start_local"]

TRIES: Final = 20
PAUSE_S: Final = 0.1


class SchedulerRunsElsewhere(Unavailable):
    """Raised when another server of the same person runs both already, in the same state directory:
    `transport` leads there.
    """

    def __init__(self, socket: Path) -> None:
        super().__init__(
            "another Jupyter server of yours runs scheduler and node agent",
            field=str(socket.parent),
        )
        self.transport = HttpTransport(f"{UNIX}{socket}")


async def start_local(
    *,
    state_dir: Path,
    socket: Path,
    policy_file: Path | None,
    simulate: str,
    gpu_memory: str,
    user: str,
    host_memory: str = "",
    tell: Callable[[str], None],
) -> EmbeddedServer:
    """Start both in the running loop. `tell` hears why that takes long ("": it goes on): a driver
    may hang for ever.

    Raises: Elsewhere: another server of this person does it. GpuShareError: there are no GPUs to
    manage here, the policy is bad, or somebody else's scheduler or agent is at work already.
    """
    # SQL and NumPy take their time to load; the server's pages do not wait for it.
    await asyncio.to_thread(import_module, "jupyter_gpushare.scheduler.embedded")
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer, devices_here, run_watched

    await _must_be_free(state_dir)

    bound = read_memory(host_memory, what="host_memory") if host_memory else None
    # A driver without persistence mode takes seconds to wake its GPUs, and a broken one does not
    # answer at all.
    devices = await run_watched(
        lambda: devices_here(state_dir, simulate=simulate, gpu_memory=gpu_memory), tell
    )
    await _must_be_free(state_dir)
    server = EmbeddedServer(
        state_dir,
        simulate=simulate,
        socket=socket,
        policy_file=policy_file,
        user=user,
        host_memory_mib=bound,
        devices=devices,
    )
    await server.start()
    return server


async def _must_be_free(state_dir: Path) -> None:
    """Raises Elsewhere. A server that is starting has the lock for a moment before it listens."""
    from jupyter_gpushare.scheduler.embedded import is_served, own_socket, served_at

    for _ in range(TRIES):
        if not is_served(state_dir):
            return
        if served_at(state_dir) == f"{UNIX}{own_socket(state_dir)}":
            raise SchedulerRunsElsewhere(own_socket(state_dir))
        await asyncio.sleep(PAUSE_S)
