"""How fast the machine is while a benchmark runs, so that runs on different days compare."""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from jupyter_client.manager import start_new_kernel

import jupyter_gpushare

__all__ = ["compile_package", "print_speed"]

LOOPS: Final = 2_000_000
RUNS: Final = 3


def print_speed() -> None:
    """Prints the times of a stock kernel start and of a fixed Python loop, and the load."""
    kernel = statistics.median(_kernel_start() for _ in range(RUNS))
    loop = min(_loop() for _ in range(RUNS))
    sys.stdout.write(
        f"machine: stock kernel start {kernel:.2f} s, Python loop of {LOOPS:,} steps "
        f"{loop * 1000:.0f} ms of processor time, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    sys.stdout.flush()


def compile_package() -> None:
    """As pip does when it installs the package: stock kernels do not compile their modules either
    when they start. Python may not be allowed to (PYTHONDONTWRITEBYTECODE, read-only folders).
    """
    compileall.compile_dir(Path(jupyter_gpushare.__file__).parent, quiet=1)


def _kernel_start() -> float:
    """Seconds from the start of an ipykernel, without our provisioner, to its first reply."""
    begun = time.perf_counter()
    manager, client = start_new_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    took = time.perf_counter() - begun
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return took


def _loop() -> float:
    """Seconds of processor time, which other programs disturb less than the time on the clock."""
    begun, total = time.process_time(), 0
    for i in range(LOOPS):
        total += i * i % 7
    return time.process_time() - begun


if __name__ == "__main__":
    print_speed()
