"""Kernels that cannot load our extension, and how each of them runs a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.environments import ROOT, python_of, r_command

__all__ = ["OTHER_KERNELS", "OtherKernel", "holding", "other_kernel"]

SENSITIVE = Path(__file__).parents[1] / "kernel_proxy/interrupt_sensitive_kernel.py"
FILE = "{connection_file}"
USES_GPU = """
from jupyter_gpushare import simgpu
import pathlib, time
b = simgpu.alloc('{memory}'); b.fill(3)
print('allocated', flush=True)
while not pathlib.Path('{stop}').exists(): {work}
print('kept', b.sum() > 0, flush=True)
"""


@dataclass(frozen=True)
class OtherKernel:
    """`argv`: skips the test where the machine does not have it. `prints`: code that prints "ran".
    `runs` and `starts`: code that waits for a shell command or does not; `{}` is the command in
    double quotes.
    """

    language: str
    argv: Callable[[], list[str]]
    prints: str
    runs: str
    starts: str

    def spec(self, name: str, **request: object) -> dict[str, object]:
        """Its kernelspec with this request."""
        metadata = {
            "kernel_provisioner": {"provisioner_name": "gpushare-provisioner", "config": request}
        }
        spec = {"argv": self.argv(), "display_name": name, "language": self.language}
        return {**spec, "metadata": metadata}

    def run(self, command: str) -> str:
        """Code that runs the command and waits for its end."""
        return self.runs.format(json.dumps(command))

    def start(self, command: str) -> str:
        """Code that starts the command and goes on."""
        return self.starts.format(json.dumps(command))


def _bash() -> list[str]:
    return [sys.executable, "-m", "bash_kernel", "-f", FILE]


def _r() -> list[str]:
    return [r_command(), "--slave", "-e", "IRkernel::main()", "--args", FILE]


def _xeus() -> list[str]:
    return [str(python_of("xeus")), "-m", "xpython_launcher", "-f", FILE]


def _cleared() -> list[str]:
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "PYTHONPATH") if name in os.environ]
    return ["env", "-i", *kept, sys.executable, str(SENSITIVE), "-f", FILE]


_PYTHON = (
    "print('ran')",
    "import subprocess; subprocess.run({}, shell=True)",
    "import subprocess; child = subprocess.Popen({}, shell=True)",
)
OTHER_KERNELS = {
    "bash": OtherKernel("bash", _bash, "echo ran", "eval {}", "eval {} &"),
    "R": OtherKernel("R", _r, 'cat("ran\\n")', "invisible(system({}))", "system({}, wait = FALSE)"),
    "xeus": OtherKernel("python", _xeus, *_PYTHON),
    "cleared": OtherKernel("python", _cleared, *_PYTHON),
}
"""`cleared`: a command that clears the environment, and a kernel that SIGINT ends."""


@pytest.fixture(params=OTHER_KERNELS)
def other_kernel(request: pytest.FixtureRequest) -> OtherKernel:
    """Each of them that this machine has."""
    kernel = OTHER_KERNELS[request.param]
    kernel.argv()
    return kernel


def holding(script: Path, *, memory: str, stop: Path, busy: bool = False) -> str:
    """A shell command that holds GPU memory until the file `stop` exists; its output goes to the
    script's name with `.out`.
    """
    work = "simgpu.busy(0.05)" if busy else "time.sleep(0.05)"
    script.write_text(USES_GPU.format(memory=memory, stop=stop, work=work))
    return f"PYTHONPATH={ROOT} {sys.executable} {script} > {script.with_suffix('.out')} 2>&1"
