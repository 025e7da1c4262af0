"""Two notebooks share one real GPU through the whole product: A bursts, B arrives, A is saved, B runs, A comes back at its next cell."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fakegpu.world import ROOT
from tests.story.world import Notebook, Server, eventually

__all__ = ["Told", "tell"]

BY_TORCH = "import torch\nx = torch.full(({size},), {value}, dtype=torch.uint8, device='cuda')"
TORCH_RIGHT = "print(bool((x == {value}).all().item()))"
BY_DRIVER = "from tests.fakegpu.driver import Gpu\ng = Gpu(); x = g.alloc({size}); g.fill(x, {value}, {size})"
DRIVER_RIGHT = "print(set(g.read(x + {size} - 4096, 4096)) | set(g.read(x, 4096)) == {{{value}}})"


class RealServer(Server):
    """Nobody says `simulate`: the agent finds what the driver shows it."""

    @property
    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("GPUSHARE_FAKE_GPU",) if name in os.environ}
        return super().env | kept | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def _write_config(self) -> None:
        super()._write_config()
        path = self.folder / "config/jupyter_server_config.json"
        config = json.loads(path.read_text())
        config["GpuShareExtension"].pop("simulate", None)
        path.write_text(json.dumps(config))


@dataclass(frozen=True)
class Told:
    """How it went: seconds that a cell took from being sent to its end, and what was right."""

    library: str
    a_gib: float
    b_gib: float
    b_first_cell_s: float
    a_comes_back_s: float
    a_was_suspended: bool
    right: bool
    events: list[str]


def tell(total: int) -> Told:
    """On a GPU of `total` bytes: A takes 70 % of it with a share of a half, B 35 %."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-real-"))
    server = RealServer(folder / "w", gpus=1)
    try:
        server.start()
        eventually(lambda: "suspend" in server.status()["tiers"] or "suspend" in server.status()["tier_problems"], "the self-test", 120)
        return _tell(server, int(total * 0.7), int(total * 0.35))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _tell(server: RealServer, a_size: int, b_size: int) -> Told:
    by_torch = importlib.util.find_spec("torch") is not None
    take, right = (BY_TORCH, TORCH_RIGHT) if by_torch else (BY_DRIVER, DRIVER_RIGHT)
    a, b = (server.notebook("half", f"{name}.ipynb") for name in "ab")
    for one in (a, b):
        one.until("attached", within=120)
    a.ok(take.format(size=a_size, value=7), 300)
    eventually(lambda: a.view["memory_mib"]["borrowed"] > 0, "A borrows", 60)
    b_s = _seconds(b, take.format(size=b_size, value=9))
    suspended = a.view["state"] == "suspended"
    begun = time.perf_counter()
    a_right = "True" in a.ok(right.format(size=a_size, value=7), 300)
    a_s = time.perf_counter() - begun
    b_right = "True" in b.ok(right.format(size=b_size, value=9), 300)
    kinds = a.kinds()
    return Told("torch" if by_torch else "driver", a_size / (1 << 30), b_size / (1 << 30), b_s, a_s, suspended, a_right and b_right, kinds)


def _seconds(notebook: Notebook, code: str) -> float:
    begun = time.perf_counter()
    notebook.ok(code, 300)
    return time.perf_counter() - begun
