"""Kernels in pid namespaces (containers) with an agent on the host, and an agent inside one, with
real namespaces.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.system.processes import process_at
from tests.agent.nvidia_node import GpuNode
from tests.agent.simulated_node import GIB, play
from tests.fake_driver.fake_gpu_machine import FakeGpuMachine

CONTAINER = 'mount --bind /proc "$0" && exec unshare --pid --fork --kill-child --mount-proc "$@"'
"""The host's /proc stays visible for the fake driver, which identifies processes by the pids of the
host, like the real one.
"""
FILL = "p = gpu.alloc({gib} << 30); gpu.write(p, b'tensor'); result = p"


def container(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The prefix of a command, and its environment."""
    host = folder / "machine"
    host.mkdir(exist_ok=True)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", CONTAINER, str(host)], {
        "GPUSHARE_FAKE_HOST_PROC": str(host)
    }


def can_contain(folder: Path) -> bool:
    prefix, _ = container(folder)
    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def in_container(tmp_path):
    if not can_contain(tmp_path):
        pytest.skip("requires permission to create namespaces")
    return container(tmp_path)


def test_kernels_in_containers_are_attributed_saved_restored_and_ended(in_container):
    async def story():
        async with GpuNode() as world:
            world.server.wrap, world.server.environ = in_container
            a = await world.kernel("a", request=40 * GIB)
            main = world.record("a").process.main
            assert main is not None
            assert process_at(main.pid) == main, "by the pid on the host"
            assert (await a.run("import os\nresult = os.getpid()"))["result"] == 1
            assert "error" not in await a.run(FILL.format(gib=60))
            await world.until(
                lambda: world.record("a").memory.used_mib == 60 * GIB + 256,
                "its memory is attributed to it",
            )
            assert world.agent.node.foreign == {0: 0}
            b = await world.kernel("b", request=39 * GIB)
            assert "error" not in await b.run(FILL.format(gib=30), timeout=60)
            assert world.machine.state(main.pid) == "checkpointed"
            world.scheduler.end("b")
            await b.end()
            assert (await a.run("result = gpu.read(p, 6).decode()", timeout=60))[
                "result"
            ] == "tensor"
            await a.end()
            await world.until(
                lambda: world.used() == {0: 0} and not main.is_alive(), "nothing is left"
            )

    play(story())


def test_an_agent_in_a_pid_namespace_reports_that_it_cannot_attribute_memory(
    in_container, tmp_path
):
    prefix, environ = in_container
    with FakeGpuMachine(gpus=1) as machine:
        argv = [
            *prefix,
            sys.executable,
            "-m",
            "jupyter_gpushare.cli",
            "agent",
            "--self-test",
            "--state-dir",
            str(tmp_path / "state"),
        ]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env=os.environ | machine.environment() | environ,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"observe +no +.*pid namespace of its own", done.stdout), done.stdout
        assert "hostPID" in done.stdout
        assert machine.used(0) == 0
