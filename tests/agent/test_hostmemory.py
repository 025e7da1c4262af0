"""The budget of host memory: every bound counts, copies under way count, and a file's cache is free
memory.
"""

from __future__ import annotations

import os

import pytest

from node_agent.system.host_memory import CgroupMemory, HostReading, read_host, refusal, reserve_of
from tests.agent.simulated_node import GIB, World, play

HOST = HostReading(total=100 * GIB, available=60 * GIB)
CASES = {
    "nothing is bounded": ((10, 0, 0, None, None), ""),
    "the machine has it": ((50 * GIB, 0, 0, None, HOST), ""),
    "the reserve is kept": ((56 * GIB, 0, 0, None, HOST), "the machine has not enough"),
    "what is on its way counts": (
        (30 * GIB, 0, 30 * GIB, None, HOST),
        "the machine has not enough",
    ),
    "what is saved already is not counted twice": ((30 * GIB, 90 * GIB, 0, None, HOST), ""),
    "the budget counts what is saved and what is on its way": (
        (2 * GIB, 5 * GIB, 4 * GIB, 10 * GIB, HOST),
        "2 GiB do not fit into the host memory for saved GPU state: 9 GiB of 10 GiB",
    ),
    "the budget to the last byte": ((1 * GIB, 5 * GIB, 4 * GIB, 10 * GIB, HOST), ""),
    "a container's bound": (
        (
            9 * GIB,
            0,
            0,
            None,
            HostReading(100 * GIB, 60 * GIB, (CgroupMemory("/c", 16 * GIB, 8 * GIB, 0),)),
        ),
        "its container",
    ),
    "a file's cache is free": (
        (
            9 * GIB,
            0,
            0,
            None,
            HostReading(100 * GIB, 60 * GIB, (CgroupMemory("/c", 16 * GIB, 8 * GIB, 2 * GIB),)),
        ),
        "",
    ),
    "the tightest of several": (
        (
            9 * GIB,
            0,
            0,
            None,
            HostReading(
                100 * GIB,
                60 * GIB,
                (CgroupMemory("/c/d", 50 * GIB, 0, 0), CgroupMemory("/c", 16 * GIB, 8 * GIB, 0)),
            ),
        ),
        "left in /c",
    ),
}


@pytest.mark.parametrize(("question", "answer"), CASES.values(), ids=CASES)
def test_what_may_be_saved(question, answer):
    found = refusal(*question)
    assert answer in found
    assert bool(answer) == bool(found)


def test_the_reserve_is_a_twentieth_and_at_least_a_gibibyte():
    assert reserve_of(8 * GIB, None) == GIB
    assert reserve_of(200 * GIB, None) == 10 * GIB
    assert reserve_of(200 * GIB, 0) == 0


def machine(root, cgroup_line: str, files: dict[str, str]):
    """A /proc and a /sys/fs/cgroup with one process in it."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "77").mkdir(parents=True)
    (proc / "meminfo").write_text(
        "MemTotal: 104857600 kB\nMemFree: 1 kB\nMemAvailable: 62914560 kB\n"
    )
    (proc / "77" / "cgroup").write_text(cgroup_line)
    for name, text in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text)
    return read_host([77, 78], proc, cgroups)


def test_every_ancestor_cgroup_is_read(tmp_path):
    found = machine(
        tmp_path,
        "0::/pods/one/kernel\n",
        {
            "pods/one/kernel/memory.max": "max\n",
            "pods/one/memory.max": f"{16 << 30}\n",
            "pods/one/memory.current": f"{12 << 30}\n",
            "pods/one/memory.stat": f"anon 5\nfile {9 << 30}\nshmem {6 << 30}\n"
            f"inactive_file {2 << 30}\nactive_file {1 << 30}\n",
            "pods/memory.max": f"{64 << 30}\n",
            "pods/memory.current": f"{1 << 30}\n",
            "pods/memory.stat": "inactive_file 0\n",
        },
    )
    assert (found.total, found.available) == (100 * GIB, 60 * GIB)
    assert [(group.path[len(str(tmp_path)) :], group.room()) for group in found.groups] == [
        ("/cgroup/pods/one", 7 * GIB),
        ("/cgroup/pods", 63 * GIB),
    ]


def test_the_older_layout_of_cgroups_is_read_too(tmp_path):
    found = machine(
        tmp_path,
        "4:memory:/box\n0::/\n",
        {
            "memory/box/memory.limit_in_bytes": f"{8 << 30}",
            "memory/box/memory.usage_in_bytes": f"{1 << 30}",
            "memory/box/memory.stat": "total_inactive_file 0\n",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert [group.room() for group in found.groups] == [7 * GIB]


def test_this_machine_can_be_read():
    found = read_host([os.getpid()])
    assert 0 < found.available <= found.total


def test_an_idle_kernel_waits_for_the_budget_and_is_saved_when_it_is_free():
    """What is refused now is tried again: the budget is not a property of the kernel."""

    async def story():
        async with World(gpus=1, host_memory_mib=10 * GIB) as world:
            world.scheduler.grant("a", gpu=0, request=20 * GIB)
            a = await world.server.launch("a")
            await a.run("bufs.append(simgpu.alloc('12GiB'))")
            await a.ask("suspend")
            kernel = world.record("a")
            assert "do not fit into the host memory" in kernel.memory.no_suspend_reason
            assert kernel.memory.no_suspend_until < world.agent.node.clock() + 60_000

    play(story())
