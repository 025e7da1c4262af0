"""Suspend and resume with real driver calls: values survive, nothing leaks, and no restore is
attempted without enough memory.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

from node_agent.devices.base.model import CopyFailed
from tests.agent.nvidia_fixtures import HASTY, Scene, scene_of
from tests.fake_driver.fake_gpu_machine import GIB, MIB, Faults

CONTEXT = 256


@pytest.fixture
def scene(tmp_path):
    with scene_of(tmp_path) as made:
        yield made


def test_all_processes_of_a_kernel_are_saved_and_restored(scene: Scene):
    before = scene.machine.used(0)
    assert scene.copies.suspend("k", (0,)) == 2 * (2048 + CONTEXT)
    assert scene.states() == {"checkpointed"}
    assert before - scene.machine.used(0) == 2 * (2048 + CONTEXT) * MIB
    saved = scene.copies.saved()["k"]
    assert saved.suspended
    assert saved.image == (2 * (2048 + CONTEXT),)
    assert not saved.half_done
    assert scene.copies.resume("k", (0,)) == 2 * (2048 + CONTEXT)
    assert scene.machine.used(0) == before
    scene.check_values()
    scene.check_consistent()


def test_python_runs_while_its_memory_is_saved_and_gpu_calls_wait(scene: Scene):
    scene.copies.suspend("k", (0,))
    worker = scene.alive()[0]
    assert worker.do("alive") == "yes"
    pointer, text = scene.texts[worker.pid]
    worker.start("read", pointer, len(text))
    scene.copies.resume("k", (0,))
    assert worker.answer() == text


def test_a_busy_process_keeps_the_whole_kernel_on_the_gpu(scene: Scene):
    scene.alive()[1].do("launch", 0, 60_000)
    with pytest.raises(CopyFailed, match="did not become idle") as caught:
        scene.copies.suspend("k", (0,))
    assert not caught.value.for_good
    assert not caught.value.lost
    assert scene.states() == {"running"}
    scene.check_consistent()


def test_a_process_with_unified_memory_cannot_be_saved_and_the_other_one_is_restored(scene: Scene):
    scene.alive()[1].do("managed", 0, GIB)
    with pytest.raises(CopyFailed) as caught:
        scene.copies.suspend("k", (0,))
    assert caught.value.for_good
    assert not caught.value.lost
    scene.check_consistent()
    scene.check_values()


def test_a_process_damaged_by_a_failed_copy_is_lost_and_the_other_one_is_restored(scene: Scene):
    """NVIDIA: cuda-checkpoint "does not attempt to keep the process in a good state" after an error
    such as unified memory.
    """
    first, second = scene.alive()
    second.do("managed", 0, GIB)
    scene.machine.set("spoils", 1)
    with pytest.raises(CopyFailed, match="has lost") as caught:
        scene.copies.suspend("k", (0,))
    assert caught.value.lost
    assert [scene.machine.state(worker.pid) for worker in (first, second)] == ["running", "failed"]
    assert scene.copies.saved() == {}


def test_no_restore_without_enough_memory(scene: Scene):
    scene.copies.suspend("k", (0,))
    allocated = scene.alive("n")[0].do("alloc", 0, 75 * GIB)
    with pytest.raises(CopyFailed, match="MiB are free") as caught:
        scene.copies.resume("k", (0,))
    assert not caught.value.lost
    assert scene.states() == {"checkpointed"}
    scene.check_consistent()
    scene.alive("n")[0].do("free", allocated)
    scene.copies.resume("k", (0,))
    scene.check_values()


def test_a_neighbour_that_allocates_during_a_restore_has_to_wait(scene: Scene):
    """The race that destroys saved state: without the lock of the neighbour, this restore would run
    out of memory.
    """
    scene.copies.suspend("k", (0,))
    scene.machine.fault("cuCheckpointProcessRestore", Faults.DELAY, delay_ms=300)
    resuming = threading.Thread(target=scene.copies.resume, args=("k", (0,)))
    resuming.start()
    neighbour = scene.alive("n")[0]
    while scene.machine.state(neighbour.pid) != "locked":
        time.sleep(0.002)
    neighbour.start("alloc", 0, 75 * GIB)
    resuming.join()
    assert neighbour.answer() == "error 2"
    scene.check_values()
    scene.check_consistent()


def test_a_busy_neighbour_counts_with_all_memory_that_its_cap_allows(scene: Scene):
    scene.copies.suspend("k", (0,))
    scene.alive("n")[0].do("launch", 0, 60_000)
    with pytest.raises(CopyFailed, match="may allocate more"):
        scene.copies.resume("k", (0,))
    scene.memory_view.growth["n"] = 70 * 1024
    scene.copies.resume("k", (0,))
    assert scene.states() == {"running"}


def test_other_processes_are_never_locked_and_need_a_margin(scene: Scene):
    scene.copies.suspend("k", (0,))
    need = 2 * (2048 + CONTEXT)
    scene.machine.occupy(os.getpid(), 0, (80 * 1024 - need - 2048 - 2 * CONTEXT) * MIB)
    scene.memory_view.foreign_gpus = frozenset({0})
    with pytest.raises(CopyFailed):
        scene.copies.resume("k", (0,))
    assert scene.machine.state(os.getpid()) == "running"


def test_an_image_that_filled_the_gpu_beside_another_process_is_restored(scene: Scene):
    scene.machine.occupy(os.getpid(), 0, GIB)
    scene.memory_view.foreign_gpus = frozenset({0})
    scene.alive("n")[0].kill()
    rest = 80 * GIB - scene.machine.used(0)
    scene.alive()[0].do("alloc", 0, rest)
    scene.copies.suspend("k", (0,))
    scene.copies.resume("k", (0,))
    assert scene.machine.used(0) == 80 * GIB
    scene.check_values()


def test_a_restore_that_runs_out_of_memory_loses_the_state(scene: Scene):
    scene.copies.suspend("k", (0,))
    scene.machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 2)
    with pytest.raises(CopyFailed, match="OUT_OF_MEMORY") as caught:
        scene.copies.resume("k", (0,))
    assert caught.value.lost
    assert scene.states("n") == {"running"}


def test_a_failed_process_is_lost(scene: Scene):
    scene.machine.set_state(scene.alive()[0].pid, "failed")
    with pytest.raises(CopyFailed, match="has lost") as caught:
        scene.copies.suspend("k", (0,))
    assert caught.value.lost
    assert scene.machine.state(scene.alive()[1].pid) == "running"


def test_a_process_that_starts_while_others_are_locked_is_saved_too(scene: Scene):
    scene.machine.fault("cuCheckpointProcessLock", Faults.DELAY, delay_ms=400)
    suspending = threading.Thread(target=scene.copies.suspend, args=("k", (0,)))
    suspending.start()
    scene.kernels["k"].append(scene.worker("k", GIB))
    suspending.join()
    assert scene.states() == {"checkpointed"}
    assert len(scene.alive()) == 3
    scene.copies.resume("k", (0,))
    scene.check_values()


def test_a_process_that_ends_while_it_is_saved_leaves_nothing_behind(scene: Scene):
    scene.copies.suspend("k", (0,))
    scene.alive()[0].kill()
    assert scene.copies.saved()["k"].image == (2048 + CONTEXT,)
    scene.alive()[0].kill()
    assert "k" not in scene.copies.saved()


def test_a_kernel_moves_to_another_gpu(tmp_path):
    with scene_of(tmp_path, relocates=True, gpus=3) as scene:
        scene.copies.suspend("k", (0,))
        scene.copies.resume("k", (2,))
        assert scene.machine.used_by(scene.alive()[0].pid, 2) == (2048 + CONTEXT) * MIB
        assert [worker.do("uuid", 0) for worker in scene.alive()] == [scene.machine.uuids[2]] * 2
        scene.check_values()
        scene.copies.suspend("k", (2,))
        scene.copies.resume("k", (0,))
        assert [worker.do("uuid", 0) for worker in scene.alive()] == [scene.machine.uuids[0]] * 2
        scene.check_values()
        scene.check_consistent()


@pytest.mark.parametrize(
    ("quirks", "why"),
    [({"remap_is_noop": 1}, "did not make it"), ({}, "cannot move")],
    ids=["no-op", "not tested"],
)
def test_a_move_that_the_driver_ignores_loses_the_state_and_uses_no_memory(tmp_path, quirks, why):
    with scene_of(tmp_path, relocates=bool(quirks)) as scene:
        for name, value in quirks.items():
            scene.machine.set(name, value)
        scene.copies.suspend("k", (0,))
        with pytest.raises(CopyFailed, match=why) as caught:
            scene.copies.resume("k", (1,))
        assert caught.value.lost
        assert scene.machine.used(0) == (2048 + CONTEXT) * MIB
        assert scene.machine.used(1) == 0
        scene.check_consistent()


def test_a_process_that_sees_one_gpu_cannot_be_moved(tmp_path):
    with scene_of(tmp_path, relocates=True) as scene:
        worker = scene.machine.worker(CUDA_VISIBLE_DEVICES="0")
        worker.do("alloc", 0, GIB)
        scene.kernels["m"] = [worker]
        scene.copies.suspend("m", (0,))
        with pytest.raises(CopyFailed, match="refuses to move") as caught:
            scene.copies.resume("m", (1,))
        assert caught.value.lost
        assert scene.machine.state(worker.pid) == "checkpointed"
        scene.copies.resume("m", (0,))
        assert scene.machine.state(worker.pid) == "running"


def test_an_old_driver_is_reported(tmp_path):
    with scene_of(tmp_path, driver=565) as scene:
        assert "older than 570" in scene.driver.problem()
        with pytest.raises(CopyFailed) as caught:
            scene.copies.suspend("k", (0,))
        assert caught.value.for_good
        scene.check_values()


@pytest.mark.parametrize("state", ["locked", "checkpointed"])
def test_without_a_journal_kernels_are_recovered_by_their_states(scene: Scene, state):
    for worker in scene.alive():
        scene.driver.lock(worker.pid, 100)
        if state == "checkpointed":
            scene.driver.checkpoint(worker.pid)
    scene.restart()
    assert scene.states() == ({"checkpointed"} if state == "checkpointed" else {"running"})
    if state == "checkpointed":
        scene.copies.resume("k", (0,))
    scene.check_values()
    scene.check_consistent()


def test_a_partly_saved_kernel_is_saved_after_a_restart(scene: Scene):
    first, second = scene.alive()
    scene.driver.lock(first.pid, 100)
    scene.driver.lock(second.pid, 100)
    scene.driver.checkpoint(first.pid)
    scene.restart()
    assert scene.states() == {"checkpointed"}
    scene.copies.resume("k", (0,))
    scene.check_values()


def test_a_damaged_journal_does_not_prevent_the_start(tmp_path):
    (tmp_path / "parked.json").write_text("{half")
    with scene_of(tmp_path) as scene:
        scene.copies.suspend("k", (0,))
        assert json.loads((tmp_path / "parked.json").read_text())["kernels"]["k"]["where"] == [0]


def test_an_agent_without_visible_gpus_still_copies(scene: Scene, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert scene.driver.problem() == ""
    scene.copies.suspend("k", (0,))
    assert scene.states() == {"checkpointed"}


@pytest.mark.parametrize("code", [3, 304, 801])
def test_a_child_without_cuda_does_not_make_its_kernel_uncertain(scene: Scene, code: int):
    """The driver's error for such a process is not documented."""
    bystander = scene.machine.worker()
    assert bystander.do("alive") == "yes"
    scene.kernels["k"].append(bystander)
    scene.machine.fault(
        "cuCheckpointProcessGetState", Faults.FAIL, code, times=-1, pid=bystander.pid
    )
    scene.restart()
    assert scene.copies.saved() == {}


