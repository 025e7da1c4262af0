"""What the cell gate costs when a kernel starts: the import of its code, and the time until the
kernel answers, against the same kernel without it. Warm: every environment starts once before.

Bars: the import takes at most 50 ms of CPU, the start at most 1.10 times as long.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from jupyter_client.manager import KernelManager

from jupyter_gpushare.server_extension.launch.bootstrap import STARTUP, bootstrap_environment
from tests.benchmarks.machine import print_speed
from tests.environments import ENVIRONMENTS
from tests.kernel.fake_agent import FakeAgent

ROUNDS: Final = 12
IMPORT: Final = f"""
import runpy, sys, time
import ipykernel.kernelapp, IPython
load = runpy.run_path({str(STARTUP.with_name("loader.py"))!r})
start = time.process_time()
if not load["_is_installed_here"]({str(STARTUP.parent)!r}):
    load["_load_from"]({str(STARTUP.parent)!r})
import jupyter_gpushare.kernel.ipython_extension
print((time.process_time() - start) * 1000)
"""


def import_ms(python: str) -> float:
    """The median of several processes."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    times = []
    for _ in range(ROUNDS):
        done = subprocess.run([python, "-c", IMPORT], env=env, capture_output=True, check=True)
        times.append(float(done.stdout))
    return statistics.median(times)


def start_s(python: str, env: dict[str, str]) -> float:
    """Seconds from the launch to the first reply."""
    manager = KernelManager()
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    begun = time.perf_counter()
    manager.start_kernel(env=env, stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    took = time.perf_counter() - begun
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return took


def starts(python: str, agent: FakeAgent, token: Path) -> tuple[float, float]:
    """Medians without and with the gate, measured in turns."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ours = {
        "GPUSHARE_KERNEL_ID": "k1",
        "GPUSHARE_AGENT": str(agent.path),
        "GPUSHARE_TOKEN_FILE": str(token),
    }
    gated = {**plain, **ours, **bootstrap_environment(plain)}
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS + 1):
        for env, taken in zip((plain, gated), times, strict=True):
            took = start_s(python, env)
            if i:  # the first start compiles
                taken.append(took)
    return statistics.median(times[0]), statistics.median(times[1])


def _has_ipykernel(python: Path) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ipykernel') is None)"
    return subprocess.run([str(python), "-c", code], check=False).returncode == 0


def main() -> None:
    pythons = {"ours": sys.executable}
    for one in ENVIRONMENTS.values():
        if one.python.exists() and not one.has_package and _has_ipykernel(one.python):
            pythons[one.name] = str(one.python)
    print_speed()
    sys.stdout.write(
        f"{'environment':<12} {'import ms':>9} {'start s':>8} {'gated s':>8} {'ratio':>6}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        agent, token = FakeAgent(Path(folder) / "agent.sock"), Path(folder) / "token"
        token.write_text("secret")
        for name, python in pythons.items():
            plain, gated = starts(python, agent, token)
            took = import_ms(python)
            sys.stdout.write(
                f"{name:<12} {took:9.1f} {plain:8.3f} {gated:8.3f} {gated / plain:6.2f}\n"
            )
            sys.stdout.flush()
        agent.close()


if __name__ == "__main__":
    main()
