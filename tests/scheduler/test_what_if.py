"""What else would start now: with a fake core, since only its answers matter."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.decisions import WhatIf
from jupyter_gpushare.messages import PodRequest, WorkloadRequest
from jupyter_gpushare.scheduler.service.what_if import alternatives_of

CASES = {
    "the largest smaller share": (2, [], {("", 1.0), ("", 0.5)}, ["1 GPU would start now."]),
    "another pool as it is": (0.5, ["a"], {("t4", 0.5)}, ["It would start now in node pool t4."]),
    "less in another pool": (
        1,
        ["a"],
        {("t4", 0.5), ("t4", 0.25)},
        ["0.5 GPU would start now in node pool t4."],
    ),
    "nothing": (1, ["a"], set(), []),
    "its own pool is none": (1, ["a"], {("a", 1.0)}, []),
    "its project's pool is not told twice": (
        2,
        [],
        {("", 1.0), ("a", 1.0)},
        ["1 GPU would start now."],
    ),
    "of two of its own neither is listed twice": (
        2,
        ["a", "t4"],
        {("a,t4", 1.0), ("a", 1.0), ("t4", 1.0)},
        ["1 GPU would start now."],
    ),
}


@pytest.mark.parametrize(("gpu", "pools", "room", "expected"), CASES.values(), ids=CASES)
def test_alternatives(
    gpu: float, pools: list[str], room: set[tuple[str, float]], expected: list[str]
) -> None:
    """`room`: pool ("": the project's own, `a`) and the share that would start there."""

    def ask(request: WorkloadRequest) -> WhatIf:
        starts = (",".join(request.node_pools), float(request.pods[0].gpu or 0)) in room
        return WhatIf(starts_now=starts, after_eviction=False, spots={}, displaces=(), reason=None)

    request = WorkloadRequest(id="w", pods=[PodRequest(name="kernel", gpu=gpu)], node_pools=pools)
    others = [pool for pool in ("a", "t4") if pool not in (pools or ["a"])]
    assert [one.message for one in alternatives_of(request, ask, others)] == expected
