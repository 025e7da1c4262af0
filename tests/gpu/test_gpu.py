"""On a real GPU: no byte is ever wrong, Python answers while its GPU memory is away, and two
notebooks share through the whole product.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.nvml import Nvml
from tests.gpu import bench
from tests.gpu.story import tell

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
GIB = 1 << 30


@pytest.fixture(scope="module")
def total() -> int:
    """Bytes of GPU 0."""
    try:
        nvml = Nvml()
    except Unavailable as error:
        pytest.skip(f"no real GPU here: {error.message}")
    if not nvml.gpus:
        pytest.skip("no real GPU here: the driver runs and finds none")
    size = nvml.memory(0).total
    nvml.close()
    return size


@pytest.fixture(scope="module")
def driver(total):
    """The hand in the CUDA driver."""
    del total
    hand = CheckpointClient()
    problem = hand.problem()
    if problem:
        hand.close()
        pytest.skip(f"this GPU's driver cannot suspend: {problem}")
    yield hand
    hand.close()


@pytest.mark.parametrize("gib", [0.5, 4, 16, 64])
def test_every_byte_comes_back_and_python_answers_meanwhile(driver, total, gib):
    size = int(gib * GIB)
    if size > total * 0.9:
        pytest.skip(f"{gib} GiB do not fit on this GPU")
    with bench.Worker() as worker:
        worker.do("hold", size)
        made = bench.round_trip(driver, worker, size)
    assert made.right
    assert made.longest_pause_ms < 1000


@pytest.mark.parametrize("name", ["torch", "torch-expandable", "jax", "cupy"])
def test_a_frameworks_values_survive(driver, name):
    try:
        found = bench.framework(driver, GIB, name)
    except bench.Missing as error:
        pytest.skip(f"{name} is not installed ({error})")
    assert found.right


def test_what_is_saved_is_in_the_hosts_memory(driver):
    grown = [row["grew_mib"] for row in bench.host_memory(driver, 2 * GIB)]
    assert max(grown) >= 1800, grown


def test_a_restore_without_room_says_so(driver, total):
    outcomes = {row["step"]: row["outcome"] for row in bench.out_of_room(driver, GIB, total)}
    assert outcomes["restore without room"] != "done"


def test_a_neighbour_can_be_locked_while_it_rests(driver):
    assert len(bench.neighbour_lock_ms(driver, times=10)) == 10


def test_two_notebooks_share_the_gpu(total):
    told = {row["what"]: row["is"] for row in tell(total)}
    assert (told["A's values"], told["B's values"]) == ("right", "right")
    assert told["A is now"] == "suspended"
    assert "killed" not in told["what A was told"]
