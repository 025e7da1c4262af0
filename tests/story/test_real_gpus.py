"""Real GPUs on a machine without any: the driver is fake, everything else is the product."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from node_agent.devices.base.model import TIERS
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Faults
from tests.story.fake_driver_server import GPU, FakeDriverServer
from tests.story.front_end import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SMALL = 8 * GIB
CONTEXT = 256
WRITE = GPU + "p = g.alloc({size})\ng.write(p, b'{text}')\nprint(g.uuid())"
GROW = """
import os, time
p = g.alloc({size})
open({flag!r}, 'w').close()
while os.path.exists({flag!r}): time.sleep(0.05)
"""
READ = "print(g.read(p, {length}).decode(), g.uuid())"


@pytest.fixture
def fake_gpu_server(tmp_path_factory):
    """Starts servers with a fake driver; they stop with the test, and print their logs when it
    failed.
    """
    made = []

    def make(**options) -> FakeDriverServer:
        server = FakeDriverServer(tmp_path_factory.mktemp("g"), **{"memory": SMALL, **options})
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.stop()
        sys.stdout.write(server.logs())


def write(notebook, gib, text):
    """Allocate and fill on `cuda:0`, like a plain script; returns its GPU."""
    return notebook.ok(WRITE.format(size=int(gib * GIB), text=text)).strip().splitlines()[-1]


def read(notebook, text):
    """Content of the memory, and its GPU."""
    return notebook.ok(READ.format(length=len(text))).strip().splitlines()[-1].split()


def environment_on(machine):
    """Environment of a shell on that machine."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "GPUSHARE"))
    } | machine.environment()


def gpushare(env, *args):
    """The command line."""
    return subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_plain_scripts_use_their_own_gpus_and_memory_of_all_processes_is_shown(fake_gpu_server):
    server = fake_gpu_server(gpus=2)
    assert not server.status()["simulated"]
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    gpus = write(a, 2, "of-a"), write(b, 1, "of-b")
    assert set(gpus) == set(server.machine.uuids), "one on each GPU, though planned together"
    assert (a.view["gpu_uuid"], b.view["gpu_uuid"]) == gpus
    eventually(lambda: a.view["memory_mib"]["used"] == 2048 + CONTEXT, "its memory and context")

    other = server.machine.worker()
    other.do("alloc", 0, GIB)
    eventually(
        lambda: server.devices()[0]["foreign_processes"] == 1, "the other process is counted"
    )
    node = server.rest("GET", "gpushare/api/nodes")["nodes"][0]
    assert node["driver"] == "580.65.06"
    assert [device["foreign_mib"] for device in node["devices"]] == [1024 + CONTEXT, 0]
    assert [device["model"] for device in node["devices"]] == [server.machine.model] * 2
    assert other.is_alive()

    shown = gpushare(
        server.env | {"GPUSHARE_STATE": str(server.state)},
        "nodes",
        "--gpus",
        "--csv",
        "--columns",
        "gpu,foreign_mib,foreign_processes,kernels,health",
    )
    assert shown.stdout.splitlines() == [
        "gpu,foreign_mib,foreign_processes,kernels,health",
        f"0,{1024 + CONTEXT},1,1,ok",
        "1,0,0,1,ok",
    ], shown.stderr

    # The only notebook on its GPU: errors there are its own.
    alone = (a, b)[gpus.index(server.machine.uuids[1])]
    server.machine.event(1, 8, 43)
    eventually(lambda: "fault" in alone.kinds(), "its error is reported")
    assert server.devices()[1]["healthy"]
    server.machine.event(1, 8, 79)
    device = eventually(
        lambda: not (d := server.devices()[1])["healthy"] and d, "the GPU is unhealthy"
    )
    assert "fallen off the bus" in device["health"]


def crowded(fake_gpu_server, driver):
    """A and B on one GPU each, and C with a whole one. Returns A, which had to move, B and C."""
    server = fake_gpu_server(gpus=2, driver=driver)
    eventually(
        lambda: not any("tested" in why for why in server.status()["tier_problems"].values()),
        "the self-test is done",
    )
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    gpus = {write(a, 1, "of-a"): a, write(b, 2, "of-b"): b}
    assert set(gpus) == set(server.machine.uuids)
    eventually(lambda: all(one.view["memory_mib"]["used"] for one in (a, b)), "both are measured")
    c = server.notebook("whole", "c.ipynb")
    taken = write(c, 7, "of-c")
    moved = gpus.pop(taken)
    assert moved is a, "the smaller one moves"
    return a, b, c


