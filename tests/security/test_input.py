"""Input that is no text, forges lines, or is executed elsewhere: invalid UTF-8, control characters,
ids with a line end, and cells that a spreadsheet would take for formulas.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
import subprocess
import sys

import pytest

from jupyter_gpushare.routes import ROUTES
from tests.scheduler.permission_town import address
from tests.security.machine import ROOT, Machine, as_root

pytestmark = [as_root, pytest.mark.slow, pytest.mark.timeout(180)]

BODIES = {
    "a lone byte": b"\xff",
    "an invalid text": b'{"id": "\xff\xfe", "pods": [{"gpu": 1}]}',
    "an invalid key": b'{"\xc3\x28": 1}',
    "a surrogate": b'{"id": "\xed\xa0\x80", "pods": []}',
    "an escaped surrogate": b'{"id": "\\ud800", "pods": [{"gpu": 1}]}',
    "UTF-16": '{"id": "a", "pods": []}'.encode("utf-16"),
    "nothing": b"",
    "deep": b"[" * 100_000,
    "deep in a field": b'{"id": ' + b"[" * 50_000,
    "a large number": b'{"id": "a", "pods": [{"gpu": 1e999}]}',
    "not a number": b'{"id": "a", "pods": [{"gpu": NaN}]}',
    "a long number": b'{"id": "a", "pods": [{"gpu": ' + b"9" * 10_000 + b"}]}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_broken_body_is_a_bad_request_on_every_route(machine: Machine, body: bytes):
    token = machine.token("lisa")
    for route in ROUTES:
        if route.verb not in ("POST", "PATCH", "DELETE"):
            continue
        for answer in (
            machine.call("lisa", route.verb, address(route), body),
            machine.call_http(token, route.verb, address(route), body),
        ):
            assert 400 <= answer.status < 500 or route.body is None, (route.name, answer)
            assert answer.status < 500, (route.name, answer)
            assert "error" in answer.json() or answer.status == 200
    assert "Traceback" not in machine.log("scheduler").read_text()


@pytest.mark.parametrize("query", ["%ff", "%00", "%0a", "a%ed%a0%80"])
def test_a_broken_query_or_path_is_a_bad_request(machine: Machine, query: str):
    for route in ROUTES:
        if route.verb == "WS":
            continue
        path = route.path.replace("{id}", query).replace("{name}", query)
        for name in route.query or ("x",):
            answer = machine.call("alice", route.verb, f"{path}?{name}={query}")
            assert answer.status < 500, (route.name, name, answer)
    assert "Traceback" not in machine.log("scheduler").read_text()


CONTROLS = ("\n", "\r", "\x1b[2J", "\x00", "\x85", "\u2028", "\u202e")


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_ids_with_control_characters_are_refused(machine: Machine, control: str):
    for id_ in (f"ok-1{control}", f"{control}ok", f"o{control}k"):
        for field in ("id", "kernel_id"):
            answer = machine.submit("alice", **{field: id_})
            assert answer.status == 400, (field, answer)
            assert answer.error()["field"] == field
            assert answer.error()["message"].isprintable()
    pod = {"gpu": 0.1}
    bad_pods = [
        pod | {"name": f"p{control}"},
        pod | {"labels": {"a": f"b{control}"}},
        pod | {"labels": {f"a{control}": "b"}},
        pod | {"node_selector": {"a": f"b{control}"}},
        pod | {"nodes": [f"n0{control}"]},
    ]
    for bad in bad_pods:
        assert machine.submit("alice", pods=[bad]).status == 400, bad
    line = machine.server_of("alice")
    line.hello()
    assert line.register(f"k{control}")["error"]["field"] == "kernel_id"
    assert line.register(f"../{control}")["error"]["field"] == "kernel_id"
    line.close()


@pytest.mark.parametrize("kernel_id", ["../agent.sock", "a/b", ".", "..", "", "-x", "k" * 129])
def test_a_kernel_id_is_no_path(machine: Machine, kernel_id: str):
    line = machine.server_of("alice")
    line.hello()
    assert line.register(kernel_id)["error"]["field"] == "kernel_id"
    line.close()


FORGED = "x\n2026-01-01 00:00:00,000 INFO gpushare.scheduler: forged line\x1b[2J\x1b]0;title\x07"


def test_names_cannot_forge_log_lines_or_control_a_terminal(machine: Machine):
    """Names of notebooks may be anything that a file may be called."""
    answer = machine.submit("alice", name=FORGED, pods=[{"gpu": 0.1}])
    if answer.status == 200:
        machine.call("alice", "PATCH", f"/api/v1/workloads/{answer.json()['id']}", {"name": FORGED})
        printed = command_line(machine, "list")
        assert printed.isprintable() or not any(ord(char) < 32 for char in printed if char != "\n")
        assert not [line for line in printed.splitlines() if line.startswith("2026-01-01")]
        machine.end(answer.json()["id"])
    line = machine.server_of("alice")
    line.hello()
    line.register(f"k-{secrets.token_hex(4)}", name=FORGED, language=FORGED, user=FORGED)
    line.send(type="kernel_act", n=1, kernel_id=FORGED, action="suspend")
    line.until("act_done", n=1)
    line.send(type=FORGED)
    line.send_raw(FORGED.encode() + b"\n\xff\xfe\n")
    line.register(f"k-{secrets.token_hex(4)}")
    line.close()
    for log in ("agent", "scheduler"):
        text = machine.log(log).read_text(errors="surrogateescape")
        assert not [char for char in text if ord(char) < 32 and char != "\n"], log
        assert not [line for line in text.splitlines() if line.startswith("2026-01-01")], log


def command_line(machine: Machine, *arguments: str) -> str:
    argv = [sys.executable, "-m", "jupyter_gpushare.cli", *arguments]
    done = subprocess.run(
        [*argv, "--scheduler", f"unix://{machine.socket}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    return done.stdout


FORMULAS = ("=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "=HYPERLINK(A1)", '=cmd|"/c calc"!A1')


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(machine: Machine, name: str):
    pods = [{"gpu": 2}, {"gpu": 2}]
    answer = machine.submit("bob", name=name, pods=pods, queue_anyway=True)
    assert answer.status == 200, answer
    try:
        for table in ("waiting", "evictions", "usage", "queues", "projects", "nodes"):
            text = machine.call("bob", "GET", f"/api/v1/{table}?format=csv").body.decode()
            for row in csv.reader(io.StringIO(text)):
                for cell in row:
                    assert not cell.startswith(("=", "@", "\t", "\r")), (table, cell)
                    assert not cell.startswith(("+", "-")) or is_number(cell), (table, cell)
        waiting = machine.call("bob", "GET", "/api/v1/waiting?format=csv&columns=name").body
        assert f"'{name}" in [row[0] for row in csv.reader(io.StringIO(waiting.decode()))]
    finally:
        machine.end(answer.json()["id"])


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_an_id_of_another_user_says_nothing(machine: Machine):
    """The same answer for a waiting, a running and an ended workload."""
    ids = []
    for gpu in (0.1, 2):
        ids.append(machine.submit("alice", pods=[{"gpu": gpu}], name="secret").json()["id"])
    ids.append(machine.submit("alice").json()["id"])
    machine.end(ids[-1])
    answers = set()
    for id_ in ids:
        for pods in ([{"gpu": 0.1}], [{"gpu": 2}]):
            answer = machine.submit("bob", id=id_, pods=pods)
            answers.add((answer.status, json.dumps(answer.error(), sort_keys=True)))
    assert len(answers) == 1, answers
    for id_ in (*ids, "no-such-workload"):
        seen = machine.call("bob", "GET", f"/api/v1/workloads/{id_}")
        assert seen.status == 404
        assert "secret" not in seen.body.decode()
    for id_ in ids[:2]:
        machine.end(id_)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1", "null"])
def test_a_web_page_opens_no_websocket(machine: Machine, origin: str):
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
        "Origin": origin,
    }
    for path in ("stream", "agent"):
        answer = machine.call_http(machine.token("lisa"), "GET", f"/api/v1/{path}", **headers)
        assert answer.status == 403, (path, answer)
