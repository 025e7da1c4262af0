"""Reads YAML and JSON files: the value, and the line of every part of it.

Built on the parser's events instead of its loader, for four reasons: line numbers by path;
duplicate keys are refused; words like `no` and `1:30` stay text (YAML 1.2); and a hostile file
(deep nesting, multiplying aliases) gives an error with a line instead of using up the memory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["Document", "FileErrors", "Place", "FileError", "dotted", "parse", "read"]

Step = str | int
Place = tuple[Step, ...]
"""Keys and indexes from the top of the file to a part of it."""

MOST_DEPTH: Final = 64
MOST_NODES: Final = 5_000_000
"""Parts of one file; aliases count each time they are used. A snapshot of 100 000 pods has about
two million.
"""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT: Final = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,300})?")
_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), math.inf),
    "-.inf": -math.inf,
}
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class FileError:
    """One error: its place, the dotted name of the field ("": the whole file), and a message."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        # always four parts, so that editors and scripts can parse the line
        return f"{self.file}:{self.line}: {self.field or 'file'}: {self.message}"


class FileErrors(InvalidInput):
    """Raised when a file cannot be used. `problems` has all errors, ordered by line."""

    code = "invalid-file"

    def __init__(self, problems: Iterable[FileError]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.field, p.message)))
        first = self.problems[0]
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(f"{first.message}{more}", field=first.field or None)

    @property
    def where(self) -> str:
        """The first problem's `file:line: field`."""
        first = self.problems[0]
        return (
            f"{first.file}:{first.line}: {first.field}"
            if first.field
            else f"{first.file}:{first.line}"
        )


@dataclass(slots=True)
class Document:
    """A parsed file. `value` consists of dicts, lists, text, numbers, booleans and None."""

    source: str
    value: Any
    _text: str = field(repr=False, default="")
    _lines: dict[Place, int] | None = field(repr=False, default=None)

    def line(self, place: Place) -> int:
        """The line of a part (of an entry of a mapping: of its key), or of the nearest part that
        contains it.
        """
        if self._lines is None:
            self._lines = _lines_of_json(self._text)
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)

    def problem(self, place: Place, message: str) -> FileError:
        """An error at this part."""
        return FileError(self.source, self.line(place), dotted(place), message)


def dotted(place: Sequence[Step]) -> str:
    """A place as text: `projects[0].pools.a100.gpu.quota`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def read(path: str | Path) -> Document:
    """Reads a file. Raises FileErrors if it is missing, not text, or not YAML or JSON."""
    source = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileErrors(
            [FileError(source, 1, "", f"is not UTF-8 text (byte {error.start})")]
        ) from None
    except (OSError, ValueError) as error:
        raise FileErrors(
            [
                FileError(
                    source, 1, "", f"cannot be read: {getattr(error, 'strerror', None) or error}"
                )
            ]
        ) from None
    return parse(text, source)


def parse(text: str, source: str) -> Document:
    """Parses text. JSON, whose parser is much faster, is tried first if the text looks like it."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return Document(source, json.loads(text, object_pairs_hook=_unique), text)
        except (ValueError, RecursionError):
            text = text.replace(
                "\t", " "
            )  # the YAML parser finds the line of the error, but refuses tabs
    builder = _Builder(source)
    return Document(source, builder.build(text), _lines=builder.lines)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object. For a duplicate key the YAML parser reads the text, which knows the line."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is given twice")
    return result


def _lines_of_json(text: str) -> dict[Place, int]:
    """The lines of valid JSON text; needed only for errors in its content."""
    builder = _Builder("")
    try:
        builder.build(text.replace("\t", " "))
    except FileErrors:
        return {}
    return builder.lines


@dataclass(slots=True)
class _Frame:
    """A mapping or sequence being read. `key` is the key whose value is next."""

    value: dict[str, Any] | list[Any]
    place: Place
    anchor: str | None
    nodes_before: int
    key: str | None = None
    expects_key: bool = True
    merges: list[Any] = field(default_factory=list)


_MERGE: Final = "<<"


