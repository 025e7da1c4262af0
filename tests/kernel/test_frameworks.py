"""Frameworks in a real kernel on a fake driver: a cell fails with its framework's own error, and
the kernel lives.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.frameworks.caps import FrameworkCaps, net_of_context
from jupyter_gpushare.kernel.frameworks.cuda import match_devices
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STAND_INS = f"{ROOT / 'tests' / 'fake_driver' / 'frameworks'}:{ROOT}"
TORCH_TAKES = "import torch\nx = torch.full({gib} << 30, 7)"
CUPY_TAKES = "import cupy\ny = cupy.full({gib} << 30, 7)"


@pytest.fixture
def world():
    with FakeGpuMachine(gpus=2, memory=80 * GIB) as world:
        yield world


@pytest.fixture
def shared(agent, notebook, world):
    """A kernel with a share of the second GPU; `shared.cap(gib)` pushes a cap."""
    agent.simulated = False

    class Shared:
        def __init__(self, **environ):
            self.told = itertools.count()
            self.nb = notebook(**world.environment(), PYTHONPATH=STAND_INS, **environ)
            self.run = self.nb.run

        def cap(
            self, gib, *, uuid=world.uuids[1], visible=world.uuids[1], state="attached", **more
        ):
            """The cap is sent and received: messages keep their order."""
            device = {
                "uuid": uuid,
                "cap_mib": gib * 1024,
                "total_mib": 80 * 1024,
                "visible": visible,
            }
            agent.set_state(state, devices=(device,) if state == "attached" else (), **more)
            mark = f"mark-{next(self.told)}"
            agent.send({"type": "told", "message": mark})
            while mark not in self.run("pass").text:
                pass

    return Shared


def value(nb, expression):
    return eval(nb.run(f"print(repr({expression}))").text)


def test_a_cell_over_the_cap_fails_with_pytorchs_error_even_in_the_cell_that_imports_it(shared):
    one = shared()
    one.cap(40)
    failed = one.run(TORCH_TAKES.format(gib=45))
    assert failed.reply["ename"] == "OutOfMemoryError", failed.text
    assert one.run(TORCH_TAKES.format(gib=39)).ok
    assert value(one.nb, "x.values()") == {7}


def test_a_lowered_cap_applies_to_the_running_cell(shared, agent, world):
    one = shared()
    one.cap(60)
    assert one.run("import torch, time, pathlib\nx = torch.full(20 << 30, 7)").ok
    cell = one.nb.submit(
        "print('begun', flush=True)\n"
        "while torch.cuda.get_per_process_memory_fraction(0) > 0.5: time.sleep(0.01)\n"
        "z = torch.full(30 << 30, 1)"
    )
    one.nb.until_shown(cell, "begun")
    device = {
        "uuid": world.uuids[1],
        "cap_mib": 40 * 1024,
        "total_mib": 80 * 1024,
        "visible": world.uuids[1],
    }
    agent.send(
        {"type": "kernel", "kernel": agent.kernel, "cap_mib": 40 * 1024, "devices": [device]}
    )
    assert one.nb.collect(cell).reply["ename"] == "OutOfMemoryError"
    assert value(one.nb, "x.values()") == {7}


def test_without_the_agent_the_cap_is_the_share(shared, agent):
    """A borrower may not borrow; an owner whose cap was low may use its share."""
    memory = {"guaranteed": 40 * 1024, "used": 0, "borrowed": 0}
    one = shared(GPUSHARE_AGENT_WAIT="0")
    one.cap(60, memory_mib=memory)
    assert one.run(TORCH_TAKES.format(gib=30)).ok
    agent.close()
    assert one.run("y = torch.full(20 << 30, 7)").reply["ename"] == "OutOfMemoryError"
    assert one.run("del x; torch.cuda.empty_cache()").ok
    agent.received_kinds()
    agent.open()
    agent.receive("kernel_hello")
    one.cap(60, memory_mib=memory)
    assert one.run("y = torch.full(50 << 30, 7); del y; torch.cuda.empty_cache()").ok
    one.cap(10, memory_mib=memory)
    assert one.run(TORCH_TAKES.format(gib=30)).reply["ename"] == "OutOfMemoryError"
    agent.close()
    assert one.run(TORCH_TAKES.format(gib=30)).ok


def test_cupy_has_its_cap_before_and_after_its_pool_is_created(shared):
    one = shared()
    one.cap(40)
    assert one.run(CUPY_TAKES.format(gib=45)).reply["ename"] == "OutOfMemoryError"
    assert one.run(CUPY_TAKES.format(gib=30)).ok
    one.cap(60)
    assert one.run("z = cupy.full(25 << 30, 1)").ok
    one.cap(50)
    assert one.run("w = cupy.full(1 << 30, 1)").reply["ename"] == "OutOfMemoryError"


def test_a_lower_limit_of_the_person_is_kept(shared):
    one = shared()
    one.cap(40)
    assert one.run(
        "import torch, cupy\n"
        "torch.cuda.set_per_process_memory_fraction(0.1)\n"
        "cupy.get_default_memory_pool().set_limit(size=2 << 30)"
    ).ok
    one.cap(60)
    assert value(one.nb, "torch.cuda.get_per_process_memory_fraction(0)") == pytest.approx(0.1)
    assert value(one.nb, "cupy.get_default_memory_pool().get_limit()") == 2 << 30
    assert one.run("torch.cuda.set_per_process_memory_fraction(1.0)").ok
    one.cap(40)
    assert value(one.nb, "torch.cuda.get_per_process_memory_fraction(0)") == pytest.approx(
        39.5 / 80
    )


def test_the_kernel_sees_only_its_own_gpu_unless_the_person_has_chosen(shared, world):
    one = shared()
    one.cap(40)
    one.run("import torch")
    assert value(one.nb, "torch.cuda.device_count()") == 1
    assert value(one.nb, "'GPU-' + str(torch.cuda.get_device_properties(0).uuid)") == world.uuids[1]
    chosen = shared(CUDA_VISIBLE_DEVICES=world.uuids[0] + "," + world.uuids[1])
    chosen.cap(40)
    chosen.run("import torch")
    assert value(chosen.nb, "torch.cuda.device_count()") == 2
    chosen.run("torch.zeros(1)")
    assert value(chosen.nb, "torch.cuda.get_per_process_memory_fraction(0)") == 1.0, (
        "not a GPU of its share"
    )
    assert value(chosen.nb, "torch.cuda.get_per_process_memory_fraction(1)") == pytest.approx(
        39.5 / 80
    )


def test_caches_are_dropped_at_the_agents_request(shared, agent, world):
    one = shared()
    one.cap(60)
    one.run(
        "import torch, cupy, os\n"
        "x = torch.full(20 << 30, 7); y = cupy.full(10 << 30, 7); kept = torch.full(1 << 30, 3)"
    )
    one.run("del x, y")
    pid = value(one.nb, "os.getpid()")
    assert world.used_by(pid, 1) > 31 * GIB
    agent.send({"type": "drop_caches"})
    agent.receive("caches_dropped")
    assert world.used_by(pid, 1) < 2 * GIB
    assert value(one.nb, "kept.values()") == {3}


def test_a_driver_call_that_hangs_delays_neither_the_reply_nor_the_cells(shared, agent, world):
    from tests.fake_driver.fake_gpu_machine import Faults

    one = shared()
    one.cap(60)
    one.run("import torch\nx = torch.full(20 << 30, 7)\ndel x")
    world.fault("cuMemFree_v2", Faults.HANG)
    agent.send({"type": "drop_caches"})
    agent.receive("caches_dropped")
    assert one.run("1 + 1").ok
    world.clear()


def test_a_kernel_that_has_not_initialised_cuda_makes_no_driver_calls(shared, agent, world):
    one = shared()
    one.run("import torch, cupy")
    before = world.calls()
    one.cap(40)
    agent.send({"type": "drop_caches"})
    agent.receive("caches_dropped")
    one.cap(30)
    assert world.used(1) == world.used(0) == 0
    assert world.calls() == before, "the driver was called"


def test_a_suspended_kernel_makes_no_driver_calls(shared, agent, world):
    one = shared()
    one.cap(40)
    one.run("import torch, os\nx = torch.full(1 << 30, 7)")
    before = world.calls()
    one.cap(0, state="suspended")
    agent.send({"type": "drop_caches"})
    agent.receive("caches_dropped")
    assert world.calls() == before


def test_jax_reads_our_environment_unless_the_person_has_set_it(shared):
    one = shared()
    one.cap(40)
    one.run("import jax")
    assert value(one.nb, "jax.devices() and jax.options") == {
        "fraction": f"{39.5 / 80:.4f}",
        "preallocate": "false",
    }
    own = shared(XLA_PYTHON_CLIENT_MEM_FRACTION=".2", XLA_PYTHON_CLIENT_PREALLOCATE="true")
    own.cap(40)
    own.run("import jax")
    assert value(own.nb, "jax.devices() and jax.options") == {
        "fraction": ".2",
        "preallocate": "true",
    }


def test_errors_inside_a_framework_do_not_reach_a_cell(shared):
    one = shared()
    one.cap(40)
    assert one.run("import torch\nx = torch.full(1 << 30, 7)\ntorch.cuda.device_count = None").ok
    one.cap(30)
    assert one.run("1 + 1").outputs[0]["content"]["data"]["text/plain"] == "2"


def test_a_failing_import_fails_as_without_the_hook(shared):
    one = shared()
    assert one.run("import torch.nothing").reply["ename"] == "ModuleNotFoundError"
    assert one.run(
        "import importlib.util\n"
        "assert importlib.util.find_spec('torch').origin.endswith('torch/__init__.py')"
    ).ok


def test_the_allowance_for_a_cuda_context():
    assert net_of_context(40 * 1024) == 40 * 1024 - 512
    assert net_of_context(600) == 300
    assert net_of_context(0) == 0


DEVICES = [
    {"uuid": "GPU-4c00aabb-0000-4000-8000-0000000000ff"},
    {"uuid": "MIG-4cdd1122-3344-4556-8778-99aabbccddee"},
]
SEEN = {
    "by name, of GPUs and of instances": (
        ["4cdd112233444556877899aabbccddee", "4c00aabb0000400080000000000000ff"],
        [(1, 0), (0, 1)],
    ),
    "what is no part of the share is left alone": (
        ["f" * 32, "4c00aabb0000400080000000000000ff"],
        [(1, 0)],
    ),
    "in order where the driver gives no names": (["", "", ""], [(0, 0), (1, 1)]),
    "nothing is seen": ([], []),
}


@pytest.mark.parametrize(("here", "expected"), SEEN.values(), ids=SEEN)
def test_which_ordinal_is_which_device_of_the_share(here, expected):
    assert [
        (ordinal, DEVICES.index(device)) for ordinal, device in match_devices(here, DEVICES)
    ] == expected


def test_defaults_do_not_replace_the_persons_settings():
    environ = {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    frameworks = FrameworkCaps(environ)
    frameworks.start()
    frameworks.stop()
    assert environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    assert environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_gpus_are_hidden_without_a_share_and_all_visible_where_memory_can_move(shared, world):
    one = shared(CUDA_VISIBLE_DEVICES="", GPUSHARE_HIDES_GPUS="1")
    one.run("import torch")
    assert value(one.nb, "torch.cuda.device_count()") == 0, "no share yet"
    two = shared(CUDA_VISIBLE_DEVICES="", GPUSHARE_HIDES_GPUS="1")
    two.cap(40, visible=f"{world.uuids[1]},{world.uuids[0]}")
    two.run("import torch, os\nx = torch.full(1 << 30, 7)")
    assert value(two.nb, "torch.cuda.device_count()") == 2
    assert value(two.nb, "torch.cuda.get_per_process_memory_fraction(0)") == pytest.approx(
        39.5 / 80
    )
    assert world.used_by(value(two.nb, "os.getpid()"), 1) > GIB


def test_after_a_move_the_cap_is_on_the_new_gpu_although_pytorch_keeps_the_old_uuid(
    shared, world, monkeypatch
):
    one = shared(CUDA_VISIBLE_DEVICES="", GPUSHARE_HIDES_GPUS="1")
    one.cap(40, visible=f"{world.uuids[1]},{world.uuids[0]}")
    one.run("import torch, os\nx = torch.full(1 << 30, 7)")
    pid = value(one.nb, "os.getpid()")
    for name, text in world.environment().items():
        monkeypatch.setenv(name, text)
    hand = CheckpointClient()
    hand.lock(pid, 1000)
    hand.checkpoint(pid)
    hand.restore(pid, [(world.uuids[0], world.uuids[1]), (world.uuids[1], world.uuids[0])])
    hand.unlock(pid)
    hand.close()
    assert world.used_by(pid, 0) > GIB
    one.cap(20, uuid=world.uuids[0], visible=f"{world.uuids[0]},{world.uuids[1]}")
    fractions = "[torch.cuda.get_per_process_memory_fraction(n) for n in range(2)]"
    assert value(one.nb, fractions) == [pytest.approx(19.5 / 80), 1.0]


def test_jax_creates_contexts_only_on_the_gpus_of_the_share(shared, world):
    ask = "jax.config.read('jax_cuda_visible_devices')"
    one = shared(CUDA_VISIBLE_DEVICES="", GPUSHARE_HIDES_GPUS="1")
    one.cap(40, visible=f"{world.uuids[1]},{world.uuids[0]}")
    one.run("import jax")
    assert value(one.nb, ask) == "0"
    own = shared(CUDA_VISIBLE_DEVICES="", GPUSHARE_HIDES_GPUS="1", JAX_CUDA_VISIBLE_DEVICES="0,1")
    own.cap(40, visible=f"{world.uuids[1]},{world.uuids[0]}")
    own.run("import jax")
    assert value(own.nb, ask) == "0,1", "what the person set stays"
