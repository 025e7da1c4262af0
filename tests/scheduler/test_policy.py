"""The policy file: what it means, and that every mistake in it is named with its line and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.amounts import UNLIMITED, Amounts
from jupyter_gpushare.core.model.model import NodePool, TimeBased
from jupyter_gpushare.scheduler.policy.policy_file import (
    PolicyErrors,
    default_demo_policy,
    load_policy,
    parse_policy,
    policy_schema,
)

COMPLETE = """\
node_pools:
  - name: default                     # exists always; nodes that match no other pool
  - name: a100
    label: {key: gpu-type, value: A100}
    placement: {gpu: binpack, cpu: binpack}       # or spread
    workloads_per_gpu: 4              # node-level scheduler on (2..5); null: off
    time_based_fairshare: {enabled: true, k: 1.0, window: 7d, half_life: 2d}
    topology: {name: fabric, levels: [block, rack, host]}
departments:
  - name: research
    pools:
      a100:
        gpu: {quota: 4, limit: 8, over_quota_weight: 2}
        cpu: {quota: 64}
        memory: {quota: 512GiB}
        rank: 100
projects:
  - name: vision
    department: research
    members: [alice, "group:vision"]
    node_pools: [a100, default]       # default priority list
    pools: {a100: {gpu: {quota: 2}, rank: 100}}
priority_classes: {train: 50, interactive: 75, build: 100, inference: 125}
defaults: {priority_class: interactive, notice: 30s, agent_grace: 2m}
"""


def test_the_contracts_example_means_what_it_says() -> None:
    loaded = parse_policy(COMPLETE)
    pool = loaded.policy.node_pools[1]
    research, vision = loaded.policy.departments[0], loaded.policy.projects[0]

    assert (pool.label, pool.workloads_per_gpu, pool.topology) == (
        ("gpu-type", "A100"),
        4,
        "fabric",
    )
    assert pool.time_based == TimeBased(1000, 604_800_000, 172_800_000)
    assert loaded.policy.topologies[0].levels == ("block", "rack", "host")
    assert research.pools["a100"].quota == Amounts(4000, 64_000, 524_288)
    assert research.pools["a100"].limit == Amounts(8000, UNLIMITED, UNLIMITED)
    assert research.pools["a100"].weight.gpu == 2000
    assert (vision.department, vision.members, vision.node_pools) == (
        "research",
        ("alice", "group:vision"),
        ("a100", "default"),
    )
    assert (loaded.admin.notice, loaded.admin.agent_grace) == (30_000, 120_000)


def test_what_is_not_said() -> None:
    """Unset GPU quota is 0, limit unlimited, weight 1; CPU and memory are not managed; the pool
    `default` is there.
    """
    loaded = parse_policy("projects: [{name: p, pools: {default: {gpu: {limit: 2}}}}]")
    quota = loaded.policy.projects[0].pools["default"]
    assert quota.quota == Amounts(0, UNLIMITED, UNLIMITED)
    assert quota.limit == Amounts(2000, UNLIMITED, UNLIMITED)
    assert quota.weight.gpu == 1000
    assert loaded.policy.node_pools == (NodePool("default"),)


def test_the_implicit_department_may_be_named() -> None:
    assert (
        parse_policy("projects: [{name: p, department: default}]").policy.projects[0].department
        is None
    )


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_the_demo(gpus: int) -> None:
    loaded = parse_policy(default_demo_policy(gpus, "ada"))
    quotas = {p.name: p.pools["default"].quota.gpu for p in loaded.policy.projects}
    assert quotas == {"vision": gpus * 500, "language": gpus * 500, "course": 0}
    assert loaded.policy.departments[0].pools["default"].quota.gpu == gpus * 1000
    assert all(p.members == ("ada",) for p in loaded.policy.projects)
    assert (loaded.admin.is_admin("ada"), loaded.admin.is_admin("bob")) == (True, False)
    assert (loaded.admin.default_project, loaded.admin.notice) == ("vision", 10_000)
    assert loaded.policy.node_pools[0].workloads_per_gpu == 4


TWO_POOLS_OF_ONE_LABEL = """\
node_pools:
  - {name: a, label: {key: k, value: 1}}
  - {name: b, label: {key: k, value: '1'}}
