"""Reading YAML and JSON with lines, and refusing what is broken or hostile."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.config.documents import FileErrors, dotted, parse, read

VALUES = {
    "a mapping": ("a: 1\nb: [x, 2.5, true, null]\n", {"a": 1, "b": ["x", 2.5, True, None]}),
    "words of old YAML stay text": (
        "a: no\nb: on\nc: 1:30\nd: 2024-01-01\n",
        {"a": "no", "b": "on", "c": "1:30", "d": "2024-01-01"},
    ),
    "numbers": ("[0.5, .5, 5., 1e3, -60, +2, 007]", [0.5, 0.5, 5.0, 1000.0, -60, 2, 7]),
    "quoted is text": ("a: '5'\nb: \"null\"\nc: !!str 7\n", {"a": "5", "b": "null", "c": "7"}),
    "number keys are names": ("{5: a}", {"5": "a"}),
    "anchors": ("a: &x {q: 1}\nb: *x\n", {"a": {"q": 1}, "b": {"q": 1}}),
    "merge keys": (
        "a: &x {q: 1, r: 2}\nb: {<<: *x, r: 3}\n",
        {"a": {"q": 1, "r": 2}, "b": {"r": 3, "q": 1}},
    ),
    "JSON with tabs": ('{\n\t"a":\t[1, "\\ud83d\\ude00"]}', {"a": [1, "\N{GRINNING FACE}"]}),
    "flow YAML that is not JSON": ("{a: 1, b: two}", {"a": 1, "b": "two"}),
    "nothing": ("# only a comment\n", None),
}


@pytest.mark.parametrize(("text", "value"), VALUES.values(), ids=VALUES)
def test_value(text: str, value: object) -> None:
    assert parse(text, "f").value == value


def test_nan_is_read_and_left_to_be_refused_by_its_field() -> None:
    assert math.isnan(parse("a: .nan", "f").value["a"])


@pytest.mark.parametrize(
    "text",
    ["a:\n  - b: 1\n    c: 2\n  - b: 3\n", '{"a": [\n{"b": 1,\n"c": 2},\n{"b": 3}]}'],
    ids=["YAML", "JSON"],
)
def test_lines_by_place(text: str) -> None:
    document = parse(text, "f")
    assert [document.line(place) for place in [("a", 0, "b"), ("a", 0, "c"), ("a", 1, "b")]] == [
        2,
        3,
        4,
    ]
    assert document.line(("a", 1, "missing", 7)) == 4


BROKEN = {
    "a key twice": ("a: 1\nb: {c: 1,\n  c: 2}\n", "f:3: b.c: is set twice"),
    "a key twice in JSON": ('{"a": 1,\n"a": 2}', "f:2: a: is set twice"),
    "not YAML": ("a: [1,\nb: }\n", "f:2: file: is not YAML or JSON: .*"),
    "two documents": ("a: 1\n---\nb: 2\n", "f:2: file: has a second document.*"),
    "a Python object": (
        "a: !!python/object:os.system x\n",
        "f:1: a: has a type that is not supported.*",
    ),
    "a mapping as key": ("{a: 1}: 2\n", ".*key that is not text"),
    "an unknown anchor": ("a: *x\n", "f:1: .*anchor.*"),
    "an alias of what is around it": ("a: &x [*x]\n", "f:1: .*anchor.*"),
    "control characters": ("a: \x00", "f:1: file: is not YAML or JSON.*"),
    "deep nesting": ("[" * 50_000, "f:1: .*nested deeper than 64 levels"),
    "deep JSON": ("[" * 50_000 + "]" * 50_000, "f:1: .*nested deeper than 64 levels"),
    "a billion laughs": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n"
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "f:.*more than 5000000 parts.*",
    ),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=BROKEN)
def test_broken(text: str, problem: str) -> None:
    with pytest.raises(FileErrors) as raised:
        parse(text, "f")
    assert re.fullmatch(problem, str(raised.value.problems[0]))


def test_files_that_cannot_be_read_are_problems_too(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"name: caf\xe9")
    for name, said in {"latin": "UTF-8", "absent": "No such file", ".": "directory"}.items():
        with pytest.raises(FileErrors, match=said):
            read(tmp_path / name)


def test_dotted() -> None:
    assert (
        dotted(("projects", 0, "pools", "a100", "gpu", "quota"))
        == "projects[0].pools.a100.gpu.quota"
    )
