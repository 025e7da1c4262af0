"""Two notebooks share a GPU with a fake driver: real servers, a real agent with pynvml and the fake
CUDA library, and a replacement of PyTorch with the rules of its allocator. A bursts, B starts, and
no memory is lost that could be saved.

The GPU is small, because saved memory must fit into the memory of the test machine.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.agent.test_cgroups import real_subtree
from tests.fake_driver.fake_gpu_machine import GIB, MIB, ROOT, Faults
from tests.story.fake_driver_server import FakeDriverServer
from tests.story.front_end import Notebook, eventually
from tests.story.jupyter_process import processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BURST = "import torch\nx = torch.full(3 << 30, 7)"
SHARE = "import torch\ny = torch.full(1 << 30, 9)"
BUSY = """
import time, pathlib
print('started', flush=True)
while not pathlib.Path('{stop}').exists(): torch.cuda.synchronize(); time.sleep(0.02)
print(x.values())
"""
GROWS = """
import time
print('started', flush=True)
while torch.cuda.get_per_process_memory_fraction() > 0.6: time.sleep(0.02)
z = torch.full(512 << 20, 1)
"""
GREEDY = """
from tests.fake_driver.driver import CudaError, Gpu
try:
    Gpu().alloc(3 << 30)
except CudaError as error:
    print(error.code)
