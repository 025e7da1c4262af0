"""The expected wait of pending requests is the same everywhere; notebooks can be renamed."""

from __future__ import annotations

import json

import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.test_many_pages import gpushare

pytestmark = pytest.mark.slow
UNKNOWN = 'Expected wait unknown: too few requests have waited in pool "default" recently.'
SOON = "Expected wait: under 1 min"
WAITED_S = 2.5


def add_wait(server: Server, holder, waiter) -> None:
    """Add a wait to the history: longer than the two cycles of a request that starts at once."""
    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    server.rest("POST", f"gpushare/api/kernels/{waiter.kernel_id}", {"gpu": 1})
    holder.ok(f"import time; time.sleep({WAITED_S})")
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    waiter.until("attached")
    server.rest("DELETE", f"gpushare/api/kernels/{waiter.kernel_id}")


def test_the_expected_wait_is_shown_in_cell_page_and_shell(start_server):
    server = start_server(remote=True, gpus=1)
    holder, waiter = (
        server.notebook("plain", "holder.ipynb"),
        server.notebook("plain", "waiter.ipynb"),
    )
    ask = f"gpushare/api/kernels/{waiter.kernel_id}"
    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    server.rest("POST", ask, {"gpu": 1})
    eventually(lambda: waiter.view["expected_wait"], "its expected wait")
    assert waiter.view["expected_wait"]["message"] == UNKNOWN
    assert UNKNOWN in waiter.ok("%gpu why")
    waits = waiter.submit("1 + 1")
    waiter.until_shown(waits, UNKNOWN)
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    assert waiter.collect(waits).ok
    server.rest("DELETE", ask)
    for _ in range(5):
        add_wait(server, holder, waiter)

    server.rest("POST", f"gpushare/api/kernels/{holder.kernel_id}", {"gpu": 1})
    holder.until("attached")
    would = server.rest("POST", "gpushare/api/what-if", {"gpu": 1})["expected_wait"]
    assert (would["basis"], would["based_on"]) == ("history", 5)
    assert would["message"].startswith(SOON)
    assert SOON in waiter.ok("%gpu what-if 1.0")
    assert SOON in gpushare(server, "what-if", "--gpu", "1", "--project", "vision")
    server.rest("POST", ask, {"gpu": 1})
    eventually(lambda: waiter.view["expected_wait"] is not None, "its expected wait")
    server.rest("DELETE", f"gpushare/api/kernels/{holder.kernel_id}")
    waiter.until("attached")
    assert waiter.view["expected_wait"] is None


def test_a_renamed_notebook_has_its_new_name_in_the_scheduler(start_server):
    server = start_server(remote=True, gpus=1)
    first = server.notebook("half", "first.ipynb")
    first.until("attached")
    (session,) = server.rest("GET", "api/sessions")
    server.rest(
        "PATCH", f"api/sessions/{session['id']}", {"path": "renamed.ipynb", "name": "renamed.ipynb"}
    )
    # polled
    rows = lambda: json.loads(gpushare(server, "status", "--json"))["workloads"]  # noqa: E731
    eventually(
        lambda: [row["name"] for row in rows()] == ["renamed.ipynb"], "its workload is renamed"
    )
    eventually(
        lambda: rows()[0]["pods"][0]["lease"]["name"] == "renamed.ipynb", "its lease is renamed"
    )
    assert first.ok("1 + 1") == "2"
