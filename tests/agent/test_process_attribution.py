"""Attribution of real processes to kernels: by parent, marker or session, never by a pid alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from jupyter_gpushare.kernel.simnode import start_of
from node_agent.devices.base.model import KernelProcesses
from node_agent.devices.base.process_attribution import ProcessAttribution
from node_agent.policy.memory_accounting import ENDED, FOREIGN
from node_agent.system.processes import MARKER, SELF_TEST, ProcessId, find_launched

FAMILY = """
import os, subprocess, sys
wait = "import sys; sys.stdin.read()"
plain = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE)
away = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, start_new_session=True)
bare = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, env={})
print(plain.pid, away.pid, bare.pid, flush=True)
sys.stdin.read()
"""
ORPHAN = """
import os, subprocess, sys
wait = "import sys; sys.stdin.read()"
if os.fork():
    os.wait(); print(open(sys.argv[1]).read(), flush=True); sys.stdin.read()
else:
    orphan = subprocess.Popen([sys.executable, "-c", wait], stdin=sys.stdin, env={})
    open(sys.argv[1], "w").write(str(orphan.pid)); os._exit(0)
"""


@contextmanager
def running(code, *args, launch="", **options):
    env = {name: value for name, value in os.environ.items() if name != MARKER} | (
        {MARKER: launch} if launch else {}
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
        **options,
    )
    try:
        yield process, [int(word) for word in process.stdout.readline().split()]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def test_children_are_attributed_by_parent_marker_and_session():
    with running(FAMILY, launch="k.1") as (main, children), running(FAMILY) as (other, others):
        owners = ProcessAttribution()
        owners.track({"k": KernelProcesses((main.pid, start_of(main.pid)), "k.1")})
        assert [owners.owner_of(pid)[1] for pid in (main.pid, *children)] == ["k"] * 4
        assert [owners.owner_of(pid)[1] for pid in (other.pid, *others)] == [FOREIGN] * 4
        assert {one.pid for one in owners.members("k")} == {main.pid, *children}


def test_an_orphan_with_an_empty_environment_is_found_by_its_session(tmp_path):
    with running(ORPHAN, str(tmp_path / "pid"), launch="k.1") as (main, (orphan,)):
        owners = ProcessAttribution()
        owners.track({"k": KernelProcesses((main.pid, start_of(main.pid)), "k.1")})
        assert owners.owner_of(orphan)[1] == "k"


def test_a_marker_suffices_without_main_process_and_an_old_marker_is_foreign():
    with running(FAMILY, launch="k.2") as (main, _):
        owners = ProcessAttribution()
        owners.track({"k": KernelProcesses(None, "k.2")})
        assert owners.owner_of(main.pid)[1] == "k"
        owners.track({"k": KernelProcesses(None, "k.3")})
        assert owners.owner_of(main.pid)[1] == FOREIGN


def test_test_processes_of_the_agent_belong_to_no_kernel():
    with running(FAMILY, launch=SELF_TEST) as (main, _):
        assert ProcessAttribution().owner_of(main.pid)[1] == ENDED


def test_a_process_is_attributed_once_its_kernel_is_registered():
    with running(FAMILY) as (main, children):
        owners = ProcessAttribution()
        assert owners.owner_of(main.pid)[1] == FOREIGN
        owners.track({"k": KernelProcesses((main.pid, start_of(main.pid)), "")})
        assert owners.owner_of(children[0])[1] == "k"


def test_a_reused_pid_is_not_the_kernel():
    with running(FAMILY) as (main, _):
        owners = ProcessAttribution()
        owners.track({"k": KernelProcesses((main.pid, start_of(main.pid) - 1), "k.1")})
        assert owners.owner_of(main.pid)[1] == FOREIGN


def test_ended_processes_are_distinguished_from_unknown_pids():
    owners = ProcessAttribution()
    with running(FAMILY) as (main, _):
        start = owners.owner_of(main.pid)[0]
        assert start == start_of(main.pid)
    assert owners.owner_of(main.pid) == (start, ENDED)
    assert owners.owner_of(2**22 + 1) == (0, FOREIGN)


def test_a_reported_pid_is_accepted_with_the_marker_of_the_launch():
    with (
        running(FAMILY, launch="k.1") as (main, _),
        running(FAMILY, launch="other.1") as (other, _),
    ):
        assert find_launched(main.pid, "k.1") == ProcessId(main.pid, start_of(main.pid))
        assert find_launched(other.pid, "k.1") is None, "the process of another launch"
    assert find_launched(1, "k.1") is None, "an old process was not just launched"


def test_an_unmarked_process_is_accepted_while_it_is_young():
    with running(FAMILY) as (main, _):
        assert find_launched(main.pid, "k.1") == ProcessId(main.pid, start_of(main.pid))


def can_unshare():
    return (
        subprocess.run(
            ["unshare", "-p", "--fork", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="requires permission to create a pid namespace")
def test_pids_reported_from_a_container_are_translated():
    command = ["unshare", "-p", "--fork", "--kill-child", sys.executable, "-c", FAMILY]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {MARKER: "k.1"},
    )
    try:
        inner = [1, *map(int, process.stdout.readline().split())]
        found = [find_launched(pid, "k.1") for pid in inner[:3]]  # the last one carries no marker
        assert None not in found
        assert len({one.pid for one in found}) == 3
        assert process.pid not in {one.pid for one in found}
        owners = ProcessAttribution()
        owners.track({"k": KernelProcesses((found[0].pid, found[0].start), "k.1")})
        assert {one.pid for one in found} <= {one.pid for one in owners.members("k")}
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)
