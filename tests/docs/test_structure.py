"""The rules of CONTRIBUTING on names and sizes of files."""

from __future__ import annotations

import ast
import re
import statistics
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_FILE, MEDIAN_FILE = 400, 200


def modules() -> list[Path]:
    """Every Python file of the two packages."""
    found = [
        path for name in ("jupyter_gpushare", "node_agent") for path in (ROOT / name).rglob("*.py")
    ]
    return [
        path for path in found if "labextension" not in path.parts and path.name != "_version.py"
    ]


def test_no_two_classes_share_a_name() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(path.relative_to(ROOT)))
    for path in (ROOT / "labextension" / "src").rglob("*.ts*"):
        for name in re.findall(r"^(?:export )?class (\w+)", path.read_text(), re.MULTILINE):
            defined[name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules()
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}
    assert statistics.median(lengths.values()) <= MEDIAN_FILE


def test_no_test_file_is_longer_either() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {str(name): length for name, length in lengths.items() if length > LONGEST_FILE} == {}
