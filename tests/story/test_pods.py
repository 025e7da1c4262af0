"""A person's server in a pod: its kernels share the GPUs of the node through the mounted socket,
and get a GPU later when they start while the agent is away.
"""

from __future__ import annotations

import platform
import sys

import pytest

from tests.agent.pods import FakePod, as_node_root, public_folder
from tests.story.pod_server import ServerInPod

pytestmark = [pytest.mark.slow, as_node_root, pytest.mark.timeout(180)]
ALLOC = (
    "from jupyter_gpushare import simgpu\nb = simgpu.alloc('40GiB')\nprint(simgpu.device_uuid())"
)


@pytest.fixture
def server():
    with public_folder() as folder, FakePod(folder, root=True) as pod:
        server = ServerInPod(folder, pod)
        try:
            yield server.start()
        finally:
            server.stop()
            sys.stdout.write(server.logs())


def test_kernels_of_a_pod_share_gpus_also_when_the_agent_was_away(server: ServerInPod):
    before = server.notebook("half", "before.ipynb")
    assert "SIM-GPU" in before.ok(ALLOC)
    server.kill("agent")
    nb = server.notebook("half", "a.ipynb")
    cell = nb.submit(ALLOC)
    nb.until_shown(cell, "agent")
    server.start_agent()
    assert "SIM-GPU" in nb.collect(cell, 60).text
    assert before.ok("print(b.nbytes >> 30)") == "40\n", "its memory survived the agent"
    runtime = server.folder / "runtime/gpushare" / platform.node()
    assert {one.name for one in runtime.iterdir()} == {nb.kernel_id, before.kernel_id}
    for one in (nb, before):
        one.shut_down()
    server.nothing_is_left()
    assert list(runtime.iterdir()) == []
