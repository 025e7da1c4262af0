"""Finds words that the project does not use: `python -m tests.docs.wording [PATH …]`.

The list is `banned_words.txt` beside this file. Prints one line per finding and exits with 1 when
there is any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Finding", "findings"]

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("banned_words.txt")
SUFFIXES = {".py", ".md", ".ts", ".tsx", ".mjs", ".css", ".yaml", ".yml", ".toml", ".json", ".c"}
SKIPPED = {"labextension/yarn.lock", "tests/docs/wording.py", "tests/docs/test_wording.py"}


class Finding(NamedTuple):
    """A banned word: where it is, the word, and what to write instead."""

    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: write {self.instead}"


def rules() -> tuple[re.Pattern[str], list[str]]:
    """One pattern with a group per line of the list, and the replacement for each group."""
    lines = [line for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    pairs = [line.split("\t", 1) for line in lines]
    groups = [f"({re.sub(r'[(](?![?])', '(?:', word)})" for word, _ in pairs]
    return re.compile(rf"\b(?:{'|'.join(groups)})\b", re.IGNORECASE), [text for _, text in pairs]


def findings(paths: list[str]) -> Iterator[Finding]:
    """Every banned word below these paths (all tracked files without any), in order."""
    pattern, instead = rules()
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix not in SUFFIXES or name in SKIPPED or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for match in pattern.finditer(line.replace("_", " ")):
                assert match.lastindex is not None
                yield Finding(name, number, match[0], instead[match.lastindex - 1])


if __name__ == "__main__":
    found = list(findings(sys.argv[1:]))
    sys.stdout.writelines(f"{one}\n" for one in found)
    sys.exit(bool(found))
