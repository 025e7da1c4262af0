"""`jupyter gpushare install-service`: the unit that it writes is the documented one, and its
command starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.cli.systemd_units import UNITS, quoted
from tests.cli.command import gpushare
from tests.story.front_end import eventually

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


@pytest.mark.parametrize("name", UNITS)
def test_the_example_in_the_docs_is_what_it_writes(name: str):
    unit = UNITS[name]
    text = unit.text("/opt/gpushare/bin/jupyter")
    assert (EXAMPLES / unit.file_name).read_text() == text


@pytest.mark.parametrize("name", UNITS)
def test_it_writes_the_unit_and_says_what_to_do_next(name: str, tmp_path: Path):
    done = gpushare("install-service", name, "--unit-dir", tmp_path)
    assert done.status == 0, done.stderr
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644
    program = str(Path(sys.executable).with_name("jupyter"))
    assert file.read_text() == UNITS[name].text(program)
    assert done.stdout.splitlines()[0] == f"wrote {file}"
    assert done.stdout.splitlines()[-1] == f"  systemctl enable --now gpushare-{name}"


def test_a_unit_that_someone_changed_is_kept(tmp_path: Path):
    file = tmp_path / "gpushare-agent.service"
    file.write_text("[Service]\n# ours\n")
    refused = gpushare("install-service", "agent", "--unit-dir", tmp_path)
    assert (refused.status, file.read_text()) == (1, "[Service]\n# ours\n")
    assert "exists with other content; --force replaces it" in refused.stderr
    for again in (("--force",), ()):  # the same content is no conflict
        assert gpushare("install-service", "agent", "--unit-dir", tmp_path, *again).status == 0


def test_options_of_the_service_are_appended_and_checked(tmp_path: Path):
    shown = gpushare("install-service", "agent", "--print", "--", "--label", "room=a b")
    assert shown.stdout.count('--label "room=a b"\n') == 1
    refused = gpushare("install-service", "agent", "--unit-dir", tmp_path, "--", "--labl", "a=b")
    assert (refused.status, list(tmp_path.iterdir())) == (2, [])
    assert "--labl" in refused.stderr


def test_another_account_runs_the_scheduler(tmp_path: Path):
    done = gpushare("install-service", "scheduler", "--unit-dir", tmp_path, "--user", "sched")
    assert "\nUser=sched\n" in (tmp_path / "gpushare-scheduler.service").read_text()
    assert "useradd --system --home-dir /var/lib/gpushare-scheduler sched" in done.stdout
    refused = gpushare("install-service", "scheduler", "--print", "--user", "a\nExecStart=x")
    assert refused.status == 2


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path):
    refused = gpushare("install-service", "agent", "--unit-dir", tmp_path / "missing")
    (line,) = refused.stderr.splitlines()
    assert (refused.status, "the unit cannot be written" in line) == (1, True)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1)))
def test_a_line_of_a_unit_holds_exactly_these_arguments(arguments: list[str]):
    """Read back as systemd.service(5) says: quotes, C escapes, %% and $$."""
    line = " ".join(map(quoted, arguments))
    assert "\n" not in line
    assert [read_back(word) for word in words(line)] == arguments


def words(line: str) -> Iterator[str]:
    """Split at spaces outside of quotes."""
    word, is_open, is_escaped = "", False, False
    for char in line:
        if char == " " and not is_open:
            yield word
            word = ""
            continue
        word += char
        if char == '"' and not is_escaped:
            is_open = not is_open
        is_escaped = char == "\\" and not is_escaped
    if word:
        yield word


def read_back(word: str) -> str:
    if not word.startswith('"'):
        return word
    inside, found, position = word[1:-1], "", 0
    pairs = {"\\\\": "\\", '\\"': '"', "\\n": "\n", "%%": "%", "$$": "$"}
    while position < len(inside):
        pair = inside[position : position + 2]
        found += pairs.get(pair, inside[position])
        position += 2 if pair in pairs else 1
    return found


@pytest.fixture
def machine() -> Iterator[Path]:
    """In place of /: every user can traverse it, and a path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def started(machine: Path, service: str, *options: str) -> subprocess.Popen[bytes]:
    """The command of a unit, with the folders that systemd makes, below another root."""
    settings = dict(one.partition("=")[::2] for one in UNITS[service].settings)
    for kind, place in (("StateDirectory", "var/lib"), ("RuntimeDirectory", "run")):
        folder = machine / place / settings[kind]
        folder.mkdir(parents=True)
        folder.chmod(int(settings[f"{kind}Mode"], 8))
    text = UNITS[service].text("jupyter", options)
    (line,) = (one for one in text.splitlines() if one.startswith("ExecStart="))
    for place in ("/var/lib/", "/etc/", "/run/"):
        line = line.replace(place, f"{machine}{place}")
    command = [sys.executable, "-m", "jupyter_gpushare.cli", *shlex.split(line)[2:]]
    with (machine / f"{service}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=machine)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the agent of all users is run by root")
def test_the_commands_of_both_units_work_together(machine: Path):
    (machine / "etc/gpushare").mkdir(parents=True)
    (machine / "etc/gpushare/gpushare.yaml").write_text((EXAMPLES / "gpushare.yaml").read_text())
    socket = machine / "run/gpushare-scheduler/scheduler.sock"
    agent_socket = machine / "run/gpushare/agent.sock"
    running = [started(machine, "scheduler")]
    try:
        eventually(socket.exists, "the scheduler listens")
        running.append(
            started(
                machine, "agent", "--simulate", "A100:2", "--socket", "/run/gpushare/agent.sock"
            )
        )
        address = f"unix://{socket}"
        eventually(
            lambda: "A100" in gpushare("nodes", "--gpus", "--scheduler", address).stdout,
            f"the node is known; {(machine / 'agent.log').read_text()}",
        )
        assert agent_socket.is_socket()
    finally:
        for process in reversed(running):
            process.terminate()
        statuses = [process.wait(60) for process in running]
    assert statuses == [0, 0]
