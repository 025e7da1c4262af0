"""Who waits is told for how much longer, everywhere in the same words; and everybody sees what a
notebook is called today.
"""

from __future__ import annotations

import json

import pytest

from tests.story.jupyter_process import Server, eventually
from tests.story.test_many_pages import say

pytestmark = pytest.mark.slow
UNKNOWN = 'Expected wait unknown: too few requests have waited in pool "default" recently.'
SOON = "Expected wait: under 1 min"
WAITED_S = 2.5


def waited(server: Server, holder, waiter) -> None:
    """One wait of the past: longer than the two cycles in which what starts at once has started."""
    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    server.rest("POST", f"gpushare/api/kernels/{waiter.kernel_id}", {"gpu": 1})
    holder.ok(f"import time; time.sleep({WAITED_S})")
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    waiter.until("attached")
    server.rest("DELETE", f"gpushare/api/kernels/{waiter.kernel_id}")


def test_the_expected_wait_is_said_in_the_cell_the_page_and_the_shell(world):
    server = world(remote=True, gpus=1)
    holder, waiter = (
        server.notebook("plain", "holder.ipynb"),
        server.notebook("plain", "waiter.ipynb"),
    )
    ask = f"gpushare/api/kernels/{waiter.kernel_id}"
    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    server.rest("POST", ask, {"gpu": 1})
    eventually(lambda: waiter.view["expected_wait"], "it is told how long")
    assert waiter.view["expected_wait"]["message"] == UNKNOWN
    assert UNKNOWN in waiter.ok("%gpu why")
    waits = waiter.submit("1 + 1")
    waiter.until_shown(waits, UNKNOWN)
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    assert waiter.collect(waits).ok
    server.rest("DELETE", ask)
    for _ in range(5):
        waited(server, holder, waiter)

    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    would = server.rest("POST", "gpushare/api/what-if", {"gpu": 1})["expected_wait"]
    assert (would["basis"], would["based_on"]) == ("history", 5)
    assert would["message"].startswith(SOON)
    assert SOON in waiter.ok("%gpu what-if 1.0")
    assert SOON in say(server, "what-if", "--gpu", "1", "--project", "vision")
    server.rest("POST", ask, {"gpu": 1})
    eventually(lambda: waiter.view["expected_wait"] is not None, "it is told how long")
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    waiter.until("attached")
    assert waiter.view["expected_wait"] is None


def test_a_renamed_notebook_is_called_so_by_the_scheduler(world):
    server = world(remote=True, gpus=1)
    first = server.notebook("half", "first.ipynb")
    first.until("attached")
    (session,) = server.rest("GET", "api/sessions")
    server.rest(
        "PATCH", f"api/sessions/{session['id']}", {"path": "renamed.ipynb", "name": "renamed.ipynb"}
    )
    rows = lambda: json.loads(say(server, "status", "--json"))["workloads"]  # noqa: E731 - asked again and again
    eventually(
        lambda: [row["name"] for row in rows()] == ["renamed.ipynb"], "the scheduler calls it so"
    )
    eventually(lambda: rows()[0]["pods"][0]["lease"]["name"] == "renamed.ipynb", "and its lease")
    assert first.ok("1 + 1") == "2"
