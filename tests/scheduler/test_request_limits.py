"""Names and labels of a workload are bounded, and follow their patterns to the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.scheduler.state.request_limits import check_limits


def request(**pod: object) -> m.WorkloadRequest:
    return m.convert(m.WorkloadRequest, {"id": "w", "pods": [{"gpu": 1, **pod}]})


GOOD = request(
    name="w-0",
    labels={"app": "train", "example.com/team": "vision"},
    node_selector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
    nodes=["n0"],
)
BAD = {
    "an id with a line end": (m.WorkloadRequest(id="ok-1\n", pods=[m.PodRequest()]), "id"),
    "an id with an escape": (m.WorkloadRequest(id="a\x1b[2J", pods=[m.PodRequest()]), "id"),
    "a kernel id with a line end": (
        m.WorkloadRequest(id="w", kernel_id="k\n", pods=[m.PodRequest()]),
        "kernel_id",
    ),
    "a long pod name": (request(name="x" * 254), "name"),
    "a pod name with a line end": (request(name="w-0\n"), "name"),
    "a large label": (request(labels={"a": "x" * 900_000}), "labels"),
    "many labels": (request(labels={f"k{i}": "v" for i in range(65)}), "labels"),
    "a label with a line end": (request(labels={"a": "b\n"}), "labels"),
    "a selector with a space": (request(node_selector={"gpu model": "A100"}), "node_selector"),
    "a long node name": (request(nodes=["n" * 300]), "nodes"),
    "labels of many pods": (
        m.WorkloadRequest(
            id="w",
            pods=[m.PodRequest(labels={f"k{j}": "v" * 63 for j in range(64)}) for _ in range(20)],
        ),
        "pods",
    ),
    "a group with a line end": (
        m.WorkloadRequest(id="w", pods=[m.PodRequest()], groups=[m.GroupRequest(name="g\n")]),
        "groups",
    ),
}


def test_names_and_labels_within_the_limits() -> None:
    check_limits(GOOD)


@pytest.mark.parametrize(("bad", "field"), BAD.values(), ids=BAD)
def test_what_exceeds_a_limit_is_refused_with_its_field(bad: m.WorkloadRequest, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_limits(bad)
    assert refused.value.field == field
    assert len(refused.value.message) < 300


def test_no_pattern_ends_before_the_end_of_the_text() -> None:
    """`$` also matches before a final line end, and `match` ignores what follows."""
    root = Path(__file__).parents[2]
    files = [*(root / "jupyter_gpushare").rglob("*.py"), *(root / "node_agent").rglob("*.py")]
    found = []
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            is_pattern = "re.compile(" in line or "re.match(" in line or "re.search(" in line
            if (is_pattern and '$")' in line) or "re.match(" in line:
                found.append(f"{file.relative_to(root)}:{number}")
    assert found == []
