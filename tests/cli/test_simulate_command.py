"""`jupyter gpushare simulate`: the shape of its answer, broken files beside good ones, tables and
pictures.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.simulation.scenario import run
from jupyter_gpushare.scheduler.simulation.scenario_file import ScenarioErrors, parse_scenario
from tests.cli.command import gpushare

TWO = """
name: two
cycles: 2
nodes: [{name: n0, gpus: 2, gpu_memory: 80GiB}]
projects: [{name: p, gpu: {quota: 2}}]
workloads:
  - {name: w, project: p, pods: [{name: w-0, gpu: 0.5}]}
  - {name: x, project: p, pods: [{name: x-0, gpu: 4}]}
"""


def test_the_answer_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)

    result = gpushare("simulate", file)

    answer = json.loads(result.stdout)
    first, second = answer["cycles"]
    assert (result.status, answer["name"]) == (0, "two")
    assert first["fair_share"] == {
        "default": {
            "default": {"gpu": 2.0, "cpu": 0.0, "memory": 0},
            "p": {"gpu": 2.0, "cpu": 0.0, "memory": 0},
        }
    }
    assert first["pods"]["w/w-0"] == {
        "state": "bound",
        "node": "n0",
        "gpus": ["n0/0"],
        "gpu": 0.5,
        "reason": None,
    }
    assert second["pods"]["w/w-0"]["state"] == "running"
    assert first["workloads"]["x"]["state"] == "pending"
    assert set(first["workloads"]["x"]["reason"]) == {"code", "message", "numbers", "helps"}
    assert first["nodes"] == {"n0": {"idle_gpus": 1, "releasing_gpus": 0}}
    assert first["counts"] == {"binds": 1, "evictions": 0, "pipelines": 0}
    assert first["seconds"] >= 0


def test_a_broken_scenario_gives_its_error_and_the_others_still_run(tmp_path: Path) -> None:
    good, bad, worse = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "worse.yaml"
    good.write_text(TWO)
    bad.write_text("name: my bad one\nnodes: [{name: n0, gpus: -1}]\n")
    worse.write_text("name: [")

    result = gpushare("simulate", bad, good, worse, tmp_path / "absent.yaml", good)

    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 2
    assert [answer["name"] for answer in answers] == ["my bad one", "two", "worse", "absent", "two"]
    assert ["error" in answer for answer in answers] == [True, False, True, True, False]
    assert answers[0]["error"]["field"] == "nodes[0].gpus"
    assert set(answers[0]["error"]) >= {"code", "message", "field"}
    assert len(result.stderr.splitlines()) == 3
    assert (
        result.stderr.splitlines()[0]
        == f"error: must be at least 0, got -1 ({bad}:2: nodes[0].gpus)"
    )


def test_tables_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "two.yaml", tmp_path / "two.png"
    file.write_text(TWO)
    result = gpushare("simulate", "--format", "table", "--plot", picture, file)
    assert result.status == 0
    assert "== two: cycle 1 of 2 (1 binds, 0 evictions, 0 pipelines)" in result.stdout
    assert ["w/w-0", "bound", "n0", "n0/0"] in [line.split() for line in result.stdout.splitlines()]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    result = gpushare("simulate", "--plot", tmp_path / "nowhere" / "x.png", file)
    assert result.status == 1
    assert result.stderr.startswith("error: the plot cannot be written")


PROBLEMS = {
    "a negative request": (
        "workloads: [{name: w, project: p, pods: [{name: a, gpu: -1}]}]",
        "workloads[0].pods[0].gpu",
        "negative",
    ),
    "nan": (
        "workloads: [{name: w, project: p, pods: [{name: a, gpu: .nan}]}]",
        "workloads[0].pods[0].gpu",
        "number of GPUs",
    ),
    "one and a half": (
        "workloads: [{name: w, project: p, pods: [{name: a, gpu: 1.5}]}]",
        "workloads[0].pods[0]",
        "must be a whole number",
    ),
    "GPUs and memory": (
        "workloads: [{name: w, project: p, pods: [{name: a, gpu: 1, gpu_memory: 1GiB}]}]",
        "workloads[0].pods[0]",
        "exclude each other",
    ),
    "an unknown node": (
        "workloads: [{name: w, project: p, pods: [{name: a, state: running, node: n}]}]",
        "workloads[0].pods[0].node",
        "no node 'n'",
    ),
    "running nowhere": (
        "workloads: [{name: w, project: p, pods: [{name: a, state: running}]}]",
        "workloads[0].pods[0]",
        "has no node",
    ),
    "an unknown state": (
        "workloads: [{name: w, project: p, pods: [{name: a, state: dead}]}]",
        "workloads[0].pods[0].state",
        "'pending'",
    ),
    "no pods": (
        "workloads: [{name: w, project: p, pods: []}]",
        "workloads[0].pods",
        "at least one pod",
    ),
    "a pod twice": (
        "workloads: [{name: w, project: p, pods: [{name: a}, {name: a}]}]",
        "workloads[0].pods[1].name",
        "used twice",
    ),
    "a workload twice": (
        (
            "workloads: [{name: w, project: p, pods: [{name: a}]},"
            " {name: w, project: p, pods: [{name: a}]}]"
        ),
        "workloads[1].name",
        "used twice",
    ),
    "a node twice": ("nodes: [{name: n}, {name: n}]", "nodes[1].name", "used twice"),
    "a node of no pool": ("nodes: [{name: n, pool: x}]", "nodes[0].pool", "no node pool 'x'"),
    "an unknown class": (
        "workloads: [{name: w, project: p, priority: trian, pods: [{name: a}]}]",
        "workloads[0].priority",
        "mean 'train'?",
    ),
    "an unknown group": (
        "workloads: [{name: w, project: p, groups: [{name: g}], pods: [{name: a, group: h}]}]",
        "workloads[0].pods[0].group",
        "'h'",
    ),
    "a group without being asked": (
        "workloads: [{name: w, project: p, pods: [{name: a, group: h}]}]",
        "workloads[0].pods[0].group",
        "'h'",
    ),
    "a minimum of an inner group": (
        (
            "workloads: [{name: w, project: p,"
            " groups: [{name: g, min_pods: 1, groups: [{name: h}]}],"
            " pods: [{name: a, group: h}]}]"
        ),
        "workloads[0].groups[0]",
        "no min_pods",
    ),
    "more GPUs than there are": (
        (
            "nodes: [{name: n, gpus: 1}]\n"
            "workloads: [{name: w, project: p, pods: [{name: a, gpu: 2, state: running, node: n}]}]"
        ),
        "workloads[0].pods[0].node",
        "uses 2 GPUs",
    ),
    "more names than GPUs": (
        """
