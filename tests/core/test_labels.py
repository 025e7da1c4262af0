"""Label keys and values follow Kubernetes' rules
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/).
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.labels import check_label_key, check_label_value
from jupyter_gpushare.scheduler.config.documents import FileErrors
from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors, parse_policy
from jupyter_gpushare.scheduler.simulation.scenario_file import parse_scenario

KEYS = (
    "rack",
    "topology.kubernetes.io/zone",
    "nvidia.com/gpu.product",
    "kubernetes.io/hostname",
    "A_b-c.d",
    "x" * 63,
    f"{'a.' * 120}example.com/{'x' * 63}",
)
BAD_KEYS = {
    "": "must not be empty",
    "a/b/c": "at most one '/'",
    "/zone": "prefix",
    "zone/": "name",
    "-rack": "begin and end",
    "rack\n": "begin and end",
    "ra ck": "begin and end",
    "x" * 64: "63",
    "Example.com/zone": "prefix",
    "example..com/zone": "prefix",
    f"{'a' * 254}/zone": "253",
}
VALUES = ("", "A100", "NVIDIA-A100-SXM4-80GB", "v1.2_3", "x" * 63)
BAD_VALUES = {"NVIDIA A100": "begin and end", "-a": "begin and end", "a\n": "begin and end"}
BAD_VALUES |= {"x" * 64: "63", "a/b": "begin and end"}


@pytest.mark.parametrize("key", KEYS)
def test_a_key(key: str) -> None:
    check_label_key(key)


@pytest.mark.parametrize(("key", "words"), BAD_KEYS.items())
def test_a_bad_key_is_refused_with_its_rule(key: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_label_key(key)


@pytest.mark.parametrize("value", VALUES)
def test_a_value(value: str) -> None:
    check_label_value(value)


@pytest.mark.parametrize(("value", "words"), BAD_VALUES.items())
def test_a_bad_value_is_refused_with_its_rule(value: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_label_value(value)


CLOUD = """\
topologies: [{name: cloud, levels: [topology.kubernetes.io/region, topology.kubernetes.io/zone]}]
node_pools:
  - name: a100
    label: {key: nvidia.com/gpu.product, value: NVIDIA-A100-SXM4-80GB}
    topology: cloud
"""
NODE = "{name: n, gpus: 1, labels: {topology.kubernetes.io/zone: z}}"
PLACED = """\
projects: [{{name: p}}]
nodes: [{node}]
workloads:
  - name: w
    project: p
    topology: {{name: cloud, required: topology.kubernetes.io/zone}}
    pods: [{{name: w-0, gpu: 1, node_selector: {{nvidia.com/gpu.product: A100}}}}]
"""


def test_the_topology_of_a_real_cluster_can_be_named() -> None:
    policy = parse_policy(CLOUD).policy
    assert policy.topologies[0].levels[1] == "topology.kubernetes.io/zone"
    scenario = parse_scenario(CLOUD + PLACED.format(node=NODE))
    assert scenario.policy.topologies == policy.topologies


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("topologies: [{name: t, levels: ['a/b/c']}]", "topologies[0].levels[0]"),
        ("node_pools: [{name: a, label: {key: '-k', value: v}}]", "node_pools[0].label.key"),
        ("node_pools: [{name: a, label: {key: k, value: 'a b'}}]", "node_pools[0].label.value"),
    ],
)
def test_a_policy_names_the_field(text: str, field: str) -> None:
    with pytest.raises(PolicyErrors) as raised:
        parse_policy(text)
    assert [problem.field for problem in raised.value.problems] == [field]


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ("node_selector: {'a b': x}", "node_selector"),
        ("node_selector: {a: 'x y'}", "node_selector"),
        ("pod_labels: {'': x}", "pod_labels"),
        ("pod_affinity: {topology: 'a/b/c'}", "pod_affinity.topology"),
        ("tolerations: [{key: 'a b'}]", "tolerations[0].key"),
    ],
)
def test_a_scenario_names_the_field(pod: str, field: str) -> None:
    text = (
        f"projects: [{{name: p}}]\nworkloads: [{{name: w, project: p, pods: [{{name: x, {pod}}}]}}]"
    )
    with pytest.raises(FileErrors) as raised:
        parse_scenario(text)
    assert raised.value.problems[0].field.startswith(f"workloads[0].pods[0].{field}")


def test_groups_of_an_identity_provider_can_be_members() -> None:
    policy = parse_policy("projects: [{name: p, members: ['group:/research/vision', 'LAB/ada']}]")
    assert policy.policy.projects[0].members == ("group:/research/vision", "LAB/ada")
