"""The documentation is true: its links lead somewhere, and every command is in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli import COMMANDS

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in page.parts
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and picture of a page is a file of this repository. Fragments will be
    part of CHANGELOG.md.
    """
    is_fragment = page.parent.name == "changes" and page.name != "README.md"
    folder = ROOT if is_fragment else page.parent
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_heading(name: str) -> None:
    assert f"\n## {name}\n" in (ROOT / "docs/reference/commands.md").read_text()


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text()
    records = sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))
    assert [name for name in records if f"]({name})" not in listed] == []


def test_the_reference_is_fresh() -> None:
    """In an interpreter of its own: click keeps a command's help option from its first call, and
    other tests call commands.
    """
    checked = subprocess.run(
        [sys.executable, ROOT / "docs/render_reference.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def packages() -> list[Path]:
    """Packages whose `__init__` says what each of their modules is for."""
    roots = ("jupyter_gpushare/core", "jupyter_gpushare/scheduler", "node_agent")
    roots += ("jupyter_gpushare/server_extension", "jupyter_gpushare/kernel")
    found = set()
    for root in roots:
        for page in (ROOT / root).rglob("__init__.py"):
            finds_its_modules = "iter_modules(" in page.read_text()
            if "migrations" not in page.parts and not finds_its_modules:
                found.add(page.parent)
    return sorted(found)


@pytest.mark.parametrize("package", packages(), ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_docstring_names_every_module(package: Path) -> None:
    named = set(re.findall(r"\w+", (package / "__init__.py").read_text()))
    there = {
        path.stem
        for path in package.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__"}
    assert sorted(there - named) == []