@pytest.mark.parametrize("name", ["k", "n"])
def test_a_process_listed_without_memory_is_not_copied(scene: Scene, name: str):
    """A program that only counted the GPUs: NVML lists it, but CUDA refuses to lock it. In the
    kernel, or in its neighbour during the resume.
    """
    counter = scene.machine.worker()
    assert counter.do("count") == "2"
    scene.machine.set("lists_bare", 1)
    scene.kernels[name].append(counter)
    scene.memory_view.empty.append(counter)
    assert scene.copies.suspend("k", (0,)) == 2 * (2048 + CONTEXT)
    scene.memory_view.growth = {"n": 80 * 1024}
    scene.copies.resume("k", (0,))
    assert scene.states() == {"running"}


def test_the_checkpoint_worker_ends_with_its_agent(scene: Scene):
    assert scene.driver.problem() == ""
    pid = scene.driver.worker_pid()
    assert pid
    scene.copies.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_hanging_call_costs_the_checkpoint_worker(tmp_path):
    """A thread that hangs in the driver cannot be ended, so the process is killed."""
    with scene_of(tmp_path, deadlines=HASTY) as scene:
        assert scene.driver.problem() == ""
        pid = scene.driver.worker_pid()
        assert pid
        scene.machine.fault("cuCheckpointProcessLock", Faults.HANG, pid=scene.alive()[0].pid)
        with pytest.raises(CopyFailed, match="did not return"):
            scene.copies.suspend("k", (0,))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_dead_checkpoint_worker_is_replaced(scene: Scene):
    assert scene.driver.problem() == ""
    pid = scene.driver.worker_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    while scene.driver.worker_pid() is not None:
        time.sleep(0.002)
    scene.copies.suspend("k", (0,))
    assert scene.driver.worker_pid() != pid
    scene.copies.resume("k", (0,))
    scene.check_values()
