"""Leaves for kernels: found, filled, killed and taken away; in the machine's own hierarchy where it
lets us, and in a folder that stands in.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from node_agent.system.cgroups import Cgroups
from node_agent.system.processes import ProcessId, process_at
from node_agent.system.subtree import find_subtree, own_subtree

MOUNTS = Path("/proc/self/mountinfo").read_text()
FORKS = """
import os, time
input()  # born inside, every one of them
for _ in range(60):
    time.sleep(0.002)
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
"""


def real_subtree() -> Path | None:
    """A cgroup of our own in the machine's hierarchy; None where we may not make one."""
    point = next((line.split()[4] for line in MOUNTS.splitlines() if " - cgroup2 " in line), None)
    if point is None:
        return None
    with contextlib.suppress(OSError):
        subtree = Path(point) / f"gpushare-test-{secrets.token_hex(4)}"
        subtree.mkdir()
        if os.access(subtree / "cgroup.procs", os.W_OK):
            return subtree
    return None


def stand_in(folder: Path) -> Path:
    """As files: whoever was written into `cgroup.procs` is a member; nothing kills or freezes by
    itself, as before Linux 5.14.
    """
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (folder / name).touch()
    (folder / "cgroup.controllers").write_text("memory dmem\n")
    (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    (folder / "gpushare").mkdir()
    shutil.copytree(
        folder, folder / "gpushare", dirs_exist_ok=True, ignore=shutil.ignore_patterns("gpushare")
    )
    return folder


@pytest.fixture(params=["real", "stand-in"])
def cgroups(request, tmp_path):
    if request.param == "stand-in":
        yield Cgroups(*find_subtree(str(stand_in(tmp_path))))
        return
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("this machine lets nobody make cgroups; the folder that stands in is tried")
    yield Cgroups(*find_subtree(str(subtree)))
    for folder, _, _ in os.walk(subtree, topdown=False):
        os.rmdir(folder)


@pytest.fixture
def spawn():
    started_here = []

    def spawn(*command: str) -> subprocess.Popen:
        started_here.append(subprocess.Popen(command, start_new_session=True))
        return started_here[-1]

    yield spawn
    for one in started_here:
        one.kill()
        one.wait()


def leaf_with(cgroups: Cgroups, *pids: int) -> str:
    leaf = cgroups.make(f"k.{secrets.token_hex(4)}")
    if not (Path(leaf) / "cgroup.procs").exists():
        for name, text in {
            "cgroup.procs": "",
            "cgroup.events": "populated 1\nfrozen 1\n",
            "cgroup.freeze": "",
        }.items():
            (Path(leaf) / name).write_text(text)
    assert cgroups.join(leaf, pids), cgroups.problem
    return leaf


def alive(idents: list[ProcessId]) -> list[ProcessId]:
    return [one for one in idents if one.is_alive()]


def test_who_is_moved_in_is_a_member_and_a_kill_ends_all_and_nobody_else(cgroups, spawn):
    inside, other = [spawn("sleep", "600") for _ in range(3)], spawn("sleep", "600")
    leaf = leaf_with(cgroups, *(one.pid for one in inside))
    idents = [process_at(one.pid) for one in inside]
    assert cgroups.members(leaf) == sorted(one.pid for one in inside)
    assert cgroups.kill(leaf)
    assert alive(idents) == []
    assert process_at(other.pid) is not None
    assert other.poll() is None


def test_children_that_left_their_session_and_those_being_forked_die_too():
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("children are born into their parent's cgroup by the kernel alone")
    cgroups = Cgroups(*find_subtree(str(subtree)))
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, start_new_session=True
    )
    leaf = leaf_with(cgroups, parent.pid)
    try:
        parent.stdin.write(b"go\n")
        parent.stdin.close()
        deadline = time.monotonic() + 30
        while len(cgroups.members(leaf)) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        idents = [one for pid in cgroups.members(leaf) if (one := process_at(pid))]
        assert len(idents) >= 10
        assert cgroups.kill(leaf)
        assert alive(idents) == []
        parent.wait()
        deadline = time.monotonic() + 30
        while not cgroups.remove(leaf) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not Path(leaf).exists()
    finally:
        cgroups.kill(leaf)
        parent.wait()
        for folder, _, _ in os.walk(subtree, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


class BeforeLinux514(Cgroups):
    """A machine without `cgroup.kill`."""

    @staticmethod
    def _kill_at_once(leaf: Path) -> bool:
        return False


def test_a_machine_without_kill_freezes_kills_each_and_thaws(cgroups, spawn):
    cgroups.__class__ = BeforeLinux514
    inside = [spawn("sleep", "600") for _ in range(3)]
    leaf = leaf_with(cgroups, *(one.pid for one in inside))
    idents = [process_at(one.pid) for one in inside]
    assert cgroups.kill(leaf)
    assert alive(idents) == []
    assert (Path(leaf) / "cgroup.freeze").read_text().strip().endswith("0"), "thawed again"


def test_a_leaf_with_somebody_in_it_is_not_removed():
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("a folder that stands in can always be emptied")
    cgroups = Cgroups(*find_subtree(str(subtree)))
    sleeper = subprocess.Popen(["sleep", "600"])
    leaf = leaf_with(cgroups, sleeper.pid)
    assert not cgroups.remove(leaf)
    assert cgroups.leaves() == [leaf]
    assert cgroups.kill(leaf)
    sleeper.wait()
    assert cgroups.remove(leaf)
    assert cgroups.remove(leaf), "gone already is as good"
    os.rmdir(subtree / "gpushare")
    os.rmdir(subtree)


def test_controllers_are_passed_on_as_far_as_there_are_any(tmp_path):
    subtree = stand_in(tmp_path)
    Cgroups(*find_subtree(str(subtree)))
    assert (subtree / "cgroup.subtree_control").read_text() == "+dmem\n"
    assert (subtree / "gpushare" / "cgroup.subtree_control").read_text() == "+dmem\n"


def test_an_agent_alone_in_its_cgroup_steps_aside_so_that_controllers_can_be_passed_on(tmp_path):
    subtree = stand_in(tmp_path)
    (subtree / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (subtree / "agent").mkdir()
    (subtree / "agent" / "cgroup.procs").touch()
    Cgroups(*find_subtree(str(subtree)))
    assert (subtree / "agent" / "cgroup.procs").read_text() == f"{os.getpid()}\n"


def test_without_a_subtree_everything_is_harmless():
    cgroups = Cgroups(None, "because")
    assert cgroups.make("k.1") == ""
    assert not cgroups.join("", [1])
    assert cgroups.members("") == []
    assert cgroups.kill("")
    assert cgroups.leaves() == []
    assert cgroups.problem == "because"


CASES = {
    "the only hierarchy": (
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "0::/system.slice/a.service",
        "/sys/fs/cgroup/system.slice/a.service",
    ),
    "beside version 1": (
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        "4:memory:/x\n0::/a",
        "/sys/fs/cgroup/unified/a",
    ),
    "a container's namespace": (
        "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw",
        "0::/",
        "/sys/fs/cgroup",
    ),
    "a part that is mounted": (
        "30 23 0:26 /pod1 /sys/fs/cgroup rw - cgroup2 cgroup rw",
        "0::/pod1/c",
        "/sys/fs/cgroup/c",
    ),
    "outside of what is mounted": (
        "30 23 0:26 /pod1 /sys/fs/cgroup rw - cgroup2 cgroup rw",
        "0::/pod2",
        None,
    ),
    "only version 1": ("30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw", "4:memory:/x", None),
}


@pytest.mark.parametrize(("mounts", "own", "expected"), CASES.values(), ids=CASES)
def test_where_this_process_is(mounts, own, expected):
    assert own_subtree(mounts, own) == (Path(expected) if expected else None)


def test_the_root_of_the_machine_is_the_init_systems(tmp_path):
    (tmp_path / "mountinfo").write_text(f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cgroup").write_text("0::/\n")
    subtree, why = find_subtree(proc=tmp_path)
    assert subtree is None
    assert "root cgroup" in why


def test_a_subtree_that_is_not_ours_says_what_to_do(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    subtree, why = find_subtree(str(blocked))
    assert subtree is None
    assert "Delegate=yes" in why
