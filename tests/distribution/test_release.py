"""`make release`: one version everywhere, notes from the fragments, and a dry run that writes
nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.distribution.builds import ROOT, run

SCRIPT = ROOT / "docs/packaging/release.py"
PLACES = {
    "labextension/package.json": 1,
    "jupyter_gpushare/kube/chart/Chart.yaml": 2,
    "docs/packaging/recipe/recipe.yaml": 1,
    ".github/CITATION.cff": 1,
    "docs/how-to/kubernetes.md": 2,
    "jupyter_gpushare/kube/Dockerfile": 1,
}
"""File -> how often it names the version."""
VERSION = r"(?im)(?:^\W*(?:app)?version\"?: \"?|jupyter-gpushare:)(\d+\.\d+\.\d+)"
KINDS = ("added", "changed", "fixed")


def current() -> str:
    return json.loads((ROOT / "labextension/package.json").read_text())["version"]


def release(*arguments: object) -> str:
    return run(sys.executable, SCRIPT, *arguments)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files that a release touches, under git: towncrier stages what it removes."""
    names = [*PLACES, "CHANGELOG.md", "pyproject.toml", "docs/packaging/notes.md.jinja"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    fragments = tmp_path / "docs/changes"
    fragments.mkdir()
    (fragments / "README.md").write_text("about this folder\n")
    (fragments / "top.added.md").write_text("* A table.\n* A chart.\n")
    (fragments / "wait.fixed.md").write_text("A wait ends.\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path)
    run(*git, "init", "-q")
    run(*git, "add", "-A")
    run(*git, "commit", "-qm", "before")
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path))
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_all_files_carry_the_version_of_the_package():
    for name, count in PLACES.items():
        found = re.findall(VERSION, (ROOT / name).read_text())
        assert found == [current()] * count, name


def test_a_dry_run_shows_the_difference_and_writes_nothing(repository: Path):
    before = contents(repository)
    shown = release("9.8.7", "--dry-run", "--root", repository)
    assert contents(repository) == before
    assert shown.count("9.8.7") == sum(PLACES.values()) + 1
    assert "removed: docs/changes/top.added.md" in shown


def test_a_release_writes_the_version_and_the_notes(repository: Path):
    earlier = (repository / "CHANGELOG.md").read_text()
    release("9.8.7", "--root", repository)
    for name, count in PLACES.items():
        assert (repository / name).read_text().count("9.8.7") == count, name
    assert [path.name for path in (repository / "docs/changes").iterdir()] == ["README.md"]
    notes = release("9.8.7", "--notes", "--root", repository)
    assert notes == "### Added\n\n* A table.\n* A chart.\n\n### Fixed\n\n* A wait ends.\n"
    kept = earlier.partition("## ")[2]
    assert (repository / "CHANGELOG.md").read_text().endswith(kept)


def test_entries_written_by_hand_for_this_version_stay_below_its_notes(repository: Path):
    (repository / "CHANGELOG.md").write_text(
        "# Changes\n\n<!-- release notes start -->\n\n## 9.8.7 (not released)\n\n* By hand.\n"
    )
    release("9.8.7", "--root", repository)
    notes = release("9.8.7", "--notes", "--root", repository)
    assert notes.endswith("* A wait ends.\n\n### Also in this version\n\n* By hand.\n")


@pytest.mark.parametrize(
    ("version", "why"),
    [("1.2", "the version is X.Y.Z"), ("0.0.1", "0.0.1 is older than"), ("1.2.3rc1", "X.Y.Z")],
)
def test_another_version_is_refused(repository: Path, version: str, why: str):
    before = contents(repository)
    with pytest.raises(AssertionError, match=why):
        release(version, "--root", repository)
    assert contents(repository) == before


def test_a_version_is_released_once(repository: Path):
    release("9.8.7", "--root", repository)
    with pytest.raises(AssertionError, match=r"9\.8\.7 is already in CHANGELOG\.md"):
        release("9.8.7", "--root", repository)


def test_every_fragment_says_what_kind_of_change_it_is():
    """towncrier refuses to build the notes with any other name."""
    names = [path.name for path in (ROOT / "docs/changes").iterdir() if path.name != "README.md"]
    assert [
        name for name in names if name.split(".")[1:] not in [[kind, "md"] for kind in KINDS]
    ] == []


def test_make_release_writes_nothing_with_dry_run():
    """What `make` would run."""
    planned = {
        flag: run("make", "-n", "release", "VERSION=99.0.0", flag, cwd=ROOT)
        for flag in ("DRY_RUN=1", "DRY_RUN=")
    }
    assert "release.py 99.0.0 --dry-run" in planned["DRY_RUN=1"]
    assert "git tag" not in planned["DRY_RUN=1"]
    assert "git tag --annotate v99.0.0" in planned["DRY_RUN="]
