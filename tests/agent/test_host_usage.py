"""CPU time and memory of a machine in use; and what a simulated GPU's sensors show."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from node_agent.devices.simulated.simulated_sensors import FULL_C, IDLE_C, SimulatedSensors
from node_agent.system.host_memory import HostReading, refusal, room_for_images
from node_agent.system.host_usage import EVERY_MS, HostUsageReader
from tests.agent.simulated_node import GIB


def write_proc(folder: Path, *, idle: int, busy: int) -> None:
    """/proc of a machine with 8 GiB, of which 6 GiB are available."""
    (folder / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 5 0\ncpu0 1 2 3 4\n")
    (folder / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n")


def test_cpu_time_is_that_between_two_readings(tmp_path: Path) -> None:
    now = 0
    reader = HostUsageReader(lambda: now, tmp_path)
    write_proc(tmp_path, idle=100, busy=50)
    first = reader.read()
    assert (first.cpu, first.used_mib) == (None, 2 * GIB)
    write_proc(tmp_path, idle=175, busy=75)
    assert reader.read() is first, "read again too soon"
    now += EVERY_MS
    assert reader.read().cpu == 0.25


def test_a_machine_without_proc_has_nothing_to_say(tmp_path: Path) -> None:
    found = HostUsageReader(lambda: 0, tmp_path).read()
    assert (found.cpu, found.used_mib) == (None, None)


AMOUNTS = st.integers(0, 200 * GIB)


@given(
    saved=AMOUNTS,
    in_flight=AMOUNTS,
    budget=st.none() | AMOUNTS,
    host=st.none() | st.builds(HostReading, total=AMOUNTS, available=AMOUNTS),
    reserve=st.none() | AMOUNTS,
)
def test_what_is_left_can_be_saved_and_no_more(saved, in_flight, budget, host, reserve) -> None:
    left = room_for_images(saved, in_flight, budget, host, reserve)
    bounds = (saved, in_flight, budget, host, reserve)
    if left is None:
        assert refusal(10_000 * GIB, *bounds) == ""
    else:
        assert left == 0 or refusal(left, *bounds) == ""
        assert refusal(left + 1, *bounds) != ""


def test_a_simulated_gpu_warms_up_slowly_and_cools_down_again() -> None:
    sensors = SimulatedSensors("A100")
    assert sensors.read(0, 0.0, 0) == (round(IDLE_C), 60)
    degrees, watts = sensors.read(0, 1.0, 10)
    assert IDLE_C < degrees < FULL_C
    assert watts == 400
    assert sensors.read(0, 1.0, 600) == (round(FULL_C), 400)
    assert sensors.read(0, 0.0, 1200) == (round(IDLE_C), 60)
    assert sensors.read(1, 0.0, 1200)[0] == round(IDLE_C), "every GPU has its own"
