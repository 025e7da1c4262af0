"""Two Jupyter servers of one person on one machine: the first runs scheduler and agent, the second
uses them, and takes over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket

from tests.story.jupyter_process import Server, eventually
from tests.tcp_delay import delays_small_packets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

HOLD = "from jupyter_gpushare import simgpu; a = simgpu.alloc('20GiB'); a.fill(7); print(simgpu.device_uuid())"


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
    first.kill("jupyter")  # as the machine would
    assert b.ok("print(a.sum() > 0)").strip().endswith("True")  # before it: that the agent is away
    eventually(
        lambda: second.status()["scheduler"]["reachable"] and second.status()["agent"]["reachable"],
        "the second took over",
        60,
    )
    assert b.pid == pid
    b.until("attached")
    c = second.notebook("half", "c.ipynb")
    assert (
        c.ok(HOLD).strip().endswith(uuid)
    )  # before it: that it waits until the notebook of the server that is gone is found to be gone
    c.shut_down()
    b.shut_down()
    second.nothing_is_left(within=60)


def test_what_a_page_is_told_is_not_kept_back(two: tuple[Server, Server]) -> None:
    """Small frames leave at once, though the page has not answered the one before: else some come
    40 ms late.
    """
    for server in two:
        page = websocket.create_connection(
            f"ws://127.0.0.1:{server.port}/gpushare/api/stream?token={server.token}", timeout=30
        )
        try:
            assert json.loads(page.recv())["type"] == "state"
            assert delays_small_packets(server.processes["jupyter"].pid, server.port) == [False]
        finally:
            page.close()


def test_the_second_ends_and_the_first_goes_on(two: tuple[Server, Server]) -> None:
    first, second = two
    a, b = first.notebook("half", "a.ipynb"), second.notebook("half", "b.ipynb")
    a.ok(HOLD)
    b.ok(HOLD)
    second.stop()
    eventually(lambda: first.allocated() == 0.5, "what the second held is given back")
    assert a.ok("print(a.sum() > 0)").strip() == "True"
