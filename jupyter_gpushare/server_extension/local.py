"""Scheduler and node agent inside this server, for one person on one machine. The only place here that knows of `scheduler.embedded`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..client import Transport
from ..core.errors import Unavailable

__all__ = ["Local", "start_local"]


class Local(Protocol):
    """What runs."""

    transport: Transport

    async def stop(self) -> None: ...


async def start_local(*, state_dir: Path, socket: Path, policy_file: Path | None, simulate: str, gpu_memory: str, user: str) -> Local:
    """Start both in the running loop.

    Raises:
        GpuShareError: there are no GPUs to manage here, or another agent manages them.
    """
    raise Unavailable("embedded mode is not here yet")
