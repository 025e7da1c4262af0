"""Scheduler and node agent inside this server, for one person on one machine. The only file here that knows of `scheduler.embedded`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.quantity import read_memory

if TYPE_CHECKING:
    from ..scheduler.embedded import EmbeddedHouse

__all__ = ["start_local"]


async def start_local(
    *, state_dir: Path, socket: Path, policy_file: Path | None, simulate: str, gpu_memory: str, user: str, host_memory: str = "",
    tell: Callable[[str], None],
) -> EmbeddedHouse:  # fmt: skip
    """Start both in the running loop. `tell` hears why that takes long ("": it goes on): a driver may hang for ever.

    Raises:
        GpuShareError: there are no GPUs to manage here, the policy is bad, or another scheduler or agent is at work already.
    """
    # SQL and NumPy take their time to load; the server's pages do not wait for it.
    await asyncio.to_thread(import_module, "jupyter_gpushare.scheduler.embedded")
    from ..scheduler.embedded import EmbeddedHouse, devices_here, found_patiently

    bound = read_memory(host_memory, what="host_memory") if host_memory else None
    # A driver without persistence mode takes seconds to wake its GPUs, and a broken one does not answer at all.
    devices = await found_patiently(lambda: devices_here(state_dir, simulate=simulate, gpu_memory=gpu_memory), tell)
    house = EmbeddedHouse(
        state_dir, simulate=simulate, socket=socket, policy_file=policy_file, user=user, host_memory_mib=bound, devices=devices
    )
    await house.start()
    return house
