"""kill -9 of the node agent while it saves and restores GPU memory: the notebook only waits."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.fake_driver.fake_gpu_machine import GIB, Faults
from tests.story.fake_driver_server import GPU, FakeDriverServer
from tests.story.front_end import RestError, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(100)]
FILL = GPU + "p = g.alloc(2 << 30); g.write(p, b'every byte')"
READ = "print(g.read(p, 10).decode())"


@pytest.fixture
def fake_gpu_server(tmp_path):
    server = FakeDriverServer(tmp_path, gpus=1, memory=8 * GIB, remote=True)
    try:
        yield server.start()
    finally:
        server.stop()
        print(server.logs())  # noqa: T201 - shown when the test fails


def killed_in(server: FakeDriverServer, call: str, begin, end=lambda: None) -> None:
    """Kill the agent while the driver executes this call, and start a new one."""
    fault = server.machine.fault(call, Faults.HANG_AFTER)
    begin()
    try:
        eventually(lambda: server.machine.hits(fault), f"the agent calls {call}")
    finally:
        end()
    server.kill("agent")
    server.machine.clear()
    server.start_agent()


def test_nothing_is_lost_when_the_agent_is_killed_during_a_copy(fake_gpu_server):
    nb = fake_gpu_server.notebook("half", "a.ipynb")
    nb.ok(FILL, 60)
    act = f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend"
    pid = nb.pid

    eventually(lambda: "suspend" in fake_gpu_server.status()["tiers"], "the self-test is done")
    fake_gpu_server.rest("POST", act)
    assert fake_gpu_server.machine.state(pid) == "checkpointed"
    fake_gpu_server.kill("agent")
    fake_gpu_server.start_agent()
    assert nb.ok(READ, 60).endswith("every byte\n")

    def suspend() -> None:
        with contextlib.suppress(RestError):  # the agent is killed meanwhile
            fake_gpu_server.rest("POST", act)

    over = threading.Event()

    def repeat() -> None:
        """A new agent must be found, and has to test the driver, before it saves memory."""
        while not over.wait(0.2):
            suspend()

    for call in ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"):
        over.clear()
        asking = threading.Thread(target=repeat)
        killed_in(fake_gpu_server, call, asking.start, over.set)
        asking.join()
        assert nb.ok(READ, 60).endswith("every byte\n")

    def saved() -> bool:
        suspend()  # repeated until the server has found the new agent
        return fake_gpu_server.machine.state(pid) == "checkpointed"

    for call in ("cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"):
        eventually(saved, "saved")
        waiting = []
        killed_in(fake_gpu_server, call, lambda waiting=waiting: waiting.append(nb.submit(READ)))
        assert "every byte" in nb.collect(waiting[0], 60).text
        assert nb.pid == pid


def test_an_agent_restarted_on_a_full_gpu_still_saves_memory(fake_gpu_server):
    """Its self-test has no free memory then; results from before count."""
    eventually(lambda: "suspend" in fake_gpu_server.status()["tiers"], "the self-test is done")
    a, b = fake_gpu_server.notebook("half", "a.ipynb"), fake_gpu_server.notebook("half", "b.ipynb")
    a.ok(GPU + "p = g.alloc(7800 << 20); g.write(p, b'every byte')", 60)
    b.ok("1")
    fake_gpu_server.kill("agent")
    fake_gpu_server.start_agent()
    b.ok(FILL, 60)
    assert "notice" not in a.kinds()
    assert a.ok(READ, 60).endswith("every byte\n")
    assert "killed" not in a.kinds()
