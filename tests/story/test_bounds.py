"""Limits, quotas, invalid input, and kernels without GPU support."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.story.front_end import RestError, eventually, shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
INVALID_REQUESTS = [
    "7e9",
    "-1",
    "nan",
    "0",
    "1.5",
    "0.5 --project nope",
    "0.5 --pool nope",
    "0.5 --priority nope",
    "x",
    "--memory 20",
]


def test_exceeding_a_limit_is_an_error_in_the_cell_and_the_kernel_survives(notebook):
    nb = notebook("limited")
    result = nb.run("from jupyter_gpushare import simgpu\nsimgpu.alloc('41GiB')")
    assert (result.ename, nb.ok("print('alive')")) == ("OutOfMemoryError", "alive\n")
    nb.ok("x = simgpu.alloc('40GiB')")
    assert nb.view["memory_mib"] == {"guaranteed": 20480, "used": 40960, "borrowed": 20480}


def test_a_non_preemptible_request_over_quota_shows_numbers_and_can_be_interrupted(notebook):
    nb = notebook("build")
    cell = nb.submit("print('ran')")
    view = nb.until("pending")
    reason = eventually(
        lambda: (r := nb.view["reason"]) and r["code"] == "NonPreemptibleOverQuota" and r,
        "the reason",
    )
    assert (reason["numbers"]["requested"], reason["numbers"]["quota"]) == (2.0, 0.0), view
    nb.until_shown(cell, "quota")
    nb.interrupt()
    result = nb.collect(cell, within=2)
    assert result.reply["status"] == "error"
    assert "ran" not in [shown(one).strip() for one in result.outputs]
    assert nb.ok("print('still here')").endswith("still here\n")
    assert "NonPreemptibleOverQuota" in nb.ok("%gpu why")


def test_invalid_requests_are_one_line_each_and_change_nothing(server, notebook):
    nb = notebook("plain")
    before = nb.view
    for invalid in INVALID_REQUESTS:
        result = nb.run(f"%gpu request {invalid}")
        assert result.reply["status"] == "error", invalid
        assert len(result.text.strip().splitlines()) == 1, result.text
    assert {**nb.view, "events": []} == {**before, "events": []}
    assert server.allocated() == 0


def test_invalid_requests_over_rest_name_their_field(server, notebook):
    path = f"gpushare/api/kernels/{notebook('plain').kernel_id}"
    for body, field in [
        ({"gpu": -1}, "gpu"),
        ({"gpu": 0.5, "project": "nope"}, "project"),
        ({"gpu": 0.5, "node_pools": ["nope"]}, "node_pools"),
        ({"gpu": 0.5, "colour": 1}, "colour"),
        ({"gpu_memory": "x"}, "gpu_memory"),
        ({}, "gpu"),
        ({"gpu": [1]}, "gpu"),
        ({"gpu": 0.5, "priority_class": "nope"}, "priority_class"),
    ]:
        for where in (path, "gpushare/api/what-if"):
            with pytest.raises(RestError) as refused:
                server.rest("POST", where, body)
            assert refused.value.status == 400, refused.value.body
            assert json.loads(refused.value.body)["error"]["field"] == field, refused.value.body
    for path in ("gpushare/api/kernels/nope", "gpushare/api/nothing"):
        with pytest.raises(RestError) as refused:
            server.rest("GET", path)
        assert (refused.value.status, json.loads(refused.value.body)["error"]["code"]) == (
            404,
            "not-found",
        )
    with pytest.raises(RestError) as refused:
        server.rest("GET", "gpushare/api/queues?format=csv&columns=colour")
    assert (refused.value.status, json.loads(refused.value.body)["error"]["field"]) == (
        400,
        "columns",
    )


@pytest.mark.parametrize(("spec", "field"), [("bad", "gpu"), ("nowhere", "project")])
def test_a_bad_kernelspec_is_refused_at_its_start_with_the_field(server, spec, field):
    with pytest.raises(RestError) as refused:
        server.rest("POST", "api/kernels", {"name": spec})
    assert refused.value.status < 500
    assert f"kernelspec config: {field}" in refused.value.body
    assert server.rest("GET", "api/kernels") == []


def test_a_kernel_of_another_language_starts_as_usual(server, notebook):
    nb = notebook("echo")
    assert nb.view["state"] == "detached"
    assert nb.run("hello").ok


def test_secrets_of_the_server_are_not_passed_to_the_kernel(notebook):
    text = notebook("plain").ok(
        "import os; print('JUPYTERHUB_API_TOKEN' in os.environ, "
        "os.environ.get('JUPYTERHUB_API_TOKEN_FOR_TEST'))"
    )
    assert text == "False keep\n"


def test_a_share_is_requested_in_the_notebook_and_released(server, notebook):
    nb = notebook("plain")
    assert "no GPU" in nb.ok("%gpu")
    text = nb.ok("%gpu request 0.5 --project language")
    assert "simulated" in text
    assert "running" in text or "idle" in text
    nb.ok(
        "from jupyter_gpushare import gpu, simgpu\n"
        "b = simgpu.alloc('10GiB')\n"
        "assert gpu.status()['state'] == 'attached', gpu.status()"
    )
    assert (nb.view["project"], server.allocated()) == ("language", 0.5)
    assert "Would start now" in nb.ok("%gpu what-if 1.0")
    # two GPUs are free only without its own half, which a request replaces
    assert "Would start now" in nb.ok("%gpu what-if 2")
    ask = {"gpu": 2, "project": "language"}
    assert not server.rest("POST", "gpushare/api/what-if", ask)["starts_now"]
    assert server.rest("POST", f"gpushare/api/what-if?kernel_id={nb.kernel_id}", ask)["starts_now"]
    for magic, words in {
        "%gpu queue": "vision",
        "%gpu nodes": "simulated",
        "%gpu history": "granted",
        "%gpu why": "Not waiting",
    }.items():
        assert words in nb.ok(magic), magic
    nb.ok("%gpu pin")
    assert nb.view["pinned"]
    nb.ok("%gpu unpin")
    assert "suspended" in nb.ok("%gpu suspend")
    assert nb.until("suspended")["saved_mib"] == 10 << 10
    nb.ok("assert b.nbytes == 10 << 30\nassert gpu.status()['state'] == 'attached'")
    nb.ok("%%gpu 1.0\nassert gpu.status()['request']['gpu'] == 1.0, gpu.status()")
    assert nb.view["request"]["gpu"] == 0.5
    nb.ok("%gpu release")
    assert nb.until("detached")["workload"] is None
    result = nb.run("simgpu.alloc('1GiB')")
    assert result.ename == "NoGpuError"


def test_twenty_concurrent_requests_of_a_tenth_never_overcommit(server, notebook):
    with ThreadPoolExecutor(4) as pool:
        notebooks = list(pool.map(lambda i: notebook("tenth", f"t{i}.ipynb"), range(20)))
    for nb in notebooks:
        nb.until("attached", within=60)
        for device in server.devices():
            assert device["memory_mib"]["guaranteed"] <= device["memory_mib"]["total"]
    assert abs(server.allocated() - 2.0) < 1e-6
    cells = [
        nb.submit("from jupyter_gpushare import simgpu; b = simgpu.alloc('8GiB')")
        for nb in notebooks
    ]
    assert all(nb.collect(cell).ok for nb, cell in zip(notebooks, cells, strict=True))