"""
MISTAKES = {
    "a negative quota": (
        "projects: [{name: p, pools: {default: {gpu: {quota: -1}}}}]",
        "projects[0].pools.default.gpu.quota",
        "negative",
    ),
    "a limit below 0": (
        "projects: [{name: p, pools: {default: {cpu: {limit: -2}}}}]",
        "projects[0].pools.default.cpu.limit",
        "negative",
    ),
    "nan": (
        "projects: [{name: p, pools: {default: {gpu: {quota: .nan}}}}]",
        "projects[0].pools.default.gpu.quota",
        "number of GPUs",
    ),
    "infinity": (
        "projects: [{name: p, pools: {default: {gpu: {quota: .inf}}}}]",
        "projects[0].pools.default.gpu.quota",
        "number of GPUs",
    ),
    "a bad size": (
        "projects: [{name: p, pools: {default: {memory: {quota: 5XB}}}}]",
        "projects[0].pools.default.memory.quota",
        "20GiB",
    ),
    "a typo": (
        "projects: [{name: p, pools: {default: {gpu: {quotta: 1}}}}]",
        "projects[0].pools.default.gpu.quotta",
        "did you mean 'quota'?",
    ),
    "a typo at the top": ("project: []", "project", "did you mean 'projects'?"),
    "a key from nowhere": (
        "projects: [{name: p, xyzzy: 1}]",
        "projects[0].xyzzy",
        "known here: name, department",
    ),
    "no name": ("projects: [{department: null}]", "projects[0].name", "is missing"),
    "an empty name": ("projects: [{name: ''}]", "projects[0].name", "must be a name"),
    "a name used by a department": (
        "departments: [{name: x}]\nprojects: [{name: x}]",
        "projects[0].name",
        "used twice: also by a department or project in line 1",
    ),
    "a pool twice": ("node_pools: [{name: a}, {name: a}]", "node_pools[1].name", "used twice"),
    "the implicit department's name": (
        "projects: [{name: default}]",
        "projects[0].name",
        "is the name of the department of all projects",
    ),
    "an unknown department": (
        "departments: [{name: vision}]\nprojects: [{name: p, department: vison}]",
        "projects[0].department",
        "mean 'vision'?",
    ),
    "a department of itself": (
        "departments: [{name: a, parent: a}]",
        "departments[0].parent",
        "a -> a form a cycle",
    ),
    "a cycle of departments": (
        "departments: [{name: a, parent: b}, {name: b, parent: c}, {name: c, parent: a}]",
        "departments[0].parent",
        "a -> b -> c -> a form a cycle",
    ),
    "an unknown pool": (
        "projects: [{name: p, pools: {a1000: {}}}]\nnode_pools: [{name: a100}]",
        "projects[0].pools.a1000",
        "mean 'a100'?",
    ),
    "an unknown pool in the list": (
        "projects: [{name: p, node_pools: [h100]}]",
        "projects[0].node_pools[0]",
        "no node pool 'h100'",
    ),
    "an unknown topology": (
        "node_pools: [{name: a, topology: fabric}]",
        "node_pools[0].topology",
        "no topology 'fabric'",
    ),
    "an unknown class": (
        "defaults: {priority_class: intractive}",
        "defaults.priority_class",
        "did you mean 'interactive'?",
    ),
    "a member twice": (
        "projects: [{name: p, members: [a, b, a]}]",
        "projects[0].members[2]",
        "listed twice",
    ),
    "a group without a name": (
        "projects: [{name: p, members: [a, 'group:']}]",
        "projects[0].members[1]",
        "must name a group",
    ),
    "an admin group without a name": ("admins: ['group: ']", "admins[0]", "group"),
    "too many on a GPU": (
        "node_pools: [{name: a, workloads_per_gpu: 6}]",
        "node_pools[0].workloads_per_gpu",
        "at most 5",
    ),
    "too few on a GPU": (
        "node_pools: [{name: a, workloads_per_gpu: 1}]",
        "node_pools[0].workloads_per_gpu",
        "at least 2",
    ),
    "half a workload on a GPU": (
        "node_pools: [{name: a, workloads_per_gpu: 2.5}]",
        "node_pools[0].workloads_per_gpu",
        "whole number",
    ),
    "an unknown strategy": (
        "node_pools: [{name: a, placement: {gpu: pack}}]",
        "node_pools[0].placement.gpu",
        "'binpack'",
    ),
    "a label for default": (
        "node_pools: [{name: default, label: {key: a, value: b}}]",
        "node_pools[0].label",
        "cannot have a label",
    ),
    "one label for two pools": (TWO_POOLS_OF_ONE_LABEL, "node_pools[1].label", "'a' has the same"),
    "a notice too short": (
        "defaults: {notice: 1s}",
        "defaults.notice",
        "must be at least 5 s, got '1s'",
    ),
    "a notice too long": (
        "defaults: {notice: 2h}",
        "defaults.notice",
        "must be at most 1 h, got '2h'",
    ),
    "a list that is a mapping": ("projects: {name: p}", "projects", "must be a list"),
    "text for a mapping": ("projects: [p]", "projects[0]", "must be a mapping"),
    "an empty file": ("", "", "is empty"),
    "no mapping at all": ("- 1", "", "must be a mapping"),
}


@pytest.mark.parametrize(("text", "field", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistake(text: str, field: str, message: str) -> None:
    with pytest.raises(PolicyErrors) as raised:
        parse_policy(text, "p.yaml")
    assert [(p.file, p.field) for p in raised.value.problems] == [("p.yaml", field)]
    assert message in raised.value.problems[0].message


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "gpushare.yaml"
    file.write_text("""\
departments:
  - name: d
projects:
  - name: p
    department: e
    pools:
      default: {gpu: {quota: -1}}
  - name: p
    members: [a, a]
""")
    with pytest.raises(PolicyErrors) as raised:
        load_policy(file)
    assert [str(p).removeprefix(f"{file}:").split(": ")[:2] for p in raised.value.problems] == [
        ["5", "projects[0].department"],
        ["7", "projects[0].pools.default.gpu.quota"],
        ["8", "projects[1].name"],
        ["9", "projects[1].members[1]"],
    ]


def test_a_broken_file_is_a_policy_problem_too(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match="cannot be read"):
        load_policy(tmp_path / "absent.yaml")


def test_the_schema_for_editors_knows_the_fields() -> None:
    schema = policy_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert {"projects", "departments", "node_pools", "defaults"} <= schema["properties"].keys()
    assert schema["additionalProperties"] is False
