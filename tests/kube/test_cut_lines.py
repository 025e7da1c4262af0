"""Lines to a real API server are cut or fall silent while nodes change: the copy is always that of
a fresh list in the end.

`GPUSHARE_CUTS=50 pytest tests/kube/test_cut_lines.py` runs for longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.kube.api_client import ClusterApi, Resource
from jupyter_gpushare.kube.reflector import Reflector
from tests.kube.control_plane import ControlPlane
from tests.kube.kubernetes_scheduler import until_async
from tests.scheduler.proxy import RoughNetwork

CUTS = int(os.environ.get("GPUSHARE_CUTS", "10"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120 + 20 * CUTS),
    # connections that were cut while they opened
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
NODES = [f"cut{number}" for number in range(5)]


class Changes:
    """An administrator who adds, cordons and deletes nodes."""

    def __init__(self, cluster: ControlPlane, dice: random.Random) -> None:
        self._cluster, self._dice = cluster, dice
        self.api = cluster.as_admin()

    def make(self) -> None:
        name = self._dice.choice(NODES)
        path = f"/api/v1/nodes/{name}"
        if name not in self.versions():
            self._cluster.add_node(name)
        elif self._dice.random() < 0.3:
            self.api.delete(path)
        else:
            self.api.merge(path, {"metadata": {"labels": {"turn": str(self._dice.random())}}})

    def versions(self) -> dict[str, str]:
        items = self.api.items("/api/v1/nodes")
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}

    def remove_all(self) -> None:
        for name in NODES:
            self.api.delete(f"/api/v1/nodes/{name}")
        self.api.close()


def test_cut_and_silent_lines(control_plane: ControlPlane, tmp_path: Path) -> None:
    dice = random.Random()
    changes, address = Changes(control_plane, dice), control_plane.addresses
    troubles: Counter[str] = Counter()

    async def trouble(network: RoughNetwork) -> None:
        kind = dice.choice(("cut", "cut for a while", "silent"))
        troubles[kind] += 1
        network.is_up = kind != "cut for a while"
        if kind == "silent":
            network.passing.clear()
        else:
            network.cut()
        for _ in range(dice.randrange(4)):
            await asyncio.to_thread(changes.make)
        await asyncio.sleep(dice.uniform(0, 1.5))
        network.is_up = True
        network.passing.set()

    async def run() -> None:
        network = RoughNetwork(address.host, address.port, dice)
        async with network.open() as url:
            config = tmp_path / "kubeconfig"
            shown = url.replace("http:", "https:")
            config.write_text(control_plane.kubeconfig.read_text().replace(address.url, shown))
            api = ClusterApi(kubeconfig=str(config), silence_s=1, request_s=5)
            await api.open()
            copy: dict[str, str] = {}
            reflector = Reflector(api, Resource("nodes"), version, put_into(copy), pause_s=0.1)
            task = asyncio.create_task(reflector.run())

            async def is_current() -> bool:
                return await asyncio.to_thread(changes.versions) == copy

            for _ in range(CUTS):
                await trouble(network)
                await until_async(is_current, f"the copy is right after {dict(troubles)}")
            task.cancel()
            await api.close()
        assert reflector.lists < CUTS, "most watches continue where they were cut"
        sys.stdout.write(f"{dict(troubles)}, {reflector.lists} lists, {api.requests} requests\n")

    try:
        asyncio.run(run())
    finally:
        changes.remove_all()


def version(raw: Any) -> str:
    return str(raw["metadata"]["resourceVersion"])


def put_into(copy: dict[str, str]) -> Any:
    def put(key: str, value: str | None) -> None:
        if value is None:
            copy.pop(key, None)
        else:
            copy[key] = value

    return put
