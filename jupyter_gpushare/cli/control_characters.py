"""Escapes control characters in text that other users may have chosen (names of notebooks, ids), so
that it cannot forge log lines or control a terminal.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escape_controls"]

_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1, with the escape character of terminals
    "\u2028\u2029"  # line and paragraph separators
    "\u202a-\u202e\u2066-\u2069"  # bidirectional overrides
    "\ud800-\udfff]"  # surrogates, which cannot be written as UTF-8
)


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Escapes control characters as `\n`, `\x1b` and the like, except those in `keep`."""

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return _CONTROLS.sub(escaped, text)
