"""The group of commands: late imports, one-line errors, exit statuses; and `validate`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli import COMMANDS
from tests.cli.command import gpushare


def test_help_and_import_load_nothing_heavy() -> None:
    """The command line must answer --help without the service's libraries."""
    code = (
        "import sys; from jupyter_gpushare.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'tornado', 'sqlalchemy', 'numpy', 'pydantic', 'yaml', 'matplotlib',"
        " 'jupyter_server', 'traitlets', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    "args",
    [["nope"], ["validate"], ["simulate"], ["fairshare", "--format", "xml", "f"], ["--nope"]],
)
def test_mistakes_in_the_arguments_are_one_line(args: list[str]) -> None:
    result = gpushare(*args)
    assert result.status == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")


def test_validate_prints_every_problem_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "projects:\n  - name: p\n    members: [a, a]\n    pools: {default: {gpu: {quota: -1}}}\n"
    )
    result = gpushare("validate", file)
    assert result.status == 2
    assert result.stdout.splitlines() == [
        f"{file}:3: projects[0].members[1]: the member 'a' is listed twice",
        f"{file}:4: projects[0].pools.default.gpu.quota: must not be negative, got -1",
    ]
    assert result.stderr == f"error: the policy has 2 problems ({file})\n"


@pytest.mark.parametrize("text", ["", "# nothing\n", "hello\n", "- a\n", "a: [\n", "a: b: c\n"])
def test_validate_names_a_field_even_when_the_whole_file_is_at_fault(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    (line,) = gpushare("validate", file).stdout.splitlines()
    assert re.fullmatch(re.escape(str(file)) + r":\d+: file: .+", line), line


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (["demo", "--no-browser", "--policy", "/nope.yaml"], "/nope.yaml:1"),
        (["demo", "--no-browser", "--gpu-memory", "much"], "jupyter gpushare demo"),
        (["demo", "--no-browser", "--ip", "not an address"], "ip"),
        (["demo", "--no-browser", "--ip", "192.0.2.1"], "ip"),
        (
            ["status", "--scheduler", "http://127.0.0.1:1", "--token-file", "/nope.token"],
            "token-file",
        ),
        (["agent", "--simulate", "A100:0", "--self-test"], "simulate"),
    ],
)
def test_every_error_says_where(args: list[str], where: str) -> None:
    result = gpushare(*args)
    assert (result.status, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(f" ({where})\n")


def test_validate_a_good_one(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("projects: [{name: p}]\n")
    assert gpushare("validate", file) == (
        0,
        f"{file}: valid (1 node pool, 0 departments, 1 project)\n",
        "",
    )


def test_the_schema_is_json() -> None:
    assert "projects" in json.loads(gpushare("validate", "--schema").stdout)["properties"]