"""


class Shared(FakeDriverServer):
    """Notebooks use the replacements of frameworks; kernels get cgroups below `cgroup`."""

    def __init__(self, folder: Path, *, cgroup: Path | None = None, **machine) -> None:
        self.cgroup = cgroup
        super().__init__(folder, remote=True, gpus=1, memory=4 * GIB, context=128 * MIB, **machine)

    @property
    def env(self) -> dict[str, str]:
        path = {"PYTHONPATH": f"{ROOT / 'tests' / 'fake_driver' / 'frameworks'}:{ROOT}"}
        if self.cgroup is None:
            return super().env | path
        return (
            super().env
            | path
            | {
                "GPUSHARE_CGROUP": str(self.cgroup),
                "GPUSHARE_FAKE_CGROUPS": str(self.cgroup.parent),
            }
        )

    def tiers(self, *expected: str) -> None:
        eventually(lambda: tuple(self.status()["tiers"]) == expected, f"tiers {expected}", 60)

    def end_processes(self) -> None:
        """Must happen before their cgroups are removed."""
        for name in ("jupyter", "agent", "scheduler"):
            self.processes[name].terminate()
            self.processes[name].wait(30)
        for process in processes_of(self.folder):
            process.kill()

    def half(self, name: str) -> Notebook:
        made = self.notebook("half", f"{name}.ipynb")
        made.until("attached")
        return made


@pytest.fixture
def shared(tmp_path_factory):
    """Starts a machine that stops with the test, and prints its logs when it failed."""
    made: list[Shared] = []

    def start(**options) -> Shared:
        made.append(Shared(tmp_path_factory.mktemp("w"), **options))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()
        sys.stdout.write(one.logs())


def last(shown: str) -> str:
    """The last line; those above are about waiting."""
    return shown.strip().splitlines()[-1]


def test_driver_580_an_idle_burst_is_saved_for_the_owner_and_both_keep_their_values(shared):
    server = shared(driver=580)
    server.tiers("observe", "cooperate", "suspend")
    assert "no two GPUs" in server.status()["tier_problems"]["relocate"]
    a, b = server.half("a"), server.half("b")
    a.ok(BURST)
    eventually(lambda: a.view["memory_mib"]["borrowed"] > 1000, "a borrows")
    b.ok(SHARE)
    eventually(lambda: a.view["state"] == "suspended", "a is suspended")
    assert server.machine.state(a.pid) == "checkpointed"
    assert last(a.ok("print(x.values())")) == "{7}"
    assert last(b.ok("print(y.values())")) == "{9}"
    assert "killed" not in a.kinds() + b.kinds()
    assert "notice" not in a.kinds(), "an idle kernel gets no notice"
    a.shut_down()
    b.shut_down()
    server.nothing_is_left()
    eventually(lambda: server.machine.used(0) == 0, "the GPU is free")


def test_driver_580_a_busy_burst_gets_a_notice_is_suspended_and_continues(shared):
    server = shared(driver=580)
    server.tiers("observe", "cooperate", "suspend")
    a, b = server.half("a"), server.half("b")
    a.ok(BURST)
    stop = server.folder / "stop"
    running = a.submit(BUSY.format(stop=stop))
    a.until_shown(running, "started")
    waiting = b.submit(SHARE)
    a.until_shown(running, "will be reclaimed")
    assert b.collect(waiting).ok
    kinds = a.kinds()
    assert kinds.index("notice") < kinds.index("suspended")
    b.shut_down()
    stop.touch()
    done = a.collect(running)
    assert done.ok
    assert "{7}" in done.text


def test_driver_550_a_burst_gets_a_notice_and_a_lower_cap_and_is_restarted(shared):
    server = shared(driver=550)
    server.tiers("observe", "cooperate")
    assert "570" in server.status()["tier_problems"]["suspend"]
    a, b = server.half("a"), server.half("b")
    a.ok(BURST)
    running = a.submit(GROWS)
    a.until_shown(running, "started")
    waiting = b.submit(SHARE)
    eventually(lambda: "notice" in a.kinds(), "the notice")
    assert "will be lost" in next(
        event["message"] for event in a.view["events"] if event["kind"] == "notice"
    )
    assert a.collect(running).ename == "OutOfMemoryError", (
        "its cap was lowered at once: an error of the framework, and the kernel survives"
    )
    assert "killed" not in a.kinds()
    assert b.collect(waiting, 60).ok
    eventually(lambda: "killed" in a.kinds(), "the event")
    a.until("attached")
    a.connect()
    output = a.run("print('x' in globals())", 60)
    assert "False" in output.text
    assert "GiB" in output.text, "what was lost"
    a.ok("import torch\nx = torch.full(1 << 30, 5)")
    assert last(a.ok("print(x.values())")) == "{5}"
    assert last(b.ok("print(y.values())")) == "{9}"


def test_a_cell_that_allocates_too_much_fails_with_the_error_of_pytorch(shared):
    server = shared(driver=580)
    a = server.half("a")
    result = a.run("import torch\nx = torch.full(3 << 30, 1); y = torch.full(1 << 30, 1)")
    assert result.ename == "OutOfMemoryError"
    assert a.ok("del x; x = torch.full(1 << 30, 3); print(x.values())").split()[-1] == "{3}"


def test_driver_615_enforces_the_cap(shared):
    subtree = real_subtree()
    if subtree is None:
        pytest.skip(
            "cgroups cannot be created on this machine; tests/agent/test_limits.py tests limits"
        )
    server = shared(driver=615, cgroup=subtree)
    try:
        server.tiers("observe", "cooperate", "limit", "suspend")
        a, b = server.half("a"), server.half("b")
        a.ok(BURST)
        leaf = next(
            str(path)
            for path in (subtree / "gpushare").glob("*-*.*")
            if str(a.pid) in (path / "cgroup.procs").read_text().split()
        )
        eventually(
            lambda: (
                (server.machine.limits(leaf, 0) or (0, 0))[0]
                == a.view["memory_mib"]["guaranteed"] << 20
            ),
            "the soft limit is the share",
        )
        set_limits = "nvmlDeviceSetMemoryLimits_v1"
        slow = server.machine.fault(set_limits, Faults.DELAY, times=-1, delay_ms=150)
        b.ok(SHARE)  # its cell starts after its limit allows its share
        assert server.machine.hits(slow)
        server.machine.clear()
        assert last(a.ok("print(x.values())")) == "{7}"
        a.shut_down()
        b.shut_down()
        # The driver also stops a library without a cap, in a kernel with a limit below the GPU.
        limited = server.notebook("limited", "limited.ipynb")
        limited.until("attached")
        assert limited.ok(GREEDY).strip() == "2"
        limited.shut_down()
        server.nothing_is_left()
        eventually(
            lambda: not list((subtree / "gpushare").glob("*-*.*")), "the cgroups are removed"
        )
        assert server.machine.limits(leaf, 0) == (0, 2**64 - 1), "reset before"
        assert server.machine.used(0) == 0
    finally:
        server.end_processes()
        for folder, _, _ in os.walk(subtree, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
