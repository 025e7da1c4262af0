"""Cgroup leaves for kernels: found, joined, killed and removed; in the machine's hierarchy where
that is permitted, and in a directory that imitates one.
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
input()  # every child is born in the cgroup
for _ in range(60):
    time.sleep(0.002)
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
"""


def real_subtree() -> Path | None:
    """A new cgroup in the machine's hierarchy; None without permission."""
    point = next((line.split()[4] for line in MOUNTS.splitlines() if " - cgroup2 " in line), None)
    if point is None:
        return None
    with contextlib.suppress(OSError):
        subtree = Path(point) / f"gpushare-test-{secrets.token_hex(4)}"
        subtree.mkdir()
        if os.access(subtree / "cgroup.procs", os.W_OK):
            return subtree
    return None


def imitate_cgroup(folder: Path) -> Path:
    """Plain files: pids in `cgroup.procs` are members; writing to files has no effect, as for
    `cgroup.kill` before Linux 5.14.
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


@pytest.fixture(params=["real", "directory"])
def cgroups(request, tmp_path):
    if request.param == "directory":
        yield Cgroups(*find_subtree(str(imitate_cgroup(tmp_path))))
        return
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("cgroups cannot be created on this machine; the directory is tested")
    yield Cgroups(*find_subtree(str(subtree)))
    for folder, _, _ in os.walk(subtree, topdown=False):
        os.rmdir(folder)


@pytest.fixture
def spawn():
    processes = []

    def spawn(*command: str) -> subprocess.Popen:
        processes.append(subprocess.Popen(command, start_new_session=True))
        return processes[-1]

    yield spawn
    for one in processes:
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


def test_moved_processes_are_members_and_kill_ends_exactly_these(cgroups, spawn):
    inside, other = [spawn("sleep", "600") for _ in range(3)], spawn("sleep", "600")
    leaf = leaf_with(cgroups, *(one.pid for one in inside))
    idents = [process_at(one.pid) for one in inside]
    assert cgroups.members(leaf) == sorted(one.pid for one in inside)
    assert cgroups.kill(leaf)
    assert alive(idents) == []
    assert process_at(other.pid) is not None
    assert other.poll() is None


def test_kill_ends_children_in_other_sessions_and_those_being_forked():
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("only a real cgroup contains the children of its members")
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


def test_without_cgroup_kill_members_are_frozen_killed_and_thawed(cgroups, spawn):
    cgroups.__class__ = BeforeLinux514
    inside = [spawn("sleep", "600") for _ in range(3)]
    leaf = leaf_with(cgroups, *(one.pid for one in inside))
    idents = [process_at(one.pid) for one in inside]
    assert cgroups.kill(leaf)
    assert alive(idents) == []
    assert (Path(leaf) / "cgroup.freeze").read_text().strip().endswith("0"), "thawed"


def test_a_leaf_with_members_is_not_removed():
    subtree = real_subtree()
    if subtree is None:
        pytest.skip("a directory that imitates a cgroup can always be emptied")
    cgroups = Cgroups(*find_subtree(str(subtree)))
    sleeper = subprocess.Popen(["sleep", "600"])
    leaf = leaf_with(cgroups, sleeper.pid)
    assert not cgroups.remove(leaf)
    assert cgroups.leaves() == [leaf]
    assert cgroups.kill(leaf)
    sleeper.wait()
    assert cgroups.remove(leaf)
    assert cgroups.remove(leaf), "it is already removed"
    os.rmdir(subtree / "gpushare")
    os.rmdir(subtree)


def test_available_controllers_are_delegated(tmp_path):
    subtree = imitate_cgroup(tmp_path)
    Cgroups(*find_subtree(str(subtree)))
    assert (subtree / "cgroup.subtree_control").read_text() == "+dmem\n"
    assert (subtree / "gpushare" / "cgroup.subtree_control").read_text() == "+dmem\n"


def test_an_agent_alone_in_its_cgroup_moves_to_a_leaf_so_that_controllers_can_be_delegated(
    tmp_path,
):
    subtree = imitate_cgroup(tmp_path)
    (subtree / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (subtree / "agent").mkdir()
    (subtree / "agent" / "cgroup.procs").touch()
    Cgroups(*find_subtree(str(subtree)))
    assert (subtree / "agent" / "cgroup.procs").read_text() == f"{os.getpid()}\n"


def test_without_a_subtree_no_method_has_an_effect():
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
    "a mounted part": (
        "30 23 0:26 /pod1 /sys/fs/cgroup rw - cgroup2 cgroup rw",
        "0::/pod1/c",
        "/sys/fs/cgroup/c",
    ),
    "outside the mounted part": (
        "30 23 0:26 /pod1 /sys/fs/cgroup rw - cgroup2 cgroup rw",
        "0::/pod2",
        None,
    ),
    "only version 1": ("30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw", "4:memory:/x", None),
}


@pytest.mark.parametrize(("mounts", "own", "expected"), CASES.values(), ids=CASES)
def test_the_cgroup_of_this_process_is_found(mounts, own, expected):
    assert own_subtree(mounts, own) == (Path(expected) if expected else None)


def test_the_root_cgroup_is_refused(tmp_path):
    (tmp_path / "mountinfo").write_text(f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cgroup").write_text("0::/\n")
    subtree, why = find_subtree(proc=tmp_path)
    assert subtree is None
    assert "root cgroup" in why


def test_a_subtree_without_permission_is_refused_with_a_remedy(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    subtree, why = find_subtree(str(blocked))
    assert subtree is None
    assert "Delegate=yes" in why
