"""Prepares a release: one version everywhere, and the release notes from docs/changes.

    python docs/packaging/release.py 0.2.0             # writes the files
    python docs/packaging/release.py 0.2.0 --dry-run   # shows the difference, writes nothing
    python docs/packaging/release.py 0.2.0 --notes     # prints the notes of a released version

`make release VERSION=0.2.0` runs it, generates what contains the version, and commits and tags.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
PLACES = {
    "labextension/package.json": r'(?m)^(  "version": ")[^"]+()',
    "jupyter_gpushare/kube/chart/Chart.yaml": r"(?m)^((?:app)?[vV]ersion: )\S+()$",
    "docs/packaging/recipe/recipe.yaml": r'(?m)^(  version: ")[^"]+()',
    ".github/CITATION.cff": r"(?m)^(version: )\S+()$",
    "docs/how-to/kubernetes.md": r"(/jupyter-gpushare:)\d+\.\d+\.\d+()",
    "jupyter_gpushare/kube/Dockerfile": r"(-t jupyter-gpushare:)\d+\.\d+\.\d+()",
}
"""File -> pattern of every place with the version. The first one decides; a test compares them."""
CHANGELOG = "CHANGELOG.md"
FRAGMENTS = "docs/changes"
TEMPLATE = "docs/packaging/notes.md.jinja"
VERSION = re.compile(r"\d+\.\d+\.\d+")
BY_HAND = "### Also in this version"
"""Heading of entries that were written into the changelog before the release."""


def current(root: Path) -> str:
    """The version that the front end and the Python side carry."""
    return str(json.loads((root / next(iter(PLACES))).read_text())["version"])


def check(root: Path, version: str) -> None:
    """Raises UsageError unless the version is X.Y.Z, not older than the current one."""
    if not VERSION.fullmatch(version):
        raise click.UsageError(f"the version is X.Y.Z, got {version!r}")
    if numbers(version) < numbers(current(root)):
        raise click.UsageError(f"{version} is older than {current(root)}")
    if f"\n## {version} (2" in (root / CHANGELOG).read_text():
        raise click.UsageError(f"{version} is already in {CHANGELOG}")


def numbers(version: str) -> tuple[int, ...]:
    """Comparable."""
    return tuple(int(part) for part in version.split("."))


def write_versions(root: Path, version: str) -> None:
    """The version in all places."""
    for name, pattern in PLACES.items():
        path = root / name
        text, count = re.subn(pattern, rf"\g<1>{version}\g<2>", path.read_text())
        assert count, f"{name}: no version"
        path.write_text(text)


def write_notes(root: Path, version: str) -> None:
    """Fragments become a section of the changelog, above what was written by hand for it."""
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr or done.stdout)
    path = root / CHANGELOG
    path.write_text(path.read_text().replace(f"## {version} (not released)", f"\n{BY_HAND}", 1))


def notes(root: Path, version: str) -> str:
    """The section of a version in the changelog, without its heading."""
    sections = re.split(r"(?m)^## ", (root / CHANGELOG).read_text())
    for section in sections[1:]:
        heading, _, text = section.partition("\n")
        if heading.split()[0] == version:
            return text.strip() + "\n"
    raise click.UsageError(f"{CHANGELOG} has no section {version}")


def differences(before: Path, after: Path) -> str:
    """Of the files that a release writes."""
    parts = []
    for name in (*PLACES, CHANGELOG):
        old, new = ((root / name).read_text().splitlines(True) for root in (before, after))
        parts += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=0)
    gone = {path.name for path in (before / FRAGMENTS).iterdir()}
    gone -= {path.name for path in (after / FRAGMENTS).iterdir()}
    return "".join([*parts, *(f"removed: {FRAGMENTS}/{name}\n" for name in sorted(gone))])


def copied(root: Path, target: Path) -> Path:
    """What a release reads and writes, in a repository of its own: towncrier uses git."""
    for name in (*PLACES, CHANGELOG, TEMPLATE, "pyproject.toml"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target / name)
    shutil.copytree(root / FRAGMENTS, target / FRAGMENTS)
    return target


@click.command()
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Show the difference, write nothing.")
@click.option("--notes", "only_notes", is_flag=True, help="Print the notes of a release.")
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, hidden=True)
def main(version: str, dry_run: bool, only_notes: bool, root: Path) -> None:
    """Write the version and the release notes."""
    if only_notes:
        click.echo(notes(root, version), nl=False)
        return
    check(root, version)
    if not dry_run:
        write_versions(root, version)
        write_notes(root, version)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(root, Path(folder))
        write_versions(copy, version)
        write_notes(copy, version)
        click.echo(differences(root, copy), nl=False)


if __name__ == "__main__":
    main()
