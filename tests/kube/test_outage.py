"""The API server is away: kernels start, and shares are granted, suspended and released as before.

`GPUSHARE_OUTAGE_S=600 pytest tests/kube/test_outage.py` keeps it away for longer.
"""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.kube.control_plane import until
from tests.kube.lab import Lab
from tests.story.front_end import Notebook, eventually
from tests.story.hub_process import Person

OUTAGE_S = float(os.environ.get("GPUSHARE_OUTAGE_S", "0"))
pytestmark = [
    pytest.mark.timeout(600 + 2 * OUTAGE_S),
    # a connection to the API server that is killed while it opens
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def attached(person: Person, path: str, gpu: float) -> Notebook:
    notebook = person.notebook("python3", path)
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}", {"gpu": gpu})
    notebook.until("attached", within=120)
    return notebook


def act(person: Person, notebook: Notebook, action: str) -> None:
    person.rest("POST", f"gpushare/api/kernels/{notebook.kernel_id}/actions/{action}", {})


def one_round(lab: Lab, person: Person, number: int) -> None:
    """A kernel starts, has half a GPU, is suspended and resumed with its memory, and releases."""
    notebook = attached(person, f"outage-{number}.ipynb", 0.5)
    notebook.ok("from jupyter_gpushare import simgpu; b = simgpu.alloc('10GiB'); b.fill(3)")
    act(person, notebook, "suspend")
    eventually(lambda: notebook.view["state"] == "suspended", "it is suspended", 120)
    act(person, notebook, "resume")
    notebook.until("attached", within=120)
    assert notebook.ok("print(b.sum() == 3 * b.nbytes)").strip() == "True"
    person.rest("DELETE", f"gpushare/api/kernels/{notebook.kernel_id}")
    eventually(lambda: not lab.leases(), "the lease is gone", 120)
    notebook.shut_down()


def test_everything_goes_on_without_the_api_server(lab: Lab):
    alice, processes = lab.user("alice"), lab.cluster.processes
    one_round(lab, alice, 0)  # the scheduler's address is known from here on
    processes.kill("kube-apiserver")
    try:
        begun, rounds = time.monotonic(), 0
        while rounds == 0 or time.monotonic() - begun < OUTAGE_S:
            rounds += 1
            one_round(lab, alice, rounds)
        status = lab.scheduler("GET", "status")["kubernetes"]
        assert status["unreachable_since"], status
        away = time.monotonic() - begun
    finally:
        processes.start_again("kube-apiserver")
    what = "the API server is read again"
    until(lambda: not lab.scheduler("GET", "status")["kubernetes"]["unreachable_since"], what, 120)
    until(lab.is_ready, "the node is ready", 120)
    sys.stdout.write(f"{rounds} rounds in {away:.0f} s without the API server\n")
