"""Kernels behind the proxy see the GPUs of their share, whenever it is granted. The driver is
fake, everything else is the product.
"""

from __future__ import annotations

import sys

import pytest

from tests.story.fake_driver_server import FakeDriverServer
from tests.story.front_end import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SHOW = 'echo "[$CUDA_VISIBLE_DEVICES] $$"'


@pytest.fixture
def server(tmp_path_factory):
    server = FakeDriverServer(tmp_path_factory.mktemp("g"), gpus=1)
    request = {"provisioner_name": "gpushare-provisioner", "config": {"gpu": 0.5}}
    argv = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
    metadata = {"kernel_provisioner": request}
    spec = {"argv": argv, "display_name": "bash", "language": "bash", "metadata": metadata}
    server.kernelspec("bash", spec)
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_a_kernel_sees_the_gpu_of_its_share(server):
    """One that has executed nothing is started again with it; any other says what to do."""
    holder = server.notebook("whole", "holder.ipynb")
    holder.until("attached")
    fresh, used = server.notebook("bash", "fresh.ipynb"), server.notebook("bash", "used.ipynb")
    waiting = used.submit(SHOW)
    used.until_shown(waiting, "Needs 0.5 GPU")
    used.interrupt()
    used.collect(waiting)
    assert used.ok(SHOW).startswith("[] ")
    waiting = fresh.submit(SHOW)
    fresh.until_shown(waiting, "Needs 0.5 GPU")
    pid = fresh.pid
    holder.shut_down()

    result = fresh.collect(waiting, 60)
    assert "[GPU-" in result.text
    assert fresh.pid != pid
    assert fresh.until("attached")["gated"]
    assert not fresh.saw("restarting")
    assert "[GPU-" in fresh.ok(SHOW)

    used.until("attached")
    assert "restart it to use this one" in used.ok(SHOW)
    server.rest("POST", f"api/kernels/{used.kernel_id}/restart")
    used.connect()
    assert eventually(lambda: "[GPU-" in used.ok(SHOW), "it sees its GPU")
    for one in (fresh, used):
        one.shut_down()
