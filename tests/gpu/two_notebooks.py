"""Two notebooks share one real GPU with the whole product: A bursts, B starts, A is saved, B runs,
A is restored at its next cell.

A has 0.1 of the GPU and uses 0.3; B has 0.85 and uses 0.8. Only A's image is in host memory (which
may be smaller than the GPU memory), and B frees its memory before A's next cell.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.fake_driver.fake_gpu_machine import ROOT
from tests.story.front_end import Notebook, eventually
from tests.story.jupyter_process import SPECS, Server

__all__ = ["RealServer", "run_two_notebooks"]

GIB: Final = 1 << 30
LONG_S: Final = 150
TORCH: Final = {
    "take": "import torch\nx = torch.arange({count}, dtype=torch.int64, device='cuda')",
    "right": "step = 1 << 26\n"
    "def same(i):\n"
    "    values = torch.arange(i, min(i+step, {count}), dtype=torch.int64, device='cuda')\n"
    "    return torch.equal(x[i:i+step], values)\n"
    "print(all(same(i) for i in range(0, {count}, step)))",
    "free": "del x; torch.cuda.empty_cache()",
}
DRIVER: Final = {
    "take": "from tests.fake_driver.driver import Gpu\n"
    "g = Gpu(); x = g.alloc({size}); g.fill(x, {value}, {size})",
    "right": "print(set(g.read(x + {size} - 4096, 4096)) | set(g.read(x, 4096)) == {{{value}}})",
    "free": "g.free(x)",
}


class RealServer(Server):
    """Without `simulate`: the agent uses the GPUs that the driver lists."""

    @property
    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("GPUSHARE_FAKE_GPU",) if name in os.environ}
        return (
            super().env
            | kept
            | {
                "PYTHONPATH": os.pathsep.join(
                    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
                )
            }
        )

    def _write_kernelspecs(self) -> None:
        super()._write_kernelspecs()
        for name, share in (("a-tenth", 0.1), ("most", 0.85)):
            spec = json.loads((self.folder / "data/kernels/half/kernel.json").read_text())
            spec["metadata"]["kernel_provisioner"]["config"] = {**SPECS["half"], "gpu": share}
            self.kernelspec(name, spec)

    def _write_config(self) -> None:
        super()._write_config()
        path = self.folder / "config/jupyter_server_config.json"
        config = json.loads(path.read_text())
        config["GpuShareExtension"].pop("simulate", None)
        path.write_text(json.dumps(config))


def run_two_notebooks(total: int) -> Iterator[dict[str, str]]:
    """Events on a GPU of `total` bytes. Raises AssertionError when the product fails."""
    folder = Path(tempfile.mkdtemp(prefix="gpushare-real-"))
    server = RealServer(folder / "w", gpus=1)
    try:
        begun = time.perf_counter()
        server.start()
        yield {
            "what": "start of server, scheduler and agent",
            "is": f"{time.perf_counter() - begun:.1f} s",
        }
        yield from _events(server, int(total * 0.3), int(total * 0.8))
    except BaseException:
        sys.stderr.write(server.logs()[-8000:] + "\n")
        raise
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _events(server: RealServer, a_size: int, b_size: int) -> Iterator[dict[str, str]]:
    eventually(lambda: _tested(server.status()), "self-test", 120)
    status = server.status()
    yield {
        "what": "tiers",
        "is": ", ".join(status["tiers"])
        + "".join(f"; no {tier}: {why}" for tier, why in status["tier_problems"].items()),
    }
    library, cells = ("torch", TORCH) if _torch_works() else ("driver", DRIVER)
    yield {
        "what": "memory by",
        "is": (
            f"{library}; A uses {a_size / GIB:.1f} GiB with a share of 0.1, "
            f"B {b_size / GIB:.1f} GiB with 0.85"
        ),
    }
    a = server.notebook("a-tenth", "a.ipynb")
    a.until("attached", within=120)
    of_a, of_b = (
        {"size": size, "count": size // 8, "value": value}
        for size, value in ((a_size, 7), (b_size, 9))
    )
    yield _timed("A's first cell", a, cells["take"].format(**of_a))
    eventually(lambda: a.view["memory_mib"]["borrowed"] > 0, "A borrows", 60)
    b = server.notebook("most", "b.ipynb")
    b.until("attached", within=120)
    yield _timed("B's first cell, empty (A's memory is saved first)", b, "pass")
    yield {"what": "state of A", "is": a.view["state"]}
    yield _timed("B's second cell: it allocates its memory", b, cells["take"].format(**of_b))
    yield {"what": "B's values", "is": _verdict(_ran(b, cells["right"].format(**of_b)))}
    _ran(b, cells["free"])
    yield _timed("A's next cell, empty (its memory is restored)", a, "pass")
    yield {"what": "A's values", "is": _verdict(_ran(a, cells["right"].format(**of_a)))}
    for event in a.view["events"]:
        if event["kind"] in ("suspended", "resumed"):
            yield {"what": f"event of A: {event['kind']}", "is": event["message"]}
    yield {"what": "events of A", "is": ", ".join(a.kinds())}


def _torch_works() -> bool:
    """Tested in a separate process: it may be installed without access to a GPU."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(1, device='cuda')"],
        capture_output=True,
        check=False,
        timeout=90,
    )
    return done.returncode == 0


def _ran(notebook: Notebook, code: str) -> str:
    """Output of a cell. Raises AssertionError with its error."""
    result = notebook.run(code, LONG_S)
    assert result.ok, (
        f"{code!r} in {notebook.path}: {result.reply.get('ename')}: {result.reply.get('evalue')}"
    )
    return result.text


def _tested(status: dict) -> bool:
    return "suspend" in status["tiers"] or "being tested" not in status["tier_problems"].get(
        "suspend", "being tested"
    )


def _timed(what: str, notebook: Notebook, code: str) -> dict[str, str]:
    begun = time.perf_counter()
    _ran(notebook, code)
    return {"what": what, "is": f"{time.perf_counter() - begun:.2f} s"}


def _verdict(text: str) -> str:
    return "right" if "True" in text else "**WRONG**"
