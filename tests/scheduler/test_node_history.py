"""What agents measured, as series: the last hour, in bounded memory, continued by time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.state.node_history import (
    CAPACITY,
    EVERY_MS,
    MOST_GPUS,
    MOST_POINTS,
    MeasurementHistory,
)
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import open_server

START = 1_000_000_000_000


def report(name: str = "n0", gpus: int = 1, **device: object) -> m.NodeReport:
    return m.NodeReport(
        name=name,
        simulated=True,
        devices=[
            m.DeviceReport(
                index=index, uuid=f"{name}-{index}", model="A100", total_mib=81920, **device
            )
            for index in range(gpus)
        ],
        host_cpu=0.25,
        host_memory_mib=4096,
        host_used_mib=1024,
        saved_mib=100,
        saved_left_mib=900,
    )


def read(history: MeasurementHistory, now: int, since: int | None = None) -> m.NodeHistory:
    return history.read(now, minutes=60, since=since, nodes=None)


def test_what_is_not_measured_has_no_series():
    history = MeasurementHistory()
    history.sample(START, {"n0": report(utilization=0.5, power_w=288)}, {"n0"})
    found = {(one.gpu, one.metric): one for one in read(history, START).series}
    assert {metric for gpu, metric in found if gpu} == {"utilization", "memory", "power"}
    assert found["n0-0", "utilization"].values == [0.5]
    assert (found["", "saved"].values, found["", "saved"].total) == ([100], 1000)
    assert (found["", "host_memory"].values, found["", "host_memory"].total) == ([1024], 4096)


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(0, 4 * EVERY_MS), min_size=1, max_size=60),
    before=st.integers(0, CAPACITY + 50),
    split=st.integers(0, 60),
)
def test_a_reader_who_continues_has_what_one_who_reads_all_has(steps, before, split):
    history = MeasurementHistory()
    now, kept = START, None
    first: list[tuple[str, object]] = []
    taken = []
    for number, step in enumerate([EVERY_MS] * before + steps):
        now += step
        if not taken or now - taken[-1] >= EVERY_MS:
            taken.append(now)
        history.sample(now, {"n0": report(used_mib=number)}, {"n0"})
        if number == before + split:
            kept = pairs(read(history, now))
            first = kept
            since = now
    expected = [m.stamp(at) for at in taken if at > now - 3_600_000][-CAPACITY:]
    times = [at for at, _ in pairs(read(history, now))]
    assert times[-1] == expected[-1]
    assert set(times) <= set(expected)
    assert len(times) >= min(len(expected), MOST_POINTS) // 2
    if kept is not None:
        later = pairs(read(history, now, since))
        assert {at for at, _ in first}.isdisjoint(at for at, _ in later)
        assert later == [pair for pair in pairs(read(history, now)) if pair in later] or (
            len(expected) > MOST_POINTS
        )


def pairs(found: m.NodeHistory) -> list[tuple[str, object]]:
    (memory,) = (one for one in found.series if one.metric == "memory")
    assert len(memory.values) == len(found.times)
    return list(zip(found.times, memory.values, strict=True))


def test_a_silent_node_has_a_gap_and_one_that_is_gone_no_series():
    history = MeasurementHistory()
    history.sample(START, {"n0": report(used_mib=5)}, {"n0"})
    history.sample(START + EVERY_MS, {"n0": report(used_mib=5)}, set())
    history.sample(START + 2 * EVERY_MS, {"n0": report(used_mib=6)}, {"n0"})
    assert [value for _, value in pairs(read(history, START + 2 * EVERY_MS))] == [5, None, 6]
    history.sample(START + 3 * EVERY_MS, {}, set())
    assert read(history, START + 3 * EVERY_MS).series == []


def test_an_answer_has_a_bounded_number_of_gpus_and_says_how_many_it_lacks():
    history = MeasurementHistory()
    reports = {name: report(name, 8) for name in (f"n{i}" for i in range(10))}
    history.sample(START, reports, set(reports))
    found = read(history, START)
    assert found.left_out == 80 - MOST_GPUS
    assert len({one.gpu for one in found.series} - {""}) == MOST_GPUS
    chosen = history.read(START, minutes=60, since=None, nodes=["n9"])
    assert {one.node for one in chosen.series} == {"n9"}
    assert chosen.left_out == 0


def test_over_http(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                client = running.of("alice")
                while not (found := await client.node_history({})).series:
                    await asyncio.sleep(0.05)
                assert found.times
                assert not (await client.node_history({"node": "other"})).series
                again = await client.node_history({"since": found.times[-1]})
                assert not set(again.times) & set(found.times)

    asyncio.run(story())
