"""Pressure: read as the kernel writes it, judged by the policy's bounds, and not flickering; told
to the scheduler by a real agent.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.messages import NodeChangedReport, Pressure
from node_agent.system.pressure import (
    CALM_MS,
    PressureReading,
    pressure_conditions,
    read_pressure,
    recent_conditions,
)
from tests.agent.simulated_node import World, play

BOUNDS = Pressure(disk_mib=1024, memory_mib=256, memory_stall_percent=50, pids=200)


@pytest.mark.parametrize(
    ("vitals", "reasons"),
    [
        (PressureReading(), set()),
        (PressureReading(disk_mib=1024, memory_mib=256, memory_stall=50.0, pids=200), set()),
        (PressureReading(disk_mib=1023), {"disk pressure"}),
        (PressureReading(memory_mib=255), {"memory pressure"}),
        (PressureReading(memory_mib=9999, memory_stall=50.1), {"memory pressure"}),
        (PressureReading(pids=199), {"PID pressure"}),
        (
            PressureReading(disk_mib=0, memory_mib=0, pids=-3),
            {"disk pressure", "memory pressure", "PID pressure"},
        ),
    ],
)
def test_bounds(vitals: PressureReading, reasons: set[str]) -> None:
    assert pressure_conditions(vitals, BOUNDS) == reasons


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.frozensets(st.sampled_from(list(NodeCondition)[:3])))
    )
)
def test_a_reason_stays_until_it_has_been_gone_for_long(
    course: list[tuple[int, frozenset[NodeCondition]]],
) -> None:
    now, known, last = 0, {}, {}
    for passed, reasons in course:
        now += passed
        last |= dict.fromkeys(reasons, now)
        known = recent_conditions(known, reasons, now)
        assert set(known) == {
            reason for reason, when in last.items() if when == now or now - when < CALM_MS
        }


def test_what_the_kernel_says_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    written = {
        "proc/meminfo": "MemTotal: 1 kB\nMemAvailable:   524288 kB\n",
        "proc/loadavg": "0.1 0.2 0.3 4/1000 77\n",
        "proc/pressure/memory": "some avg10=9.00 avg60=0 avg300=0 total=0\n"
        "full avg10=3.50 avg60=0.00 avg300=0.00 total=0\n",
        "proc/sys/kernel/pid_max": "32768\n",
        "proc/sys/kernel/threads-max": "1500\n",
        "cgroup/pids.max": "max\n",
        "cgroup/pids.current": "12\n",
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    seen = read_pressure(tmp_path, tmp_path / "proc", tmp_path / "cgroup")
    assert (seen.memory_mib, seen.memory_stall, seen.pids) == (512, 3.5, 500)
    assert seen.disk_mib is not None
    (tmp_path / "cgroup/pids.max").write_text("100\n")
    assert read_pressure(tmp_path, tmp_path / "proc", tmp_path / "cgroup").pids == 88
    nothing = read_pressure(tmp_path / "none", tmp_path / "none", tmp_path / "none")
    assert nothing == PressureReading()
    assert pressure_conditions(nothing, BOUNDS) == set(), "what is not known is not claimed"


def test_an_agent_tells_and_what_runs_stays() -> None:
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=40 * 1024)
            await a.run("bufs.append(simgpu.alloc('1GiB'))")
            # A real machine without real trouble: the bound is put where any disk is below it.
            world.scheduler.use(pressure=Pressure(disk_mib=1 << 40))

            def told() -> list[str]:
                return next(
                    (
                        b.node.reasons
                        for b in reversed(world.scheduler.heard)
                        if isinstance(b, NodeChangedReport)
                    ),
                    [],
                )

            await world.until(lambda: "disk pressure" in told(), "told")
            assert (await a.run("result = bufs[0].nbytes"))["result"] == 1 << 30

    play(story())