nodes: [{name: n, gpus: 1}]
workloads:
  - name: w
    project: p
    pods:
      - {name: a, gpu: 0.5, state: running, node: n, gpus: [x]}
      - {name: b, gpu: 0.5, state: running, node: n, gpus: [y]}
""",
        "workloads[0].pods[1].gpus",
        "names more GPUs",
    ),
    "names that do not match the request": (
        (
            "nodes: [{name: n, gpus: 2}]\n"
            "workloads: [{name: w, project: p, pods:"
            " [{name: a, gpu: 2, state: running, node: n, gpus: [x]}]}]"
        ),
        "workloads[0].pods[0]",
        "names 1 GPUs and uses 2",
    ),
    "an unknown action": ("actions: [allocate, pray]", "actions[1]", "must be"),
    "no cycle": ("cycles: 0", "cycles", "at least 1"),
    "a cycle of departments": (
        "departments: [{name: a, parent: b}, {name: b, parent: a}]",
        "departments[0].parent",
        "form a cycle",
    ),
}


@pytest.mark.parametrize(("text", "field", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem(text: str, field: str, message: str) -> None:
    with pytest.raises(ScenarioErrors) as raised:
        parse_scenario(text, "s.yaml")
    assert [problem.field for problem in raised.value.problems] == [field]
    assert message in raised.value.problems[0].message


def test_an_empty_world_is_a_scenario() -> None:
    """Every list may be absent."""
    assert run(parse_scenario("name: nothing"))["cycles"][0]["pods"] == {}


def test_any_names_of_gpus_mean_the_same_device_where_they_are_equal() -> None:
    result = run(
        parse_scenario("""
nodes: [{name: n, gpus: 3, gpu_memory: 80GiB}]
projects: [{name: p, gpu: {quota: 3}}]
workloads:
  - name: w
    project: p
    pods:
      - {name: a, gpu: 0.5, state: running, node: n, gpus: [GPU-left]}
      - {name: b, gpu: 0.5, state: running, node: n, gpus: [GPU-left]}
      - {name: c, gpu: 0.5, state: running, node: n}
""")
    )
    pods = result["cycles"][0]["pods"]
    assert pods["w/a"]["gpus"] == pods["w/b"]["gpus"] != pods["w/c"]["gpus"]
    assert result["cycles"][0]["nodes"]["n"]["idle_gpus"] == 1


def test_projects_beside_the_departments() -> None:
    """`department: null` is the top level: p and d divide the cluster, q divides what d got."""
    result = run(
        parse_scenario("""
nodes: [{name: n, gpus: 8}]
departments: [{name: d}]
projects: [{name: p, department: null}, {name: q, department: d}]
workloads:
  - {name: v, project: p, min_pods: 1, pods: [{name: v-0, gpu: 8}]}
  - {name: w, project: q, min_pods: 1, pods: [{name: w-0, gpu: 8}]}
""")
    )
    assert {
        queue: share["gpu"] for queue, share in result["cycles"][0]["fair_share"]["default"].items()
    } == {"d": 4, "p": 4, "q": 4}
