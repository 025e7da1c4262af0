"""Real GPUs, as far as a machine without one can show: the driver is played, everything else is the
product.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from node_agent.devices.base.model import TIERS
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Faults
from tests.story.fake_driver_server import GPU, PlayedServer
from tests.story.jupyter_process import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SMALL = 8 * GIB
CONTEXT = 256
WRITE = GPU + "p = g.alloc({size})\ng.write(p, b'{text}')\nprint(g.uuid())"
GROW = "import os, time\np = g.alloc({size})\nopen({flag!r}, 'w').close()\nwhile os.path.exists({flag!r}): time.sleep(0.05)"
READ = "print(g.read(p, {length}).decode(), g.uuid())"


@pytest.fixture
def played(tmp_path_factory):
    """Makes worlds with a played driver; each ends with its test, and shows its logs when the test
    failed.
    """
    made = []

    def make(**options) -> PlayedServer:
        server = PlayedServer(tmp_path_factory.mktemp("g"), **{"memory": SMALL, **options})
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.stop()
        sys.stdout.write(server.logs())


def write(notebook, gib, text):
    """Allocate and fill, as a plain script does on `cuda:0`; the GPU that it landed on."""
    return notebook.ok(WRITE.format(size=int(gib * GIB), text=text)).strip().splitlines()[-1]


def read(notebook, text):
    """What is there now, and where."""
    return notebook.ok(READ.format(length=len(text))).strip().splitlines()[-1].split()


def on(machine):
    """The environment of a shell on that machine."""
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


def test_plain_scripts_land_on_their_own_gpus_and_what_is_there_is_shown(played):
    server = played(gpus=2)
    assert not server.status()["simulated"]
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    gpus = write(a, 2, "of-a"), write(b, 1, "of-b")
    assert set(gpus) == set(server.machine.uuids), "one on each, though planned together"
    assert (a.view["gpu_uuid"], b.view["gpu_uuid"]) == gpus
    eventually(
        lambda: a.view["memory_mib"]["used"] == 2048 + CONTEXT,
        "what it holds, its context included",
    )

    stranger = server.machine.worker()
    stranger.do("alloc", 0, GIB)
    eventually(lambda: server.devices()[0]["foreign_processes"] == 1, "the stranger is counted")
    node = server.rest("GET", "gpushare/api/nodes")["nodes"][0]
    assert node["driver"] == "580.65.06"
    assert [device["foreign_mib"] for device in node["devices"]] == [1024 + CONTEXT, 0]
    assert [device["model"] for device in node["devices"]] == [server.machine.model] * 2
    assert stranger.is_alive()

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

    alone = (a, b)[
        gpus.index(server.machine.uuids[1])
    ]  # on its GPU: an error there can only have been its own
    server.machine.event(1, 8, 43)
    eventually(lambda: "fault" in alone.kinds(), "its error is told")
    assert server.devices()[1]["healthy"]
    server.machine.event(1, 8, 79)
    device = eventually(
        lambda: not (d := server.devices()[1])["healthy"] and d, "the GPU is unhealthy"
    )
    assert "fallen off the bus" in device["health"]


def crowded(played, driver):
    """A and B on a GPU each, and C that wants a whole one and has it: A, which had to leave, B,
    which stayed, and C.
    """
    server = played(gpus=2, driver=driver)
    eventually(
        lambda: not any("tested" in why for why in server.status()["tier_problems"].values()),
        "the self-test is through",
    )
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    gpus = {write(a, 1, "of-a"): a, write(b, 2, "of-b"): b}
    assert set(gpus) == set(server.machine.uuids)
    eventually(lambda: all(one.view["memory_mib"]["used"] for one in (a, b)), "both are seen")
    c = server.notebook("whole", "c.ipynb")
    taken = write(c, 7, "of-c")
    moved = gpus.pop(taken)
    assert moved is a, "the fewest bytes move"
    return a, b, c


def test_a_whole_gpu_lands_and_a_notebook_moves_to_the_other_with_every_byte(played):
    a, b, c = crowded(played, 580)
    pid = a.pid
    assert read(a, "of-a") == ["of-a", b.view["gpu_uuid"]]
    assert (a.pid, a.view["gpu_uuid"]) == (pid, b.view["gpu_uuid"])
    assert read(b, "of-b")[0] == "of-b"
    assert read(c, "of-c")[0] == "of-c"
    assert "killed" not in a.kinds() + b.kinds() + c.kinds()


def test_where_memory_cannot_move_its_owner_is_warned_and_started_anew_there(played):
    a, b, _ = crowded(played, 570)
    kinds = a.kinds()
    assert kinds.index("notice") < kinds.index("killed")
    notices = [event["message"] for event in a.view["events"] if event["kind"] == "notice"]
    assert any("cannot move GPU memory" in text for text in notices)
    assert not any("saved" in text and "cannot be saved" not in text for text in notices), (
        "nobody is promised what cannot be kept"
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


def test_what_strangers_hold_is_waited_for_and_never_taken(played):
    server = played(gpus=1)
    stranger = server.machine.worker()
    stranger.do("alloc", 0, 6 * GIB)
    eventually(lambda: server.devices()[0]["foreign_mib"], "the stranger is seen")
    a = server.notebook("half", "a.ipynb")
    cell = a.submit(WRITE.format(size=3 * GIB, text="of-a"))
    eventually(
        lambda: "Other processes use 6.2" in (a.view["cell_waits"] or ""),
        "its cell waits, and says for what",
    )
    assert stranger.is_alive()
    stranger.kill()
    assert a.collect(cell).ok


def test_a_cell_starts_on_what_the_gpu_holds_at_that_moment(played, tmp_path):
    """The last look may be a second old, and a neighbour who computes may have taken all the memory
    since.
    """
    server = played(gpus=1)
    eventually(lambda: "suspend" in server.status()["tiers"], "the self-test is through")
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    a.ok(GPU)
    b.ok("1")
    grown = tmp_path / "grown"
    busy = a.submit(GROW.format(size=6 * GIB, flag=str(grown)))
    eventually(grown.exists, "it took the memory")
    assert write(b, 3, "of-b"), "it did not meet an out-of-memory error inside its share"
    assert "notice" in a.kinds()
    grown.unlink()
    assert a.collect(busy).ok


def test_while_the_driver_hangs_nobody_is_let_go_into_memory_that_a_neighbour_may_have_taken(
    played,
):
    server = played(gpus=1)
    eventually(lambda: "suspend" in server.status()["tiers"], "the self-test is through")
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    a.ok(GPU + "g.alloc(1 << 30)")
    b.ok("1")
    eventually(lambda: a.view["memory_mib"]["used"], "it is seen")
    fault = server.machine.fault("nvmlDeviceGetMemoryInfo_v2", Faults.HANG, times=-1)
    eventually(lambda: server.machine.hits(fault), "the driver hangs")
    a.ok("p = g.alloc(6 << 30)")
    cell = b.submit(WRITE.format(size=3 * GIB, text="of-b"))
    b.until_shown(cell, "does not answer")
    assert a.ok("print('who has the share goes on')")
    server.machine.clear()
    assert b.collect(cell, 60).ok
    assert "killed" not in a.kinds()


def test_a_kernel_without_a_share_has_no_gpu(played):
    server = played(gpus=1)
    plain = server.notebook("plain", "p.ipynb")
    assert "error 100" in plain.run(GPU).text, "CUDA sees no device"
    assert server.machine.used(0) == 0


@pytest.mark.parametrize("driver", [535, 550, 570, 580, 615])
def test_the_command_line_says_what_a_driver_lacks(driver):
    with FakeGpuMachine(gpus=2, driver=driver, memory=SMALL) as machine:
        done = gpushare(
            on(machine), "agent", "--self-test", "--state-dir", str(machine.folder / "state")
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
    assert ("came with driver 615" in done.stdout) == (driver < 615)


def test_a_broken_driver_stops_the_agent_with_one_line_and_is_the_answer_of_the_self_test():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("nvmlInitWithFlags", Faults.FAIL, 18, times=-1)
        state = ("--state-dir", str(machine.folder / "state"))
        tested = gpushare(on(machine), "agent", "--self-test", *state)
        done = gpushare(on(machine), "agent", "--scheduler", "http://127.0.0.1:1", *state)
    assert (tested.returncode, "restart the machine" in tested.stdout) == (0, True), tested.stderr
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "restart the machine" in done.stderr


def test_a_driver_that_hangs_is_named_kernels_start_without_a_gpu_and_all_is_well_when_it_answers(
    tmp_path,
):
    server = PlayedServer(tmp_path / "g", gpus=1)
    try:
        server.machine.fault("nvmlInitWithFlags", Faults.HANG, times=-1)
        server.start_jupyter()
        agent = eventually(
            lambda: "nvmlInit" in ((agent := server.status()["agent"])["problem"] or "") and agent,
            "it says what hangs",
            60,
        )
        assert "has not returned since" in agent["problem"]
        nb = server.notebook("half", "a.ipynb")
        assert nb.ok("%gpu")
        server.machine.clear()
        eventually(lambda: server.status()["agent"]["reachable"], "the agent is here", 60)
        nb.until("attached", within=60)
        assert server.status()["agent"]["problem"] is None
        nb.shut_down()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_a_server_on_a_machine_with_a_broken_driver_says_so(tmp_path):
    server = PlayedServer(tmp_path / "g", gpus=1)
    try:
        server.machine.fault("nvmlInitWithFlags", Faults.FAIL, 9, times=-1)
        server.start_jupyter()
        eventually(
            lambda: "modprobe nvidia" in (server.status()["scheduler"]["problem"] or ""),
            "it says why",
            60,
        )
        assert server.notebook("plain", "p.ipynb").ok("print(1 + 1)").strip() == "2"
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_an_unhealthy_gpu_gets_nobody(played):
    server = played(gpus=2)
    server.machine.event(1, 8, 48)
    eventually(lambda: not server.devices()[1]["healthy"], "the GPU is unhealthy")
    notebooks = [server.notebook("half", name) for name in ("a.ipynb", "b.ipynb")]
    assert {write(one, 1, "x") for one in notebooks} == {server.machine.uuids[0]}
    waits = server.notebook("half", "c.ipynb")
    waits.until("pending")
    assert {one.view["gpu_uuid"] for one in notebooks} == {server.machine.uuids[0]}, (
        "idle ones are not moved there"
    )
    assert server.rest("GET", "gpushare/api/nodes")["nodes"][0]["status"] == "Ready"
