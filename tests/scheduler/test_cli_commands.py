"""The commands that ask a scheduler, against a real one: what a shell sees of them."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotAllowed
from jupyter_gpushare.kernel.documentation import address_of_code
from jupyter_gpushare.scheduler.config.zone_database import zone_database
from tests.cli.command import Result, gpushare
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, asking, open_server


async def shell(running: RunningServer, *args: object, token: str | None = None) -> Result:
    """Runs a command beside the scheduler, as this token's owner (the admin's by default)."""
    file = running.listeners.token_file
    if token is not None:
        file = file.with_name("token")
        file.write_text(token)
    words = (*args, "--scheduler", running.url, "--token-file", file)
    return await asyncio.to_thread(gpushare, *words)


def story_with_two_workloads(tmp_path: Path, story) -> None:
    """`a` holds half of the only GPU, `b` wants a whole one and waits."""

    async def told():
        async with open_server(tmp_path) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                await running.of("alice").submit(asking("a", name="training.ipynb"))
                await agent.until(lambda: agent.holds)
                await running.of("bob").submit(asking("b", 1, kernel_id="kernel-of-b"))
                while (await running.admin.workload("b")).reason is None:
                    await asyncio.sleep(0.02)
                await story(running)

    asyncio.run(told())


@pytest.mark.parametrize(
    ("command", "table"),
    [("queue", "queues"), ("nodes", "nodes"), ("pools", "pools"), ("projects", "projects")],
)
def test_tables_come_for_people_and_for_programs(tmp_path: Path, command: str, table: str):
    async def story(running: RunningServer):
        for_people = await shell(running, command)
        head, line, *rows = for_people.stdout.splitlines()
        as_json = json.loads((await shell(running, command, "--json")).stdout)[table]
        as_csv = list(csv.DictReader(io.StringIO((await shell(running, command, "--csv")).stdout)))
        assert set(line) <= {"-", " "}
        assert len(as_json) == len(as_csv) == len([row for row in rows if row])
        first = head.split()[0]
        chosen = await shell(
            running, command, "--csv", "--columns", f"pool,{first}" if "pool" in head else first
        )
        assert chosen.stdout.splitlines()[0].endswith(first)
        wrong = await shell(running, command, "--columns", "colour")
        assert (wrong.status, wrong.stderr.count("\n")) == (2, 1)
        assert wrong.stderr.startswith("error: there is no column 'colour'; there are: ")

    story_with_two_workloads(tmp_path, story)


def test_status_shows_what_one_may_see(tmp_path: Path):
    async def story(running: RunningServer):
        everything = await shell(running, "status")
        assert "(admin)" in everything.stdout
        assert "training.ipynb" in everything.stdout
        assert f"\ntime zones: {zone_database()}\n" in everything.stdout
        hers = await shell(
            running, "status", "--csv", "--columns", "id,state,node", token=running.token("alice")
        )
        assert hers.stdout == "id,state,node\na,running,n0\n"
        his = json.loads(
            (await shell(running, "status", "--json", token=running.token("bob"))).stdout
        )
        assert (his["user"], [w["id"] for w in his["workloads"]]) == ("bob", ["b"])

    story_with_two_workloads(tmp_path, story)


def test_why_gives_reason_numbers_and_place(tmp_path: Path):
    async def story(running: RunningServer):
        waits = await shell(running, "why", "b")
        assert waits.status == 0
        assert "b is waiting: " in waits.stdout
        assert "requested 1" in waits.stdout
        code = re.search(r"^  (\w+): requested", waits.stdout, re.MULTILINE)
        assert code is not None
        assert waits.stdout.endswith(f"  docs: {address_of_code(code[1])}\n")
        assert (
            json.loads((await shell(running, "why", "b", "--json")).stdout)["queue_position"] == 1
        )
        assert (await shell(running, "why", "a")).stdout == "a is idle on n0.\n"
        assert (await shell(running, "why", "kernel-of-b")).stdout == waits.stdout
        unknown = await shell(running, "why", "c")
        assert (unknown.status, unknown.stderr) == (1, "error: unknown workload 'c' (id)\n")

    story_with_two_workloads(tmp_path, story)


def test_an_impossible_command_is_queued_only_if_asked_for(tmp_path: Path):
    async def story(running: RunningServer):
        where = ("--scheduler", running.url, "--token-file", running.listeners.token_file)
        words = ("run", *where, "--detach", "--gpu", 3)
        refused = await asyncio.to_thread(gpushare, *words, "--", "true")
        assert (refused.status, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused
        assert f"; docs: {address_of_code('NeverFits')} (" in refused.stderr
        queued = await asyncio.to_thread(gpushare, *words, "--queue-anyway", "--", "true")
        assert queued.status == 0, queued
        assert (await running.admin.workload(queued.stdout.strip())).state == "pending"

    story_with_two_workloads(tmp_path, story)


def test_what_if_says_where_and_changes_nothing(tmp_path: Path):
    async def story(running: RunningServer):
        async def all_of_it() -> list[m.WorkloadView]:
            """But for what passes with time."""
            return [
                replace(view, expected_wait=None)
                for view in (await running.admin.workloads()).workloads
            ]

        before = await all_of_it()
        yes = await shell(running, "what-if", "--project", "vision", "--gpu", "0.5")
        assert yes.stdout.startswith("It would start now on n0")
        no = await shell(
            running,
            "what-if",
            "--project",
            "vision",
            "--gpu",
            "1",
            "--pool",
            "default",
            "--priority",
            "train",
        )
        assert no.stdout.startswith("It would wait: ")
        assert not json.loads(
            (await shell(running, "what-if", "--gpu", "1", "--project", "vision", "--json")).stdout
        )["starts_now"]
        assert (await shell(running, "what-if", "--gpu", "1", "--project", "none")).status == 2
        assert (await shell(running, "what-if", "--project", "vision")).status == 2
        assert await all_of_it() == before

    story_with_two_workloads(tmp_path, story)


def test_tokens_are_made_listed_and_revoked(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            file = tmp_path / "alice.token"
            made = await shell(
                running, "token", "create", "alice", "--expires", "30d", "--output", file
            )
            assert made.status == 0
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert file.read_text().strip() not in made.stdout
            assert (await shell(running, "status", token=file.read_text())).status == 0
            assert (await shell(running, "token", "create", "alice", "--output", file)).status == 2
            nowhere = await shell(
                running, "token", "create", "bob", "--output", tmp_path / "no" / "bob.token"
            )
            assert (nowhere.status, nowhere.stdout, nowhere.stderr.count("\n")) == (2, "", 1)
            assert "bob" not in (await shell(running, "token", "list")).stdout
            listed = json.loads((await shell(running, "token", "list", "--json")).stdout)["tokens"]
            (hers,) = [t for t in listed if t["name"] == "alice"]
            assert (await shell(running, "token", "list", token=file.read_text())).status == 1
            assert (await shell(running, "token", "revoke", hers["id"])).status == 0
            assert (await shell(running, "status", token=file.read_text())).status == 1
            assert hers["id"] in (await shell(running, "token", "list")).stdout
            made = await shell(
                running,
                "token",
                "create",
                "box",
                "--scope",
                "server",
                "--user",
                "alice",
                "--user",
                "bob",
            )
            assert "alice, bob" in (await shell(running, "token", "list")).stdout
            assert (await running.client(made.stdout.strip()).whoami()).users == ["alice", "bob"]
            made = await shell(running, "token", "create", "carol", "--group", "night")
            assert (await running.client(made.stdout.strip()).whoami()).projects == ["language"]
            refused = await shell(running, "token", "create", "carol", "--user", "night")
            assert (refused.status, refused.stderr) == (
                2,
                "error: users are allowed only for tokens of servers (users)\n",
            )

    asyncio.run(story())


def test_one_sees_who_one_is_and_everybodys_place(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            for user, project in (("alice", "vision"), ("bob", "language")):
                await running.admin.submit(
                    asking(f"{user}1", user=user, project=project, name=f"{user}.ipynb")
                )
            alice = running.token("alice")
            assert (
                await shell(running, "whoami", token=alice)
            ).stdout == "alice (person), authenticated by token\nprojects: vision\n"
            assert (
                json.loads((await shell(running, "whoami", "--json", token=alice)).stdout)["user"]
                == "alice"
            )
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                while running.server.service.unit_of_work.needs_cycle:
                    await asyncio.sleep(0.01)
            rows = list(
                csv.DictReader(
                    io.StringIO((await shell(running, "waiting", "--csv", token=alice)).stdout)
                )
            )
            assert [(row["position"], row["project"], row["name"]) for row in rows] == [
                ("1", "vision", "alice.ipynb"),
                ("2", "language", ""),
            ]
            shown = (await shell(running, "waiting", token=alice)).stdout
            assert "alice.ipynb" in shown
            assert "bob" not in shown

    asyncio.run(story())


def test_the_first_token_is_made_before_there_is_a_scheduler(tmp_path: Path):
    """Anyone who can write to the database is an admin."""
    made = gpushare(
        "token", "create", "first", "--scope", "admin", "--state-dir", tmp_path / "state"
    )
    assert made.status == 0, made.stderr
    assert stat.S_IMODE((tmp_path / "state/scheduler.sqlite").stat().st_mode) == 0o600

    async def story():
        async with open_server(tmp_path) as running:
            admin = running.client(made.stdout.strip())
            assert (await admin.whoami()).admin
            listed = gpushare(
                "token",
                "list",
                "--json",
                "--db-url",
                f"sqlite:///{tmp_path}/state/scheduler.sqlite",
            )
            mine = json.loads(listed.stdout)["tokens"][0]  # the oldest
            assert (mine["name"], mine["scope"]) == ("first", "admin")
            assert (
                gpushare("token", "revoke", mine["id"], "--state-dir", tmp_path / "state").status
                == 0
            )
            async with asyncio.timeout(60):
                while True:
                    try:
                        await admin.whoami()
                    except NotAllowed:
                        break
                    await asyncio.sleep(0.1)

    asyncio.run(story())
    both = gpushare("token", "list", "--state-dir", tmp_path, "--db-url", "sqlite://")
    assert (both.status, both.stderr) == (
        2,
        "error: --db-url and --state-dir exclude each other (--db-url)\n",
    )


def test_without_a_scheduler_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GPUSHARE_STATE", str(tmp_path))
    nothing = gpushare("status")
    assert (nothing.status, nothing.stderr.count("\n")) == (1, 1)
    assert "--scheduler" in nothing.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        (tmp_path / "t").write_text("x")
        away = gpushare(
            "status",
            "--scheduler",
            f"http://127.0.0.1:{taken.getsockname()[1]}",
            "--token-file",
            tmp_path / "t",
        )
    assert (away.status, away.stderr.count("\n")) == (1, 1)
    assert "cannot be reached" in away.stderr
    assert gpushare("status", "--scheduler", "http://localhost:1").status == 2


@pytest.mark.slow
def test_the_program_starts_is_found_and_ends_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A real process: its configuration file, its line, the note for tools of this machine,
    SIGTERM, and a second start.
    """
    state = tmp_path / "state"
    monkeypatch.setenv("GPUSHARE_STATE", str(state))
    config = tmp_path / "jupyter_gpushare_config.py"
    config.write_text("c.SchedulerApp.port = 0\nc.SchedulerApp.groups = {'night': ['bob']}\n")
    command = [sys.executable, "-m", "jupyter_gpushare.cli", "scheduler", "--config", str(config)]
    for _ in range(2):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                line = program.stdout.readline()
                assert line.startswith("jupyter gpushare scheduler listening on http://127.0.0.1:")
                assert line.endswith("(policy built in)\n")
                assert gpushare("status").stdout.startswith("scheduler ")
                second = subprocess.run(
                    command, capture_output=True, text=True, timeout=60, check=False
                )
                assert second.returncode == 1
                assert second.stderr.splitlines()[-1].startswith(
                    "error: another scheduler runs in this state directory"
                )
            finally:
                program.send_signal(signal.SIGTERM)
            assert program.wait(20) == 0
        assert not (state / "scheduler.json").exists()
    assert os.stat(state / "admin.token").st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c.SchedulerApp.port = 'x'", "port"),
        ("c.SchedulerApp.port = 99999", "port"),
        ("c.SchedulerApp.port = ", "invalid syntax"),
        ("1 / 0", "division by zero"),
    ],
    ids=["bad value", "too large", "no Python", "raises"],
)
def test_a_mistake_in_the_configuration_is_one_line(tmp_path: Path, text: str, said: str):
    file = tmp_path / "conf.py"
    file.write_text(text)
    words = [
        sys.executable,
        "-m",
        "jupyter_gpushare.cli",
        "scheduler",
        "--config",
        str(file),
        "--state-dir",
        str(tmp_path / "state"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: the configuration cannot be ")
    assert said in done.stderr
    assert f"({file})" in done.stderr