def test_a_notebook_moves_to_the_other_gpu_with_all_its_memory(fake_gpu_server):
    a, b, c = crowded(fake_gpu_server, 580)
    pid = a.pid
    assert read(a, "of-a") == ["of-a", b.view["gpu_uuid"]]
    assert (a.pid, a.view["gpu_uuid"]) == (pid, b.view["gpu_uuid"])
    assert read(b, "of-b")[0] == "of-b"
    assert read(c, "of-c")[0] == "of-c"
    assert "killed" not in a.kinds() + b.kinds() + c.kinds()


def test_where_memory_cannot_move_the_notebook_is_warned_and_restarted(fake_gpu_server):
    a, b, _ = crowded(fake_gpu_server, 570)
    kinds = a.kinds()
    assert kinds.index("notice") < kinds.index("killed")
    notices = [event["message"] for event in a.view["events"] if event["kind"] == "notice"]
    assert any("cannot move GPU memory" in text for text in notices)
    assert not any("saved" in text and "cannot be saved" not in text for text in notices), (
        "no notice promises that memory is saved"
    )
    assert any(
        "cannot move GPU memory" in event["message"]
        for event in a.view["events"]
        if event["kind"] == "killed"
    )
    eventually(lambda: a.view["state"] == "attached" and "reattached" in a.kinds(), "it is back")
    a.connect()
    assert write(a, 1, "anew") == b.view["gpu_uuid"]
    assert read(b, "of-b")[0] == "of-b"
    assert "killed" not in b.kinds()


def test_memory_of_other_processes_is_awaited_and_never_reclaimed(fake_gpu_server):
    server = fake_gpu_server(gpus=1)
    other = server.machine.worker()
    other.do("alloc", 0, 6 * GIB)
    eventually(lambda: server.devices()[0]["foreign_mib"], "the other process is measured")
    a = server.notebook("half", "a.ipynb")
    cell = a.submit(WRITE.format(size=3 * GIB, text="of-a"))
    eventually(
        lambda: "Other processes use 6.2" in (a.view["cell_waits"] or ""),
        "its cell waits, with the reason",
    )
    assert other.is_alive()
    other.kill()
    assert a.collect(cell).ok


def test_a_cell_starts_by_a_current_reading_of_the_gpu(fake_gpu_server, tmp_path):
    """The last reading may be a second old, and a busy neighbour may have allocated all memory
    since.
    """
    server = fake_gpu_server(gpus=1)
    eventually(lambda: "suspend" in server.status()["tiers"], "the self-test is done")
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    a.ok(GPU)
    b.ok("1")
    grown = tmp_path / "grown"
    busy = a.submit(GROW.format(size=6 * GIB, flag=str(grown)))
    eventually(grown.exists, "it has allocated the memory")
    assert write(b, 3, "of-b"), "no out-of-memory error within its share"
    eventually(lambda: "notice" in a.kinds(), "the event")
    grown.unlink()
    assert a.collect(busy).ok


def test_while_the_driver_hangs_no_cell_starts_on_memory_that_a_neighbour_may_use(fake_gpu_server):
    server = fake_gpu_server(gpus=1)
    eventually(lambda: "suspend" in server.status()["tiers"], "the self-test is done")
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    b.ok("1")
    a.ok(GPU + "g.alloc(1 << 30)")
    eventually(lambda: a.view["memory_mib"]["used"], "it is measured after b has run")
    fault = server.machine.fault("nvmlDeviceGetMemoryInfo_v2", Faults.HANG, times=-1)
    eventually(lambda: server.machine.hits(fault), "the driver hangs")
    a.ok("p = g.alloc(6 << 30)")
    cell = b.submit(WRITE.format(size=3 * GIB, text="of-b"))
    b.until_shown(cell, "does not respond")
    assert a.ok("print('continues')")
    server.machine.clear()
    assert b.collect(cell, 60).ok
    assert "killed" not in a.kinds()


