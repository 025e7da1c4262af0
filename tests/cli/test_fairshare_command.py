"""`jupyter gpushare fairshare`, from a file to the printed object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.scheduler.config.documents import FileErrors, parse
from jupyter_gpushare.scheduler.simulation.fairshare_file import fair_shares_of
from tests.cli.command import gpushare


def divided(text: str) -> dict[str, Any]:
    return fair_shares_of(parse(text, "f"))


H1 = """
total: {gpu: 16}
queues:
  - {name: d1, gpu: {quota: 6, over_quota_weight: 2}}
  - {name: d2, gpu: {quota: 4, over_quota_weight: 1}}
  - {name: p1, parent: d1, gpu: {quota: 2, requested: 10}}
  - {name: p2, parent: d1, gpu: {quota: 4, requested: 10}}
  - {name: p3, parent: d2, gpu: {quota: 4, over_quota_weight: 3, requested: 4}}
  - {name: p4, parent: d2, gpu: {quota: 2, requested: 10}}
"""


def test_a_queue_with_children_wants_what_they_want() -> None:
    assert {q: share["gpu"] for q, share in divided(H1)["fair_share"].items()} == {
        "d1": 10,
        "d2": 6,
        "p1": 4,
        "p2": 6,
        "p3": 4,
        "p4": 2,
    }


def test_every_resource_has_its_own_unit() -> None:
    """GPUs whole, milli-cores, MiB: 1 GPU, 1 core and 1 MiB among three equals."""
    result = divided("""
total: {gpu: 1, cpu: 1, memory: 1MiB}
queues:
  - name: a
    gpu: {requested: 1}
    cpu: {quota: 0, requested: 1}
    memory: {quota: 0, requested: 1MiB}
  - name: b
    gpu: {requested: 1}
    cpu: {quota: 0, requested: 1}
    memory: {quota: 0, requested: 1MiB}
  - name: c
    gpu: {requested: 1}
    cpu: {quota: 0, requested: 1}
    memory: {quota: 0, requested: 1MiB}
""")
    assert result["fair_share"]["a"] == {"gpu": 1.0, "cpu": 0.334, "memory": 1}
    assert result["fair_share"]["c"] == {"gpu": 0.0, "cpu": 0.333, "memory": 0}
    assert result["unallocated"] == {"gpu": 0.0, "cpu": 0.0, "memory": 0}


def test_cpu_that_is_not_managed_takes_its_want() -> None:
    assert (
        divided("{total: {cpu: 8}, queues: [{name: a, cpu: {requested: 6}}]}")["fair_share"]["a"][
            "cpu"
        ]
        == 6.0
    )


def test_fractions_finer_than_milli_are_exact() -> None:
    result = divided(
        "{total: {gpu: 2}, queues: [{name: a, gpu: {requested: 0.33335}},"
        " {name: b, gpu: {requested: 5}}]}"
    )
    assert result["fair_share"]["a"]["gpu"] == 0.33335
    assert result["fair_share"]["b"]["gpu"] == 1.66665
    assert result["unallocated"]["gpu"] == 0.0


def test_unallocated_is_never_negative_and_k_may_be_0() -> None:
    result = divided("""
name: n
k: 0
total: {gpu: 8}
queues:
  - {name: a, gpu: {quota: 6, requested: 6, usage: 0.9}}
  - {name: b, gpu: {quota: 6, requested: 6}}
""")
    assert result["name"] == "n"
    assert result["unallocated"]["gpu"] == 0.0


def test_usage_moves_surplus() -> None:
    queues = (
        "[{name: a, gpu: {requested: 10, usage: 0.6}}, {name: b, gpu: {requested: 10, usage: 0.1}}]"
    )
    for k, expected in {"": [3, 7], "k: 1.0,": [3, 7], "k: 0,": [5, 5], "k: -1,": None}.items():
        text = f"{{{k} total: {{gpu: 10}}, queues: {queues}}}"
        if expected is None:
            with pytest.raises(FileErrors, match="negative"):
                divided(text)
        else:
            assert [share["gpu"] for share in divided(text)["fair_share"].values()] == expected


PROBLEMS = {
    "a cycle": (
        "{total: {gpu: 1}, queues: [{name: a, parent: b}, {name: b, parent: a}]}",
        "queues[0].parent",
        "a -> b -> a form a cycle",
    ),
    "a parent of nowhere": (
        "{total: {gpu: 1}, queues: [{name: aa, parent: bb}, {name: bc}]}",
        "queues[0].parent",
        "no queue 'bb'",
    ),
    "a name twice": (
        "{total: {gpu: 1}, queues: [{name: a}, {name: a}]}",
        "queues[1].name",
        "used twice",
    ),
    "a negative total": ("{total: {gpu: -1}, queues: []}", "total.gpu", "negative"),
    "nan": ("{total: {gpu: .nan}, queues: []}", "total.gpu", "number of GPUs"),
    "no total": ("{queues: []}", "total", "is missing"),
    "a typo": (
        "{total: {gpu: 1}, queues: [{name: a, gpu: {requestd: 1}}]}",
        "queues[0].gpu.requestd",
        "did you mean 'requested'?",
    ),
    "unlimited want": (
        "{total: {gpu: 1}, queues: [{name: a, gpu: {requested: unlimited}}]}",
        "queues[0].gpu.requested",
        "number of GPUs",
    ),
    "a negative weight": (
        "{total: {gpu: 1}, queues: [{name: a, gpu: {over_quota_weight: -1}}]}",
        "queues[0].gpu.over_quota_weight",
        "negative",
    ),
}


@pytest.mark.parametrize(("text", "field", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem(text: str, field: str, message: str) -> None:
    with pytest.raises(FileErrors) as raised:
        divided(text)
    assert [p.field for p in raised.value.problems] == [field]
    assert message in raised.value.problems[0].message


def test_a_broken_file_gives_its_error_and_the_others_are_still_divided(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(H1)
    bad.write_text("total: {gpu: x}\nqueues: []\n")

    result = gpushare("fairshare", good, bad, tmp_path / "absent", good)

    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 2
    assert [sorted(each) for each in objects] == [
        ["fair_share", "unallocated"],
        ["error", "name"],
        ["error", "name"],
        ["fair_share", "unallocated"],
    ]
    assert objects[1]["error"]["field"] == "total.gpu"
    assert (
        result.stderr.splitlines()[0]
        == f"error: must be a number of GPUs such as 0.5 or 2, got 'x' ({bad}:1: total.gpu)"
    )


def test_table(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(H1)
    result = gpushare("fairshare", "--format", "table", file)
    assert result.status == 0
    assert ["p2", "6", "0", "0"] in [line.split() for line in result.stdout.splitlines()]
