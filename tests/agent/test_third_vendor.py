"""A vendor in a package of its own: found by its entry point, shared between kernels, read and
capped, without a change of `node_agent`.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import node_agent
from jupyter_gpushare.messages import KernelUpdate
from node_agent.app import Agent
from node_agent.devices.base.protocols import DiscoveryRequest
from node_agent.discovery.inventory import find_devices, self_test
from tests.agent.simulated_node import GIB, World, play
from tests.agent.third_vendor import DIRECTORY, FileDevices

USE = f"""
from pathlib import Path
Path(os.environ["{DIRECTORY}"], "{{gpu}}", str(os.getpid())).write_text("{{mib}}")
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that adds the vendor."""
    metadata = tmp_path / "file_gpus-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: file-gpus\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[jupyter_gpushare.device_vendors]\n"
        "broken = tests.agent.third_vendor:Missing\n"
        "file = tests.agent.third_vendor:FileVendor\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


class FileNode(World):
    """A node with the devices of the third vendor."""

    async def start_agent(self) -> None:
        self.devices = find_devices(DiscoveryRequest("n0", self.state_dir))
        self.agent = Agent(self.config, self.devices, self.scheduler.link)
        await self.agent.start()
        self.updates: list[KernelUpdate] = []
        send = self.agent.socket_server.to_kernel

        def record(kernel_id: str, body) -> bool:
            if isinstance(body, KernelUpdate):
                self.updates.append(body)
            return send(kernel_id, body)

        self.agent.socket_server.to_kernel = record


def test_a_package_adds_a_vendor_and_a_broken_one_is_skipped(installed, tmp_path):
    assert isinstance(find_devices(DiscoveryRequest("n0", tmp_path)), FileDevices)


def test_simulated_gpus_that_were_requested_come_first(installed, tmp_path):
    devices = find_devices(DiscoveryRequest("n0", tmp_path, simulate="T4:1"))
    assert devices.reports()[0].model == "Simulated T4-16GB"
    devices.close()


def test_the_self_test_names_what_the_vendor_lacks(installed, tmp_path):
    results = self_test(find_devices(DiscoveryRequest("n0", tmp_path)))
    assert [result.tier for result in results if result.present] == ["observe", "cooperate"]
    assert {result.reason for result in results if not result.present} == {
        "these GPUs do not support it"
    }


def test_kernels_get_their_share_with_caps_and_their_memory_is_read(installed):
    async def story():
        async with FileNode() as node:
            node.scheduler.grant("a", gpu=0, request=8 * GIB, limit=12 * GIB)
            kernel = await node.server.launch("a")
            assert "error" not in await kernel.run(USE.format(gpu=0, mib=10 * GIB))
            await node.until(
                lambda: node.server.reported["a"].memory_mib.used == 10 * GIB, "memory is reported"
            )
            reported = node.server.reported["a"]
            assert (reported.state, reported.gpu_uuid) == ("attached", "FILE-0")
            assert reported.memory_mib.borrowed == 2 * GIB
            assert node.devices.caps["a"] == ((0, 12 * GIB),)
            device = node.updates[-1].devices[0]
            assert (device.uuid, device.cap_mib) == ("FILE-0", 12 * GIB)
            assert any("file GPU 0" in message for _, _, message in node.server.events)

    play(story())


def test_memory_of_other_processes_is_not_offered(installed):
    async def story():
        async with FileNode() as node:
            (node.state_dir / "file-gpus" / "0" / str(os.getpid())).write_text(str(4 * GIB))
            await node.until(lambda: node.agent.node.available()[0] == 12 * GIB, "it is counted")

    play(story())


VENDORS = ("nvidia", "simulated", "discovery.vendors")


def test_only_discovery_names_vendors():
    """Outside `devices` and `discovery`, no module imports a vendor or branches on `simulated`."""
    root = Path(node_agent.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in ("devices", "discovery"):
            continue
        tree = ast.parse(path.read_text())
        imported = [
            node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        ]
        assert not [name for name in imported if any(vendor in name for vendor in VENDORS)], path
        assert not list(_decisions_on_simulated(tree)), path


def _decisions_on_simulated(tree: ast.AST):
    """Conditions that read an attribute or a name `simulated`."""
    for node in ast.walk(tree):
        conditions: list[ast.AST] = []
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            conditions = [node.test]
        elif isinstance(node, ast.BoolOp | ast.UnaryOp):
            conditions = [node]
        for condition in conditions:
            for part in ast.walk(condition):
                name = getattr(part, "attr", getattr(part, "id", ""))
                if name == "simulated":
                    yield name
