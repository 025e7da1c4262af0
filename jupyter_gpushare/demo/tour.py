"""Lets *Run All* of the tutorial tell its whole story: a cell that needs another notebook asks
JupyterLab to open and run it, and waits until that notebook has its GPU memory.

Without JupyterLab's answer the cell says what to do by hand, and waits all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from jupyter_gpushare.kernel import gpu
from jupyter_gpushare.kernel.kernel_body import Json
from jupyter_gpushare.kernel.sizes import MIB, size_in_bytes

__all__ = ["Visitor", "run"]

TARGET: Final = "jupyter-gpushare:tour"
"""Comm target of the front end (labextension/src/plugins/tour.ts)."""
TICK_S: Final = 0.5
HINT_AFTER_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """A notebook that runs beside this one. `kernels`: on the GPU that it filled."""

    path: str
    kernels: frozenset[str]

    def end(self) -> None:
        """Shut its kernel down, and return when its GPU is free."""
        _send({"shutdown": self.path})
        hint = f"Shut the kernel of {self.path} down: Kernel, Shut Down Kernel."
        _wait(hint, lambda: not self.kernels & _all_kernels(gpu.nodes()) or None)
        print(f"The kernel of {self.path} has ended; its GPU is free.")  # noqa: T201 - for the notebook


def run(path: str, *, fills: str) -> Visitor:
    """Open a notebook beside this one, run all of it, and return when it has filled so much memory
    of a GPU (`"70GiB"`). Can be interrupted.
    """
    _send({"run": path})
    wanted = size_in_bytes(fills) // MIB
    found = _wait(
        f"Open {path} and run all of it: Run, Run All Cells.",
        lambda: _filled(gpu.nodes(), gpu.status()["kernel_id"], wanted),
    )
    print(f"{path} has its share and uses {fills} of another GPU.")  # noqa: T201 - for the notebook
    return Visitor(path, frozenset(found))


def _send(body: dict[str, str]) -> None:
    """A front end without our extension closes the comm."""
    from comm import create_comm

    create_comm(target_name=TARGET, data=body)


def _wait(hint: str, check: Callable[[], Any]) -> Any:
    """The first true result."""
    begun, hinted = time.monotonic(), False
    while not (found := check()):
        if not hinted and time.monotonic() - begun >= HINT_AFTER_S:
            print(f"{hint} This cell waits until then (■ ends the wait).")  # noqa: T201 - for the notebook
            hinted = True
        time.sleep(TICK_S)
    return found


def _filled(nodes: Iterable[Json], mine: str, mib: int) -> set[str] | None:
    """The kernels of others on a GPU of which they use so much."""
    for node in nodes:
        for device in node["devices"]:
            others = set(device["kernels"]) - {mine}
            if others and mine not in device["kernels"] and device["memory_mib"]["used"] >= mib:
                return others
    return None


def _all_kernels(nodes: Iterable[Json]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        for device in node["devices"]:
            found |= {*device["kernels"], *device["planned"]}
    return found
