"""Batch: a succeeded pod counts towards its gang's minimum, so that an evicted one can
come back.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.events import PodEnded, PodEvicted, PodReleased
from jupyter_gpushare.core.model.model import Node
from tests.core.strategies import policy_of, run, workload, world

CASES = {
    "what counts comes back": (True, 2, True),
    "by the rules a gang below its minimum waits": (False, 2, False),
    "the minimum is never below one": (True, 1, True),
}


@pytest.mark.parametrize(("counts", "least", "comes_back"), CASES.values(), ids=CASES)
def test_a_pod_that_lost_its_place_after_another_has_succeeded(counts, least, comes_back):
    gang = workload("w", "p", pods=2, min_pods=least, done_counts=counts)
    cluster = world(policy_of({"p": 2}), [Node("n", gpus=2, gpu_memory=80 * 1024)], [gang])
    run(cluster)
    cluster.apply(PodEnded("w", "w-0"))
    cluster.apply(PodEvicted("w", "w-1"))
    cluster.apply(PodReleased("w", "w-1"))
    run(cluster)
    assert cluster.state("w", "w-0") == "succeeded"
    assert (cluster.state("w", "w-1") in ("bound", "running")) is comes_back
