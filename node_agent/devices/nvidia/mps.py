"""Detects an MPS server that concerns this agent: processes under MPS cannot be checkpointed, and
NVML attributes their work to the server.

Reads /proc. Every process can choose its name, so a name counts only where our kernels could use
that server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["mps_is_running"]

PROCESS_NAME: Final = "nvidia-cuda-mps"
"""The first 15 characters of nvidia-cuda-mps-server and nvidia-cuda-mps-control, as in /proc."""
GPU_FILE: Final = "/dev/nvidia"


def mps_is_running(minors: Collection[int] = (), proc: Path = Path("/proc")) -> bool:
    """Whether an MPS server or control daemon that our kernels could use is visible.

    It belongs to root or the agent's user (those of other users serve their user only), and has one
    of our GPUs open, or none (`minors`: numbers of our device files); others serve containers.
    """
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _is_mps(entry) and _uid(entry) in (0, os.geteuid()):
                    opened = _open_gpus(entry)
                    if not opened or not minors or opened & set(minors):
                        return True
    return False


def _is_mps(entry: Path) -> bool:
    return (entry / "comm").read_text().strip() == PROCESS_NAME


def _uid(entry: Path) -> int:
    for line in (entry / "status").read_text(errors="replace").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    return -1


def _open_gpus(entry: Path) -> set[int]:
    """Minor numbers of the GPUs that a process has open; empty when they are not visible."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for link in (entry / "fd").iterdir():
            with contextlib.suppress(OSError):
                number = os.readlink(link).removeprefix(GPU_FILE)
                if number.isdecimal():
                    found.add(int(number))
    return found