class _Builder:
    """Builds the value from the parser's events, with an explicit stack."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Place, int] = {}
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self._result: Any = None

    def build(self, text: str) -> Any:
        """The value of the only document; None: the text is empty."""
        documents = 0
        for event in self._events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._failure(event, "has a second document; expected one")
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._close(event)
        return self._result

    def _events(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or error.context or "cannot be read"
            raise FileErrors(
                [
                    FileError(
                        self.source,
                        mark.line + 1 if mark else 1,
                        "",
                        f"is not YAML or JSON: {problem}",
                    )
                ]
            ) from None
        except (yaml.YAMLError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else "cannot be read"
            raise FileErrors(
                [FileError(self.source, 1, "", f"is not YAML or JSON: {said}")]
            ) from None

    def _failure(self, event: Any, message: str) -> FileErrors:
        place = self._place()
        return FileErrors(
            [FileError(self.source, event.start_mark.line + 1, dotted(place), message)]
        )

    def _place(self) -> Place:
        """The place of the next value."""
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            return (*top.place, len(top.value))
        return top.place if top.key is None else (*top.place, top.key)

    def _count(self, event: Any, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise self._failure(
                event, f"has more than {MOST_NODES} parts (aliases count each time they are used)"
            )

    def _open(self, event: Any) -> None:
        if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
            raise self._failure(event, f"has a type that is not supported: {event.tag}")
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].expects_key:
            raise self._failure(event, "has a key that is not text")
        if len(self._stack) >= MOST_DEPTH:
            raise self._failure(event, f"is nested deeper than {MOST_DEPTH} levels")
        self._count(event)
        place = self._place()
        self.lines.setdefault(place, event.start_mark.line + 1)
        empty: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Frame(empty, place, event.anchor, self._nodes))

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if isinstance(frame.value, dict):
            for merged in frame.merges:
                frame.value.update(
                    {key: value for key, value in merged.items() if key not in frame.value}
                )
        self._keep(frame.anchor, frame.value, self._nodes - frame.nodes_before + 1)
        self._put(event, frame.value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise self._failure(
                event, f"uses the anchor {event.anchor!r}, which is not defined before"
            )
        value, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].expects_key:
            self._key(event, value)
        else:
            self.lines.setdefault(self._place(), event.start_mark.line + 1)
            self._put(event, value)

    def _scalar(self, event: Any) -> None:
        self._count(event)
        value = self._resolved(event)
        self._keep(event.anchor, value, 1)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.expects_key:
            self._key(event, event.value if value is not None else "null")
            return
        self.lines.setdefault(self._place(), event.start_mark.line + 1)
        self._put(event, value)

    def _key(self, event: Any, key: object) -> None:
        top = self._stack[-1]
        if not isinstance(key, str) or not isinstance(top.value, dict):
            raise self._failure(event, "has a key that is not text")
        if key in top.value:
            top.key = key
            raise self._failure(event, "is set twice")
        top.key, top.expects_key = key, False
        self.lines[(*top.place, key)] = event.start_mark.line + 1

    def _put(self, event: Any, value: Any) -> None:
        if not self._stack:
            self._result = value
            return
        top = self._stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
            return
        if top.key == _MERGE:
            self._merge(event, top, value)
        elif top.key is not None:
            top.value[top.key] = value
        top.key, top.expects_key = None, True

    def _merge(self, event: Any, top: _Frame, value: Any) -> None:
        merged = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in merged):
            raise self._failure(event, "merges something that is not a mapping")
        top.merges.extend(merged)

    def _keep(self, anchor: str | None, value: Any, nodes: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, nodes

    def _resolved(self, event: Any) -> object:
        """A scalar by the core schema of YAML 1.2: text if quoted or tagged so, else a word, a
        number, or text.
        """
        if event.tag not in (None, "!") and event.tag.removeprefix(_TAG) not in (
            "str",
            "int",
            "float",
            "bool",
            "null",
        ):
            raise self._failure(event, f"has a type that is not supported: {event.tag}")
        plain, text = event.implicit[0] or event.tag not in (None, "!", _TAG + "str"), event.value
        if not plain:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text
