"""Every driver call fails, hangs, lies, kills or is killed once, at every step of suspend and
resume; the checkpoint worker too.

Afterwards no process is locked, the neighbour runs, the journal is correct, no lock or memory is
held, no byte is wrong, and the kernel can be suspended and resumed again. State is lost only if the
driver reports it.
"""

from __future__ import annotations

import itertools

import pytest

from tests.agent.nvidia_fixtures import CALM, HASTY, PATIENT, Scene, attempt, scene_of
from tests.fake_driver.fake_gpu_machine import Faults

CALLS = {
    "suspend": ("GetState", "Lock", "Checkpoint"),
    "resume": ("GetState", "Lock", "Restore", "Unlock"),
}
KINDS = {
    "fails": Faults.FAIL,
    "fails after doing it": Faults.FAIL_AFTER,
    "lies": Faults.LIE,
    "hangs": Faults.HANG,
    "hangs after doing it": Faults.HANG_AFTER,
    "finds a dead process": Faults.VANISH,
    "kills the worker": Faults.DIE,
    "kills the worker after doing it": Faults.DIE_AFTER,
}
MATRIX = [
    (phase, f"cuCheckpointProcess{call}", kind, skip)
    for phase, calls in CALLS.items()
    for call, kind, skip in itertools.product(calls, KINDS, (0, 1))
]
CODES = [1, 3, 201, 401, 600, 800, 801, 999]


@pytest.fixture(scope="module")
def shared_scene(tmp_path_factory):
    with scene_of(tmp_path_factory.mktemp("gpus"), deadlines=HASTY) as made:
        yield made


@pytest.fixture
def scene(shared_scene):
    """One machine for all of them: what a fault leaves behind would spoil the next test too."""
    shared_scene.renew()
    return shared_scene


def go_through(scene: Scene, phase: str) -> bool:
    """The phase in which something goes wrong, then what the agent does next. Whether the state was
    said to be lost.
    """
    if phase == "suspend":
        failure = attempt(scene.copies.suspend, "k", (0,))
    else:
        failure = attempt(scene.copies.resume, "k", (0,))
    scene.driver.deadlines = CALM
    scene.recover_all()
    scene.check_consistent()
    return failure is not None and failure.lost


def works_again(scene: Scene) -> None:
    """The driver behaves: there and back."""
    scene.machine.clear()
    scene.driver.deadlines = PATIENT
    if not scene.suspended():
        scene.copies.suspend("k", (0,))
    scene.check_consistent()
    assert scene.states() <= {"checkpointed"}
    scene.copies.resume("k", (0,))
    scene.check_consistent()
    scene.check_values()


@pytest.mark.parametrize(
    ("phase", "call", "kind", "skip"),
    MATRIX,
    ids=[f"{p}-{c[20:]}-{k}-{s}" for p, c, k, s in MATRIX],
)
def test_whatever_a_call_does_once(scene: Scene, phase: str, call: str, kind: str, skip: int):
    if phase == "resume":
        scene.copies.suspend("k", (0,))
    scene.machine.fault(call, KINDS[kind], skip=skip)
    lost = go_through(scene, phase)
    assert not lost
    assert len(scene.alive()) + len(scene.alive("n")) == 3 or kind == "finds a dead process"
    works_again(scene)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", ["Lock", "Checkpoint", "Restore", "Unlock", "GetState"])
def test_whatever_a_call_answers_once(scene: Scene, call: str, code: int):
    phase = "resume" if call in ("Restore", "Unlock") else "suspend"
    if phase == "resume":
        scene.copies.suspend("k", (0,))
    scene.machine.fault(f"cuCheckpointProcess{call}", Faults.FAIL, code)
    assert not go_through(scene, phase)
    works_again(scene)


@pytest.mark.parametrize("phase", ["suspend", "resume"])
@pytest.mark.parametrize("call", ["GetState", "Lock", "Checkpoint", "Restore", "Unlock"])
def test_a_driver_that_fails_for_a_long_time(scene: Scene, phase: str, call: str):
    """Nothing can be done while it lasts; nothing is forgotten, and all is well when it is over."""
    if phase == "resume":
        scene.copies.suspend("k", (0,))
    scene.machine.fault(f"cuCheckpointProcess{call}", Faults.FAIL, 999, times=-1)
    attempt(scene.copies.suspend if phase == "suspend" else scene.copies.resume, "k", (0,))
    scene.machine.clear()
    scene.recover_all()
    scene.check_consistent()
    works_again(scene)


@pytest.mark.parametrize("target", ["own", "neighbour"])
def test_faults_about_one_process_only(scene: Scene, target: str):
    """The fault concerns the second process of the kernel, or the quiesced neighbour."""
    scene.copies.suspend("k", (0,))
    pid = scene.alive()[1].pid if target == "own" else scene.alive("n")[0].pid
    scene.machine.fault("cuCheckpointProcessUnlock", Faults.HANG, pid=pid)
    go_through(scene, "resume")
    works_again(scene)
