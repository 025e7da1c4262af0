"""Commands in systemd units of the documentation are commands of this version."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from jupyter_gpushare.cli import gpushare

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "docs/examples").glob("*.service"))
TEXTS = [*UNITS, *sorted((ROOT / "docs/how-to").glob("*.md"))]
COMMANDS = [
    (file.name, line)
    for file in TEXTS
    for line in re.findall(r"^ExecStart=(.+)$", file.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("file", "line"), COMMANDS)
def test_a_unit_starts_a_command_with_known_options(file: str, line: str) -> None:
    program, name, command, *options = shlex.split(line)
    assert (Path(program).name, name) == ("jupyter", "gpushare"), file
    found = gpushare.get_command(click.Context(gpushare), command)
    assert found is not None
    found.make_context(command, options)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "jupyter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/gpushare/bin/jupyter", str(program)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, unit.name in checked.stderr) == (0, False), checked.stderr
