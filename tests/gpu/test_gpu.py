"""On a real GPU: all bytes are restored, Python runs while its GPU memory is saved, and two
notebooks share a GPU with the whole product.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.nvml import Nvml
from tests.gpu import experiments, worker_client
from tests.gpu.two_notebooks import run_two_notebooks

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
    """Makes the checkpoint calls."""
    del total
    client = CheckpointClient()
    problem = client.problem()
    if problem:
        client.close()
        pytest.skip(f"this GPU's driver cannot suspend: {problem}")
    yield client
    client.close()


@pytest.mark.parametrize("gib", [0.5, 4, 16, 64])
def test_every_byte_is_restored_and_python_runs_meanwhile(driver, total, gib):
    size = int(gib * GIB)
    if size > total * 0.9:
        pytest.skip(f"{gib} GiB do not fit on this GPU")
    with worker_client.Worker() as worker:
        worker.do("hold", size)
        result = experiments.round_trip(driver, worker, size)
    assert result.right
    assert result.longest_pause_ms < 1000


@pytest.mark.parametrize("name", ["torch", "torch-expandable", "jax", "cupy"])
def test_values_of_a_framework_survive(driver, name):
    try:
        found = experiments.framework(driver, GIB, name)
    except worker_client.Missing as error:
        pytest.skip(f"{name} is not installed ({error})")
    assert found.right


def test_saved_memory_is_in_host_memory(driver):
    grown = [row["grew_mib"] for row in experiments.host_memory(driver, 2 * GIB)]
    assert max(grown) >= 1800, grown


def test_a_restore_without_memory_fails(driver, total):
    rows = experiments.restore_without_memory(driver, GIB, total)
    outcomes = {row["step"]: row["outcome"] for row in rows}
    assert outcomes["restore without memory"] != "done"


def test_an_idle_neighbour_can_be_locked(driver):
    assert len(experiments.lock_times_ms(driver, times=10)) == 10


def test_two_notebooks_share_the_gpu(total):
    rows = {row["what"]: row["is"] for row in run_two_notebooks(total)}
    assert (rows["A's values"], rows["B's values"]) == ("right", "right")
    assert rows["state of A"] == "suspended"
    assert "killed" not in rows["events of A"]
