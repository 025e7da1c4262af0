"""Two Jupyter servers of one user on one machine: the first runs scheduler and agent, the second
uses them, and takes over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.tcp_delay import delays_small_packets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

HOLD = (
    "from jupyter_gpushare import simgpu; a = simgpu.alloc('20GiB'); a.fill(7); "
    "print(simgpu.device_uuid())"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    first = Server(tmp_path / "first", gpus=1)
    second = Server(tmp_path / "second", gpus=1)
    second.state = first.state
    second._write_config()
    try:
        yield first.start(), second.start()
    finally:
        second.stop()
        first.stop()


def test_the_second_shares_with_the_first_and_takes_over(two: tuple[Server, Server]) -> None:
    first, second = two
    assert second.status()["simulated"] is True
    a, b = first.notebook("half", "a.ipynb"), second.notebook("half", "b.ipynb")
    uuid = a.ok(HOLD).strip()
    assert b.ok(HOLD).strip() == uuid, "they share the only GPU"
    assert first.allocated() == second.allocated() == 1
    pid = b.pid
    first.kill("jupyter")  # like an out-of-memory kill
    assert (
        b.ok("print(a.sum() > 0)").strip().endswith("True")
    )  # after a line about the missing agent
    eventually(
        lambda: second.status()["scheduler"]["reachable"] and second.status()["agent"]["reachable"],
        "the second took over",
        60,
    )
    assert b.pid == pid
    b.until("attached")
    c = second.notebook("half", "c.ipynb")
    # The lines before are about the wait for the notebook of the killed server to be removed.
    assert c.ok(HOLD).strip().endswith(uuid)
    c.shut_down()
    b.shut_down()
    second.nothing_is_left(within=60)


def test_frames_for_a_page_are_not_delayed(two: tuple[Server, Server]) -> None:
    """Small frames are sent at once, even before the previous one is acknowledged; otherwise some
    are 40 ms late.
    """
    for server in two:
        page = websocket.create_connection(
            f"ws://127.0.0.1:{server.port}/gpushare/api/stream?token={server.token}", timeout=60
        )
        try:
            assert json.loads(page.recv())["type"] == "state"
            assert delays_small_packets(server.processes["jupyter"].pid, server.port) == [False]
        finally:
            page.close()


def test_the_first_continues_when_the_second_stops(two: tuple[Server, Server]) -> None:
    first, second = two
    a, b = first.notebook("half", "a.ipynb"), second.notebook("half", "b.ipynb")
    a.ok(HOLD)
    b.ok(HOLD)
    second.stop()
    eventually(lambda: first.allocated() == 0.5, "shares of the second are released")
    assert a.ok("print(a.sum() > 0)").strip() == "True"
