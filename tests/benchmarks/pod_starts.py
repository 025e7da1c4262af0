"""Inside a user's pod: how long its kernels take to start. Run in a cell by `bench_pod`."""

from __future__ import annotations

import json
import os
import statistics
import urllib.request
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir

from tests.benchmarks.bench_jupyter import start

__all__ = ["ratio"]

STOCK = {"provisioner_name": "local-provisioner", "config": {}}
PLAIN = {
    "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "plain",
    "language": "python",
}


class OwnServer:
    """The Jupyter server of this pod, as `bench_jupyter` uses one. `token`: of its user."""

    def __init__(self, token: str) -> None:
        self._token = token

    folder = Path(jupyter_runtime_dir()).parent

    def rest(self, verb: str, path: str, body: object = None) -> Any:
        base = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
        request = urllib.request.Request(
            f"http://127.0.0.1:8888{base}{path}",
            method=verb,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"token {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def allocated(self) -> int:
        return 0


def ratio(rounds: int, token: str) -> tuple[float, float, float]:
    """Median seconds of the stock provisioner and of ours, alternating, and their ratio."""
    for name, spec in {"plain": PLAIN, "stock": PLAIN | {"metadata": metadata()}}.items():
        folder = Path(jupyter_data_dir()) / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(spec))
    times: dict[str, list[float]] = {"stock": [], "plain": []}
    server: Any = OwnServer(token)
    for spec in times:
        start(server, spec)
    for _ in range(rounds):
        for spec, seen in times.items():
            seen.append(start(server, spec))
    stock, plain = (statistics.median(seen) for seen in times.values())
    return stock, plain, plain / stock


def metadata() -> dict[str, Any]:
    return {"kernel_provisioner": STOCK}
