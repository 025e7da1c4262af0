"""A notebook changes its share: it keeps the old one until the new one is granted."""

from __future__ import annotations

import json

import pytest

from tests.story.front_end import RestError, eventually

pytestmark = pytest.mark.slow
HOLD = "from jupyter_gpushare import gpu, simgpu; kept = simgpu.alloc('1GiB'); kept.fill(7)"


def test_the_old_share_stays_until_the_new_one_is_granted(server, notebook):
    other, mine = notebook("whole"), notebook("half")
    other.until("attached")
    mine.until("attached")
    mine.ok(HOLD)
    url = f"gpushare/api/kernels/{mine.kernel_id}"
    changed = server.rest("POST", url, {"gpu": 2})
    assert (changed["state"], changed["request"]["gpu"]) == ("attached", 0.5)
    assert changed["pending_change"]["request"]["gpu"] == 2.0
    eventually(lambda: mine.view["pending_change"]["reason"], "the pending change has a reason")
    assert "7" in mine.ok("print(kept.sum() // kept.nbytes)"), "cells run with the old share"
    with pytest.raises(RestError) as refused:
        server.rest("POST", url, {"gpu": 0.5, "project": "nope"})
    assert refused.value.status in (400, 403, 404)
    assert (mine.view["state"], mine.view["request"]["gpu"]) == ("attached", 0.5)
    server.rest("DELETE", f"gpushare/api/kernels/{other.kernel_id}")
    eventually(lambda: mine.view["request"]["gpu"] == 2.0, "the new share is granted")
    mine.until("attached")
    assert mine.view["pending_change"] is None
    assert "7" in mine.ok("print(kept.sum() // kept.nbytes)"), "its memory is kept"


def test_a_change_that_fits_at_once_keeps_the_memory(server, notebook):
    mine = notebook("half")
    mine.until("attached")
    mine.ok(HOLD)
    server.rest("POST", f"gpushare/api/kernels/{mine.kernel_id}", {"gpu": 1})
    eventually(lambda: mine.view["request"]["gpu"] == 1.0, "the new share is granted")
    mine.until("attached")
    assert "7" in mine.ok("print(kept.sum() // kept.nbytes)")


def test_a_cell_that_requests_another_share_waits_for_it(server, notebook):
    other, mine = notebook("whole"), notebook("half")
    other.until("attached")
    mine.until("attached")
    mine.ok(HOLD)
    cell = mine.submit("%gpu request 2\nprint(gpu.status()['request']['gpu'])")
    mine.until_shown(cell, "2 GPUs requested; 0.5 GPU is kept until then.")
    assert mine.view["request"]["gpu"] == 0.5
    other.ok("%gpu release")
    result = mine.collect(cell, 60)
    assert result.ok, result.text
    assert "Granted: 2 GPUs." in result.text
    assert result.text.rstrip().endswith("2.0")
    assert "7" in mine.ok("print(kept.sum() // kept.nbytes)"), "its memory is kept"


def test_a_cell_with_another_share_runs_with_it_and_restores_the_old_one(server, notebook):
    mine = notebook("half")
    mine.until("attached")
    mine.ok("from jupyter_gpushare import gpu")
    text = mine.ok("%%gpu 2\nprint(gpu.status()['request']['gpu'], gpu.status()['state'])")
    assert text.rstrip().endswith("2.0 attached")
    eventually(lambda: mine.view["request"]["gpu"] == 0.5, "the old share is back")


def test_a_share_that_can_never_be_granted_is_refused_and_changes_nothing(server, notebook):
    mine = notebook("half")
    mine.until("attached")
    url = f"gpushare/api/kernels/{mine.kernel_id}"
    with pytest.raises(RestError) as refused:
        server.rest("POST", url, {"gpu": 3})
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["code"], error["field"]) == (409, "NeverFits", "gpu")
    assert "3 GPUs" in error["message"]
    assert "2 GPUs" in error["message"] or "has 2" in error["message"]
    cell = mine.run("%gpu request 3")
    assert not cell.ok
    assert error["message"] in cell.text
    view = mine.view
    assert (view["state"], view["request"]["gpu"]) == ("attached", 0.5)
    assert view["pending_change"] is None
    assert server.rest("POST", "gpushare/api/what-if", {"gpu": 3})["refused"]
    queued = server.rest("POST", url, {"gpu": 3, "queue_anyway": True})
    assert (queued["request"]["gpu"], queued["pending_change"]["request"]["gpu"]) == (0.5, 3.0)
    again = server.rest("POST", url, {"gpu": 0.5})
    assert again["pending_change"] is None, "the current share again cancels the change"
