"""Small clusters and the expected decisions: every rule of docs/explanation/scheduling.md.

The cases are written from the rules, not from the engine; `rule` names a heading of that page.
`scenarios/*.yaml` hold lists of them. Shorthand (anything may also
be written in full, as in a scenario file):

    nodes:     "n0 8 rack=r1"              a node with 8 GPUs of 80 GiB and a label
    projects:  "A quota=4 weight=2 in=d"   a project; departments alike
    workloads: "a: A 1 @n0/g0,g1 p=75"     one pod of 1 GPU that runs; without @ it is pending;
                                           `1x3` is three pods named a-0 to a-2
    expect:    one mapping per cycle; `bound: a b-1` are all pods in that state (`a` is a-0 when it
               has one pod)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.scheduler.config.documents import Document
from jupyter_gpushare.scheduler.simulation.scenario import build, run, settle, step
from jupyter_gpushare.scheduler.simulation.scenario_file import parse_scenario, scenario_of
from jupyter_gpushare.scheduler.simulation.snapshot import snapshot

HERE = Path(__file__).parent / "scenarios"
READER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if available
STATES = ("bound", "running", "pipelined", "releasing", "pending", "failed", "succeeded")


def cases() -> Iterator[Any]:
    for file in sorted(HERE.glob("*.yaml")):
        for case in yaml.load(file.read_text(encoding="utf-8"), READER):
            yield pytest.param(case, id=f"{file.stem}: {case['case']}")


@pytest.mark.parametrize("case", list(cases()))
def test_scenario(case: dict[str, Any]) -> None:
    world = written_out(case)
    result = run(scenario_of(Document(case["case"], world), case["case"]))

    expected = case["expect"] if isinstance(case["expect"], list) else [case["expect"]]
    assert len(result["cycles"]) == len(expected)
    for i, (outcome, wanted) in enumerate(zip(result["cycles"], expected, strict=True), start=1):
        found = {key: seen(outcome, key, value) for key, value in wanted.items()}
        assert found == {
            key: named(value) if key in STATES else value for key, value in wanted.items()
        }, f"cycle {i} (rule {case['rule']})"


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "at once"])
@pytest.mark.parametrize("case", list(cases()))
def test_a_snapshot_is_decided_like_the_cluster_it_was_taken_of(
    case: dict[str, Any], settled: bool
) -> None:
    """Dump, parse, run: the next cycle decides the same, pod by pod and GPU by GPU, also through
    JSON text.
    """
    scenario = scenario_of(Document(case["case"], written_out(case)), case["case"])
    cluster = build(scenario)
    step(cluster, scenario, 0)
    if settled:
        settle(cluster)
    text = json.dumps(snapshot(cluster, scenario.interval))

    copy = build(parse_scenario(text))
    again, original = cycle(copy, 0), cycle(cluster, scenario.interval)

    assert json.loads(json.dumps(snapshot(copy, 0))) == json.loads(
        json.dumps(snapshot(cluster, scenario.interval))
    )
    assert (again.binds, again.pipelines, again.evictions) == (
        original.binds,
        original.pipelines,
        original.evictions,
    )
    assert dict(again.reasons) == dict(original.reasons)
    assert again.queues == original.queues


def seen(result: dict[str, Any], key: str, wanted: Any) -> Any:
    """The part of the result that the expectation mentions."""
    pods = {name_of(pod, result): at for pod, at in result["pods"].items()}
    if key in STATES:
        return sorted(pod for pod, at in pods.items() if at["state"] == key)
    if key == "at":
        return {pod: pods[pod]["node"] for pod in wanted}
    if key == "gpus":
        return {pod: [int(gpu.rpartition("/")[2]) for gpu in pods[pod]["gpus"]] for pod in wanted}
    if key == "charged":
        return {pod: pods[pod]["gpu"] for pod in wanted}
    if key == "fair":
        return {
            queue: next(
                pool[queue]["gpu"] for pool in result["fair_share"].values() if queue in pool
            )
            for queue in wanted
        }
    if key == "reason":
        return {w: (result["workloads"][w]["reason"] or {}).get("code") for w in wanted}
    if key == "numbers":
        return {w: _numbers(result["workloads"][w]["reason"], wanted[w]) for w in wanted}
    if key == "state":
        return {w: result["workloads"][w]["state"] for w in wanted}
    if key in ("idle", "leaving"):
        return {
            node: result["nodes"][node]["idle_gpus" if key == "idle" else "releasing_gpus"]
            for node in wanted
        }
    if key == "nodes_of":
        return {
            state: sorted(at["node"] for at in pods.values() if at["state"] == state)
            for state in wanted
        }
    return {
        **result["counts"],
        **{state: sum(at["state"] == state for at in pods.values()) for state in STATES},
    }[key.removesuffix("_count")]


def _numbers(reason: dict[str, Any], wanted: dict[str, float]) -> dict[str, float]:
    return {name: reason["numbers"][name] for name in wanted}


def name_of(pod: str, result: dict[str, Any]) -> str:
    """`a` for the only pod of a, else `a-1`."""
    workload, _, name = pod.partition("/")
    return (
        workload if sum(other.startswith(f"{workload}/") for other in result["pods"]) == 1 else name
    )


def named(value: str | None) -> list[str]:
    return sorted((value or "").split())


# -- shorthand


def written_out(case: dict[str, Any]) -> dict[str, Any]:
    world = {key: value for key, value in case.items() if key not in ("case", "rule", "expect")}
    if isinstance(case["expect"], list):
        world.setdefault("cycles", len(case["expect"]))
    for key, long in (
        ("nodes", node),
        ("departments", department),
        ("projects", project),
        ("workloads", workload),
    ):
        if key in world:
            world[key] = [long(entry) if isinstance(entry, str) else entry for entry in world[key]]
    return world


def node(text: str) -> dict[str, Any]:
    name, gpus, *rest = text.split()
    options = dict(word.split("=") for word in rest)
    result: dict[str, Any] = {
        "name": name,
        "gpus": int(gpus),
        "gpu_memory": options.pop("gpu_memory", "80GiB"),
        "cpu": 64,
        "memory": "512GiB",
    }
    for key in ("pool", "cpu", "memory"):
        if key in options:
            result[key] = options.pop(key)
    if "max_pods" in options:
        result["max_pods"] = int(options.pop("max_pods"))
    return {**result, "ready": options.pop("ready", "true") == "true", "labels": options}


def department(text: str) -> dict[str, Any]:
    name, *rest = text.split()
    options = dict(word.split("=") for word in rest)
    keys = {"quota": "quota", "limit": "limit", "weight": "over_quota_weight"}
    result: dict[str, Any] = {
        "name": name,
        "gpu": {long: options[short] for short, long in keys.items() if short in options},
    }
    for key in ("rank",):
        if key in options:
            result[key] = int(options[key])
    result.update(
        {
            key: options[key]
            for key in ("created", "reclaim_min_runtime", "preempt_min_runtime", "parent")
            if key in options
        }
    )
    if "in" in options:
        result["department"] = options["in"]
    return result


project = department


def workload(text: str) -> dict[str, Any]:
    name, _, rest = text.partition(":")
    project_name, ask, *words = rest.split()
    size, _, count = ask.partition("x")
    options = dict(word.split("=") for word in words if "=" in word)
    placed = next((word[1:] for word in words if word.startswith("@")), None)
    pods = []
    for i in range(int(count or 1)):
        pod: dict[str, Any] = {"name": f"{name}-{i}"}
        pod["gpu" if not size.endswith("GiB") else "gpu_memory"] = (
            float(size) if not size.endswith("GiB") else size
        )
        if "devices" in options:
            pod["gpu_devices"] = int(options["devices"])
        if "cpu" in options:
            pod["cpu"] = options["cpu"]
        if placed is not None:
            where, _, gpus = placed.split(";")[i if ";" in placed else 0].partition("/")
            if where:
                pod.update(
                    node=where,
                    state="releasing" if "releasing" in words else "running",
                    gpus=gpus.split(",") if gpus else [],
                )
        pods.append(pod)
    result: dict[str, Any] = {
        "name": name,
        "project": project_name,
        "priority": int(options.get("p", 50)),
        "pods": pods,
    }
    result.update(
        {key: options[key] for key in ("created", "started", "stale_for") if key in options}
    )
    if "min" in options:
        result["min_pods"] = int(options["min"])
    if "pools" in options:
        result["node_pools"] = options["pools"].split(",")
    return result
