"""`usage`, `audit`, `list`, `token list` and the like against a real scheduler: tables for people,
JSON and CSV for scripts, columns, a plot.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare import messages as m
from tests.cli.command import Result
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, asking, open_server
from tests.scheduler.test_cli_commands import shell

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000
Call = Callable[..., Awaitable[Result]]


def after_an_hour(folder: Path, story: Callable[[Call, RunningServer], Awaitable[None]]) -> None:
    """Alice held half a GPU for an hour and used a quarter of it; a batch job of hers waits; an
    admin looked after a node.
    """

    async def told() -> None:
        async with open_server(folder) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin) as link:
                await running.of("alice").submit(asking("a", name="training.ipynb", kernel_id="k"))
                await agent.until(lambda: agent.holds)
                command = m.CommandRequest(argv=["sleep", "9"], env={}, cwd="/")
                await running.of("alice").submit(asking("job", 1, name="a job", command=command))
                (lease,) = agent.holds
                row = m.LeaseUsage(
                    lease=lease,
                    held_ms=HOUR_MS,
                    busy_ms=HOUR_MS // 4,
                    used_mib_ms=0,
                    borrowed_mib_ms=0,
                )
                await link.send(m.UsageReport(since_ms=0, rows=[row]))
                async with asyncio.timeout(60):
                    while (
                        not (await running.admin.usage()).usage
                        or (await running.admin.workload("job")).reason is None
                    ):
                        await asyncio.sleep(0.02)

                async def call(*words: object, **more: Any) -> Result:
                    return await shell(running, *words, **more)

                assert (await call("cordon", "n0")).status == 0
                await story(call, running)

    asyncio.run(told())


def rows(result: Result) -> list[dict[str, str]]:
    assert result.status == 0, result
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_usage(tmp_path: Path) -> None:
    async def story(call: Call, running: RunningServer) -> None:
        for by, who in (
            ("project", ["vision"]),
            ("person", ["vision", "alice"]),
            ("notebook", ["vision", "alice", "training.ipynb"]),
        ):
            head, line, row, *_, note = (await call("usage", "--by", by)).stdout.splitlines()
            assert note.startswith("GPU-hours from ")
            assert head.split() == [
                *("project", "user", "notebook")[: len(who)],
                "held",
                "used",
                "idle",
                "borrowed",
                "lent",
            ]
            assert set(line) == {"-", " "}
            assert row.split() == [*who, "0.50", "0.12", "0.38", "0.00", "0.00"]
        assert rows(await call("usage", "--csv", "--columns", "project,held")) == [
            {"project": "vision", "held": "0.5"}
        ]
        said = json.loads((await call("usage", "--json", "--by", "person")).stdout)
        assert {"project": "vision", "user": "alice", "held": 0.5}.items() <= said["usage"][
            0
        ].items()
        nothing = await call(
            "usage", "--since", "2000-01-01T00:00:00+00:00", "--until", "2000-01-02T00:00:00+00:00"
        )
        assert nothing.stdout.startswith("No usage from 2000-01-01T00:00:00")
        assert rows(await call("usage", "--csv", "--until", "3d")) == []
        hers = await call("usage", "--csv", "--by", "notebook", token=running.token("bob"))
        assert rows(hers) == []

    after_an_hour(tmp_path, story)


def test_usage_is_drawn_and_mistakes_draw_nothing(tmp_path: Path) -> None:
    async def story(call: Call, _running: RunningServer) -> None:
        for by in ("project", "person", "notebook"):
            assert (await call("usage", "--by", by, "--plot", tmp_path / f"{by}.svg")).status == 0
            assert b"<svg" in (tmp_path / f"{by}.svg").read_bytes()
        for wrong in (["--columns", "colour"], ["--json", "--csv"], ["--since", "yesterday"]):
            result = await call("usage", "--plot", tmp_path / "wrong.png", *wrong)
            assert (result.status, result.stdout, result.stderr.count("\n")) == (2, "", 1), result
            assert result.stderr.startswith("error: ")
        assert not (tmp_path / "wrong.png").exists()
        nowhere = await call("usage", "--plot", tmp_path / "no" / "where.png")
        assert (nowhere.status, nowhere.stderr.count("\n")) == (1, 1)

    after_an_hour(tmp_path, story)


def test_audit(tmp_path: Path) -> None:
    async def story(call: Call, running: RunningServer) -> None:
        head, _line, *lines = (await call("audit")).stdout.splitlines()
        assert head.split() == ["time", "actor", "action", "object", "detail"]
        assert any("cordon" in line and "node n0" in line for line in lines)
        (row,) = rows(
            await call("audit", "--action", "cordon", "--csv", "--columns", "action,object")
        )
        assert row == {"action": "cordon", "object": "node n0"}
        assert (
            json.loads((await call("audit", "--action", "cordon", "--json")).stdout)["audit"][0][
                "object"
            ]
            == "node n0"
        )
        assert (await call("audit", "--action", "dance")).stdout == "No entries in this period.\n"
        refused = await call("audit", token=running.token("alice"))
        assert (refused.status, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)

    after_an_hour(tmp_path, story)


def test_lists(tmp_path: Path) -> None:
    async def story(call: Call, _running: RunningServer) -> None:
        (job,) = rows(await call("list", "--csv"))
        assert {
            "id": "job",
            "state": "pending",
            "pods": "0/1",
            "command": "sleep 9",
        }.items() <= job.items()
        assert job["reason"]
        assert [one["id"] for one in json.loads((await call("list", "--json")).stdout)] == ["job"]
        assert (await call("list", "--columns", "id,state")).stdout.splitlines()[2].split() == [
            "job",
            "waiting",
        ]
        secrets = {
            row["id"]: row["name"]
            for row in rows(await call("token", "list", "--csv", "--columns", "id,name"))
        }
        assert "alice" in secrets.values()
        gpus = rows(await call("nodes", "--gpus", "--csv", "--columns", "node,gpu,total_mib"))
        assert gpus == [{"node": "n0", "gpu": "0", "total_mib": "81920"}]
        states = rows(await call("status", "--csv", "--columns", "id,state"))
        assert {row["id"]: row["state"] for row in states} == {"a": "running", "job": "pending"}

    after_an_hour(tmp_path, story)


def test_null_is_unlimited_only_where_it_is_a_bound(tmp_path: Path) -> None:
    async def story(call: Call, running: RunningServer) -> None:
        await running.of("bob").submit(
            m.WorkloadRequest(id="m", pods=[m.PodRequest(gpu_memory="80GiB")])
        )
        async with asyncio.timeout(60):
            while not [
                row for row in (await running.admin.waiting()).waiting if row.workload == "m"
            ]:
                await asyncio.sleep(0.02)
        (bound, *_) = rows(await call("queue", "--csv", "--columns", "limit"))
        assert bound == {"limit": "unlimited"}
        assert {row["workloads_per_gpu"] for row in rows(await call("pools", "--csv"))} == {""}
        waiting = {row["workload"]: row["gpu"] for row in rows(await call("waiting", "--csv"))}
        assert waiting == {"job": "1", "m": ""}
        assert "unlimited" not in (await call("waiting")).stdout
        assert " off " in (await call("pools")).stdout

    after_an_hour(tmp_path, story)


def test_why_of_what_is_over_says_how_it_ended_and_nobody_waits_is_said_so(tmp_path: Path) -> None:
    async def story(call: Call, _running: RunningServer) -> None:
        why = (await call("why", "job")).stdout.splitlines()
        assert why[0].startswith("job is waiting: ")
        assert (await call("why", "a job")).stdout.splitlines() == why, "its name is enough"
        assert why[1] == "  Expected wait unknown: waiting for a node to become ready."
        told = json.loads((await call("why", "job", "--json")).stdout)["expected_wait"]
        assert (told["basis"], told["seconds_median"], told["based_on"]) == ("none", None, 0)
        would = (await call("what-if", "--gpu", "1")).stdout
        assert why[1] in would, would
        waiting = rows(await call("waiting", "--csv", "--columns", "workload,expected_seconds"))
        assert waiting == [{"workload": "job", "expected_seconds": ""}]
        assert (await call("cancel", "job")).status == 0
        assert (await call("why", "job")).stdout == "job has ended: Cancelled by root.\n"
        (ended,) = rows(await call("list", "--all", "--csv"))
        assert (ended["state"], ended["reason"]) == ("ended", "Cancelled by root.")
        assert (
            json.loads((await call("why", "job", "--json")).stdout)["message"]
            == "Cancelled by root."
        )
        assert (await call("waiting")).stdout == "No pending workloads.\n"

    after_an_hour(tmp_path, story)


TABLES = (
    ["status"],
    ["queue"],
    ["nodes"],
    ["nodes", "--gpus"],
    ["pools"],
    ["projects"],
    ["waiting"],
    ["usage"],
    ["audit"],
    ["list"],
    ["token", "list"],
)


def test_every_table_has_the_same_options_and_the_same_errors(tmp_path: Path) -> None:
    async def story(call: Call, _running: RunningServer) -> None:
        for words in TABLES:
            for_people = await call(*words)
            assert for_people.status == 0, (words, for_people)
            assert json.loads((await call(*words, "--json")).stdout) is not None
            head = rows_head(await call(*words, "--csv"))
            chosen = await call(*words, "--csv", "--columns", f"{head[-1]}, {head[0]}")
            assert rows_head(chosen) == [head[-1], head[0]], words
            everything = json.loads((await call(*words, "--json")).stdout)
            some = json.loads(
                (await call(*words, "--json", "--columns", f"{head[-1]},{head[0]}")).stdout
            )
            assert type(some) is type(everything), words
            assert not isinstance(some, dict) or some.keys() == everything.keys(), words
            assert [list(row) for row in rows_in(some)] == [[head[-1], head[0]]] * len(
                rows_in(everything)
            ), words
            unknown = await call(*words, "--columns", "colour")
            assert (unknown.status, unknown.stdout, unknown.stderr.count("\n")) == (2, "", 1), (
                words,
                unknown,
            )
            assert unknown.stderr.startswith("error: there is no column 'colour'; there are: "), (
                words
            )
            both = await call(*words, "--json", "--csv")
            assert (both.status, both.stdout) == (2, ""), words
            assert both.stderr.startswith("error: --json and --csv exclude each other"), words

    after_an_hour(tmp_path, story)


def rows_in(said: Any) -> list[Any]:
    """The rows of what a command says in JSON: it is a list, or has them under a key (`workloads`
    where there are several lists).
    """
    if isinstance(said, list):
        return said
    found = {key: value for key, value in said.items() if isinstance(value, list)}
    return found["workloads"] if "workloads" in found else next(iter(found.values()))


def rows_head(result: Result) -> list[str]:
    assert result.status == 0, result
    return result.stdout.splitlines()[0].split(",")
