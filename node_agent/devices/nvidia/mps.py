"""Whether an MPS server concerns this agent: processes under MPS cannot be checkpointed, and NVML
counts their work as the server's.

Reads /proc. A process's name is its own word, so it counts only where it can be true for our
kernels.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["mps_runs"]

MPS_SERVER: Final = "nvidia-cuda-mps"
"""The first 15 characters of nvidia-cuda-mps-server and nvidia-cuda-mps-control, as /proc gives
them.
"""
GPU_FILE: Final = "/dev/nvidia"


def mps_runs(minors: Collection[int] = (), proc: Path = Path("/proc")) -> bool:
    """Whether an MPS server or its control that can be ours runs on this machine, as far as this
    process sees others.

    It can be when it is root's or our own user's: every other user's serves that user alone; and
    when it has none of the machine's GPUs open, or one of ours (`minors`: the numbers of their
    device files): another container's is no concern of ours.
    """
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().strip() == MPS_SERVER and _uid(entry) in (
                    0,
                    os.geteuid(),
                ):
                    opened = _gpus_open(entry)
                    if not opened or not minors or opened & set(minors):
                        return True
    return False


def _uid(entry: Path) -> int:
    lines = (entry / "status").read_text(errors="replace").splitlines()
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), -1)


def _gpus_open(entry: Path) -> set[int]:
    """Minor numbers of the GPUs that a process has open; empty when that cannot be seen."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for link in (entry / "fd").iterdir():
            with contextlib.suppress(OSError):
                number = os.readlink(link).removeprefix(GPU_FILE)
                if number.isdecimal():
                    found.add(int(number))
    return found
