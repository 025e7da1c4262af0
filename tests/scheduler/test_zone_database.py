"""Which time zone database is used: its version shows in the status."""

from __future__ import annotations

import os
import subprocess
import sys
import zoneinfo
from pathlib import Path

import pytest
import tzdata

from jupyter_gpushare.scheduler.config.zone_database import database_in, zone_database

PACKAGE = f"{tzdata.IANA_VERSION} (tzdata)"


def database(directory: Path, **files: str) -> Path:
    (directory / "Europe").mkdir(parents=True)
    (directory / "Europe" / "Berlin").touch()
    for name, text in files.items():
        (directory / {"version": "+VERSION", "rules": "tzdata.zi"}[name]).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"rules": "# version 2025b\n# ddeps backzone\n"}, "2025b"),
        ({"version": "2026a\n"}, "2026a"),
        ({"version": "", "rules": "# version 2025b\n"}, "2025b"),
        ({}, "unknown version"),
    ],
)
def test_a_directory_states_its_version(tmp_path, files, version):
    place = database(tmp_path / "zones", **files)
    assert database_in([str(place)]) == f"{version} ({place})"


def test_the_first_directory_with_zones_is_used(tmp_path):
    (tmp_path / "empty").mkdir()
    first = database(tmp_path / "first", version="2026a")
    second = database(tmp_path / "second", version="2020a")
    path = map(str, (tmp_path / "empty", tmp_path / "missing", first, second))
    assert database_in(path) == f"2026a ({first})"


def test_without_a_directory_the_package_is_used(monkeypatch):
    assert database_in([]) == PACKAGE
    monkeypatch.setitem(sys.modules, "tzdata", None)  # not installed
    assert database_in([]) == "none"


def test_it_is_the_database_that_this_process_uses(tmp_path):
    assert zone_database() == database_in(zoneinfo.TZPATH)
    code = (
        "from jupyter_gpushare.scheduler.config.zone_database import zone_database as z; print(z())"
    )
    tree = str(Path(__file__).parents[2])
    for path, expected in (
        ("", PACKAGE),
        (str(database(tmp_path / "own", version="2024z")), f"2024z ({tmp_path / 'own'})"),
    ):
        environ = {**os.environ, "PYTHONTZPATH": path, "PYTHONPATH": tree}
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == expected
