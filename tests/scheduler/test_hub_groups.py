"""Projects in the properties of JupyterHub groups."""

from __future__ import annotations

import pytest

from jupyter_gpushare.scheduler.policy.hub_quotas import HubGroup, with_groups
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy

STATED = """\
node_pools: [{name: a100, label: {key: gpu, value: A100}}]
departments: [{name: research, pools: {default: {gpu: {quota: 4}}}}]
projects:
  - {name: vision, department: research, members: [ann], pools: {default: {gpu: {quota: 1}}}}
"""


def quotas(*groups: HubGroup, stated: str = STATED) -> tuple[dict[str, tuple], list[str]]:
    loaded, problems = with_groups(parse_policy(stated), groups)
    projects = {
        p.name: (
            p.department,
            p.members,
            {pool: share.quota.gpu for pool, share in p.pools.items()},
            p.node_pools,
        )
        for p in loaded.policy.projects
    }
    return projects, problems


def said(name: str, value: object, *users: str) -> HubGroup:
    return HubGroup(name, users, {"gpushare": value})


VISION = {"vision": ("research", ("ann",), {"default": 1000}, ())}


def test_a_group_may_hold_a_project():
    projects, problems = quotas(
        HubGroup("plain", ("x",), {"other": 1}),
        said("night", {"department": "research", "gpu": {"quota": 2.5}}),
        said(
            "staff",
            {
                "project": "language",
                "department": "research",
                "pools": {"a100": {"gpu": {"quota": 1, "limit": 2}}},
                "node_pools": ["a100"],
            },
        ),
    )
    assert problems == []
    assert projects == {
        **VISION,
        "night": ("research", ("group:night",), {"default": 2500}, ()),
        "language": ("research", ("group:staff",), {"a100": 1000}, ("a100",)),
    }


def test_the_file_wins_and_the_first_group_by_name():
    vision = said("lab", {"project": "vision", "department": "research", "gpu": {"quota": 99}})
    twice = [
        said(name, {"project": "p", "department": "research", "gpu": {"quota": quota}})
        for name, quota in (("b", 2), ("a", 1))
    ]
    projects, problems = quotas(vision, *twice)
    assert projects == {**VISION, "p": ("research", ("group:a",), {"default": 1000}, ())}
    assert problems == ["JupyterHub group b: gpushare: another group has project p already"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, 'must be an object such as {"gpu": {"quota": 2}}, got 7'),
        (["x"], "must be an object"),
        ({"gpu": {"quota": "many"}, "department": "research"}, "gpu.quota"),
        ({"gpu": {"quota": -1}, "department": "research"}, "gpu.quota"),
        ({"gpu": {"qouta": 1}, "department": "research"}, "did you mean 'quota'?"),
        ({"department": "reserch"}, "did you mean 'research'?"),
        ({"members": ["eve"]}, "the members are the group"),
        ({"name": "x"}, "is `project`"),
        ({"gpu": {"quota": 1}, "pools": {"default": {"gpu": {"quota": 1}}}}, "set twice"),
        ({"department": "research", "pools": {"nowhere": {}}}, "nowhere"),
        ({"colour": "red", "department": "research"}, "colour: is not a known key"),
        ({"project": "x" * 200_000}, "too long"),
        ({"project": {"a": 1}, "department": "research"}, "name"),
    ],
)
def test_a_mistake_is_named_with_its_group_and_the_others_are_in_force(value, words: str):
    projects, problems = quotas(
        said("bad", value), said("good", {"department": "research", "gpu": {"quota": 1}})
    )
    assert set(projects) == {"vision", "good"}
    assert problems
    assert all(problem.startswith("JupyterHub group bad: gpushare: ") for problem in problems)
    assert words in problems[0]


# -- with a scheduler --