def test_a_kernel_without_a_share_has_no_gpu(fake_gpu_server):
    server = fake_gpu_server(gpus=1)
    plain = server.notebook("plain", "p.ipynb")
    assert "error 100" in plain.run(GPU).text, "CUDA sees no device"
    assert server.machine.used(0) == 0


@pytest.mark.parametrize("driver", [535, 550, 570, 580, 615])
def test_the_self_test_reports_what_a_driver_lacks(driver):
    with FakeGpuMachine(gpus=2, driver=driver, memory=SMALL) as machine:
        done = gpushare(
            environment_on(machine),
            "agent",
            "--self-test",
            "--state-dir",
            str(machine.folder / "state"),
        )
    assert done.returncode == 0, done.stderr
    lines = {
        line.split()[0]: line
        for line in done.stdout.splitlines()[1:]
        if line.split()[:1] and line.split()[0] in TIERS
    }
    assert "NVIDIA A100-SXM4-80GB" in done.stdout.splitlines()[0]
    has = {tier for tier, line in lines.items() if line.split()[1] == "yes"}
    assert {"observe", "cooperate"} <= has
    assert ("suspend" in has, "relocate" in has) == (driver >= 570, driver >= 580)
    assert ("require driver 615" in done.stdout) == (driver < 615)


def test_a_broken_driver_stops_the_agent_with_one_line_and_is_reported_by_the_self_test():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("nvmlInitWithFlags", Faults.FAIL, 18, times=-1)
        state = ("--state-dir", str(machine.folder / "state"))
        tested = gpushare(environment_on(machine), "agent", "--self-test", *state)
        done = gpushare(
            environment_on(machine), "agent", "--scheduler", "http://127.0.0.1:1", *state
        )
    assert (tested.returncode, "restart the machine" in tested.stdout) == (0, True), tested.stderr
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "restart the machine" in done.stderr


def test_while_the_driver_hangs_kernels_start_without_a_gpu_and_attach_when_it_answers(tmp_path):
    server = FakeDriverServer(tmp_path / "g", gpus=1)
    try:
        server.machine.fault("nvmlInitWithFlags", Faults.HANG, times=-1)
        server.start_jupyter()
        agent = eventually(
            lambda: "nvmlInit" in ((agent := server.status()["agent"])["problem"] or "") and agent,
            "the hanging call is named",
            60,
        )
        assert "has not returned since" in agent["problem"]
        nb = server.notebook("half", "a.ipynb")
        assert nb.ok("%gpu")
        server.machine.clear()
        eventually(lambda: server.status()["agent"]["reachable"], "the agent is reachable", 60)
        nb.until("attached", within=60)
        assert server.status()["agent"]["problem"] is None
        nb.shut_down()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_a_server_reports_a_broken_driver(tmp_path):
    server = FakeDriverServer(tmp_path / "g", gpus=1)
    try:
        server.machine.fault("nvmlInitWithFlags", Faults.FAIL, 9, times=-1)
        server.start_jupyter()
        eventually(
            lambda: "modprobe nvidia" in (server.status()["scheduler"]["problem"] or ""),
            "the problem",
            60,
        )
        assert server.notebook("plain", "p.ipynb").ok("print(1 + 1)").strip() == "2"
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_nothing_is_placed_on_an_unhealthy_gpu(fake_gpu_server):
    server = fake_gpu_server(gpus=2)
    server.machine.event(1, 8, 48)
    eventually(lambda: not server.devices()[1]["healthy"], "the GPU is unhealthy")
    notebooks = [server.notebook("half", name) for name in ("a.ipynb", "b.ipynb")]
    assert {write(one, 1, "x") for one in notebooks} == {server.machine.uuids[0]}
    waits = server.notebook("half", "c.ipynb")
    waits.until("pending")
    assert {one.view["gpu_uuid"] for one in notebooks} == {server.machine.uuids[0]}, (
        "idle kernels are not moved there"
    )
    assert server.rest("GET", "gpushare/api/nodes")["nodes"][0]["status"] == "Ready"
