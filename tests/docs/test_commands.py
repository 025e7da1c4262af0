"""Every command that a page shows runs here, or is listed with the reason why it does not; then at
least its options exist, and the test that covers it.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from jupyter_gpushare.cli import gpushare as group
from tests.cli.command import Result, gpushare
from tests.docs.test_docs import PAGES, ROOT
from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, asking, open_server

BLOCK = re.compile(r"```(?P<language>\w*)\n(?P<body>.*?)```", re.DOTALL)
SHELLS = ("sh", "bash", "console", "text")
PROGRAMS = re.compile(
    r"(jupyter|make|pip|helm|kubectl|docker|python|systemctl|install|useradd|papermill|curl|jq"
    r"|createuser|createdb|runuser|/\S+/python3?|/\S+/pip) "
)
SUBCOMMAND = re.compile(r"jupyter gpushare (?P<line>.*)")
GENERATED = ROOT / "docs/reference/commands.md"

ALONE = {"validate", "simulate", "fairshare", "policy diff A B", "kube chart"}
"""What needs no scheduler."""
ASKING = {
    "audit",
    "cordon",
    "nodes",
    "policy diff",
    "pools",
    "queue",
    "status",
    "token create",
    "uncordon",
    "usage",
    "what-if",
    "whoami",
    "why",
}
"""What asks a scheduler: one with a node, a project and a pending workload."""
NOT_RUN = {
    "book": "needs the policy of its page; tests/scheduler/test_booking_commands.py",
    "bookings": "the same",
    "unbook": "the same",
    "agent": "a service; tests/story/test_deaths.py starts and kills one",
    "db": "needs the database of a service; tests/scheduler/test_db_command.py",
    "demo": "opens JupyterLab; tests/ui",
    "disable": "undoes `enable`; tests/cli/test_enable_command.py",
    "drain": "ends work and waits for it; tests/scheduler/test_node_commands.py",
    "enable": "changes the Python environment; tests/cli/test_enable_command.py",
    "kube check": "asks a Kubernetes cluster; tests/kube",
    "run": "starts a process on a node; tests/story/test_batch.py",
    "scheduler": "a service; tests/scheduler/test_cli_commands.py starts one",
    "shell": "opens a shell on a node; tests/story",
}
"""Commands of ours -> why they are not run here, and the test that runs them."""
OTHERS = {
    "jupyter lab": "opens a browser; tests/ui",
    "make": "runs this test",
    "python -m": "needs a GPU, a trace or minutes",
    "pip": "changes the environment",
    "/": "changes the machine",
    "helm": "needs a cluster; tests/kube installs the chart",
    "kubectl": "needs a cluster; tests/kube",
    "docker": "needs a registry",
    "systemctl": "changes the machine",
    "install": "changes the machine",
    "useradd": "changes the machine",
    "runuser": "changes the machine",
    "createuser": "needs PostgreSQL's administrator; tests/scheduler start their own server",
    "createdb": "needs PostgreSQL's administrator; tests/scheduler start their own server",
    "curl": "tests/scheduler/test_metrics.py asks for the same page",
    "jq": "another program formats the body; tests/scheduler/test_policy_changes.py",
    "papermill": "is not installed; tests/story/test_headless.py",
}
"""Other programs -> why they are not run."""


class Shown(NamedTuple):
    """One command and its page."""

    page: str
    line: str


def shown() -> list[Shown]:
    found = []
    for page in PAGES:
        text = page.read_text()
        lines = [
            line.removeprefix("$ ")
            for block in BLOCK.finditer(text)
            if block["language"] in SHELLS and page != GENERATED
            for line in block["body"].splitlines()
        ]
        lines += re.findall(r"^ {4}(\S.*)$", BLOCK.sub("", text), re.MULTILINE)
        name = str(page.relative_to(ROOT))
        found += [Shown(name, _without_comment(line)) for line in lines if PROGRAMS.match(line)]
    return sorted(set(found))


def _without_comment(line: str) -> str:
    return re.split(r"\s{2,}# |\s{2,}\(", line)[0].strip()


def ours(line: str) -> tuple[str, list[str]] | None:
    """The command's name as in the tables above, and its words; None: another program, or output
    that begins with the command's name.
    """
    found = SUBCOMMAND.match(line)
    if found is None or "standing by" in line:
        return None
    words = [word for word in shlex.split(found["line"].partition(" > ")[0]) if word != "…"]
    two = " ".join(words[:2])
    if two == "policy diff":
        return ("policy diff A B" if len(words) == 4 else two), words
    return (two if two in ALONE | ASKING or two in NOT_RUN else words[0]), words


SHOWN = shown()
OURS = [(one, *found) for one in SHOWN if (found := ours(one.line))]


def test_there_are_commands() -> None:
    assert len(OURS) > 40
    used = {name for _, name, _ in OURS}
    tables = ALONE | ASKING | set(NOT_RUN)
    assert sorted(used - tables) == [], "neither run nor marked why not"


@pytest.mark.parametrize("shown", SHOWN, ids=lambda one: one.line[:60])
def test_it_is_run_or_marked_why_not(shown: Shown) -> None:
    if ours(shown.line) is None and "standing by" not in shown.line:
        assert any(shown.line.startswith(name) for name in OTHERS), shown


@pytest.mark.parametrize("reason", [*NOT_RUN.values(), *OTHERS.values()])
def test_the_named_test_exists(reason: str) -> None:
    for path in re.findall(r"tests/[\w/.]+", reason):
        assert (ROOT / path.rstrip(".")).exists(), path


@pytest.mark.parametrize(("shown", "name", "words"), OURS, ids=lambda one: str(one)[:60])
def test_its_options_exist(shown: Shown, name: str, words: list[str]) -> None:
    command: click.Command = group
    context = click.Context(group, info_name="jupyter gpushare")
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        assert found is not None, shown
        command, rest = found, rest[1:]
        context = click.Context(command, parent=context)
    if "…" in shown.line and rest[-1].startswith("--"):
        rest.append("…")
    command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize("line", sorted({one.line for one, name, _ in OURS if name in ALONE}))
def test_it_runs_alone(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    _, words = ours(line) or ("", [])
    done = gpushare(*words)
    assert done.status == 0, done


def copy_examples(folder: Path) -> None:
    """What a reader has in the current folder."""
    shutil.copytree(ROOT / "docs/examples", folder / "docs/examples")
    shutil.copy(ROOT / "docs/examples/gpushare.yaml", folder)


PLACEHOLDERS = {"NODE": "n0", "WORKLOAD": "b"}


def test_it_runs_against_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node; a project with a running workload and another one with a pending workload `b`."""
    copy_examples(tmp_path)
    monkeypatch.chdir(tmp_path)

    async def story() -> list[tuple[str, Result]]:
        async with open_server(tmp_path) as running:
            agent = FakeAgent(gpus=1)
            async with agent.linked(running.admin):
                await running.of("alice").submit(asking("a"))
                await agent.until(lambda: agent.holds)
                await running.of("bob").submit(asking("b", 1))
                while (await running.admin.workload("b")).reason is None:
                    await asyncio.sleep(0.02)
                return [(line, await run(running, words)) for line, words in asked()]

    done = asyncio.run(story())
    assert [one for one in done if one[1].status != 0] == []
    assert len(done) > 15


def asked() -> list[tuple[str, list[str]]]:
    """Each command once."""
    lines = {one.line: words for one, name, words in OURS if name in ASKING}
    return sorted(lines.items())


async def run(running: RunningServer, words: list[str]) -> Result:
    if "--scheduler" in words:
        where = words.index("--scheduler")
        words = words[:where] + words[where + 2 :]
    words = [PLACEHOLDERS.get(word, word) for word in words]
    access = ("--scheduler", running.url, "--token-file", running.listeners.token_file)
    return await asyncio.to_thread(gpushare, *words, *access)
