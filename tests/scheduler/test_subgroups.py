"""Distributed work through the service: sub-groups, their minimums, and the topology that keeps
them together.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.model import SubGroup, TopologyConstraint, Workload
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.state.admission import read_request

POLICY = parse_policy(
    """\
node_pools:
  - {name: default, topology: {name: fabric, levels: [block, rack]}}
projects:
  - {name: vision}
"""
).policy
SERVER = m.GroupRequest(name="server", min_pods=1)
TRAINERS = m.GroupRequest(
    name="trainers", groups=[m.GroupRequest(name="left"), m.GroupRequest(name="right", min_pods=1)]
)
PODS = [
    m.PodRequest(name="s", group="server"),
    m.PodRequest(name="l0", group="left"),
    m.PodRequest(name="l1", group="left"),
    m.PodRequest(name="r0", group="right"),
    m.PodRequest(name="r1", group="right"),
]


def read(**given: object) -> Workload:
    request = m.WorkloadRequest(
        **({"id": "w", "project": "vision", "pods": PODS, "groups": [SERVER, TRAINERS]} | given)
    )
    return read_request(
        request, POLICY, user="me", allowed=["vision"], default=None, created=0
    ).workload


def test_the_tree_arrives_as_it_was_sent():
    transaction = m.TopologyRequest(name="fabric", required="block", preferred="rack")
    workload = read(topology=transaction)
    assert workload.groups == (
        SubGroup("server", 1),
        SubGroup("trainers", groups=(SubGroup("left"), SubGroup("right", 1))),
    )
    assert workload.topology == TopologyConstraint("fabric", "block", "rack")
    assert [pod.group for pod in workload.pods] == ["server", "left", "left", "right", "right"]


def leaf(name: str, **more: object) -> m.GroupRequest:
    return m.GroupRequest(name=name, **more)


def deep(levels: int) -> m.GroupRequest:
    group = leaf("0")
    for level in range(levels):
        group = leaf(str(level + 1), groups=[group])
    return group


POD = [m.PodRequest(group="a")]
MISTAKES = {
    "a minimum beside groups": ({"min_pods": 2}, "min_pods"),
    "a minimum of an inner group": (
        {"groups": [SERVER, leaf("trainers", min_pods=1, groups=TRAINERS.groups)]},
        "min_pods",
    ),
    "more than it has": ({"pods": POD, "groups": [leaf("a", min_pods=2)]}, "min_pods"),
    "less than one": ({"pods": POD, "groups": [leaf("a", min_pods=0)]}, "min_pods"),
    "a pod in no group": ({"pods": [m.PodRequest()], "groups": [leaf("a")]}, "group"),
    "a pod in an inner group": ({"pods": [*PODS, m.PodRequest(group="trainers")]}, "group"),
    "a pod in a group that is not there": ({"pods": POD, "groups": []}, "group"),
    "a leaf without pods": ({"pods": POD, "groups": [leaf("a"), leaf("b")]}, "groups"),
    "a name twice": ({"pods": POD, "groups": [leaf("a"), leaf("a")]}, "groups"),
    "no name": ({"pods": [m.PodRequest()], "groups": [leaf("")]}, "groups"),
    "too deep": ({"pods": [m.PodRequest(group="0")], "groups": [deep(20)]}, "groups"),
    "an unknown topology": ({"topology": m.TopologyRequest(name="mesh")}, "topology"),
    "an unknown level": (
        {"topology": m.TopologyRequest(name="fabric", required="room")},
        "topology",
    ),
    "an unknown level of a group": (
        {
            "pods": POD,
            "groups": [leaf("a", topology=m.TopologyRequest(name="fabric", preferred="room"))],
        },
        "topology",
    ),
}


@pytest.mark.parametrize(("given", "field"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_name_their_field(given: dict[str, object], field: str):
    with pytest.raises(InvalidInput) as error:
        read(**given)
    assert error.value.field == field
