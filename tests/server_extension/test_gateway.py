"""A server whose kernels run on a gateway says where to look."""

from __future__ import annotations

import json

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.gateway.managers import GatewayClient

from tests.workers import free_port

pytest_plugins = ("pytest_jupyter.jupyter_server",)
pytestmark = pytest.mark.slow
URL = f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def jp_server_config(tmp_path):
    KernelProvisionerFactory.clear_instance()
    GatewayClient.clear_instance()
    yield {
        "ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}},
        "GatewayClient": {"url": URL},
        "GpuShareExtension": {"state_dir": str(tmp_path / "state")},
    }
    GatewayClient.clear_instance()


async def test_the_status_of_a_server_with_a_gateway(jp_fetch):
    status = json.loads((await jp_fetch("gpushare", "api", "status")).body)
    for part in (status["scheduler"], status["agent"]):
        assert not part["reachable"]
        assert part["problem"].startswith(f"Kernels of this server run on the gateway {URL}: look")
