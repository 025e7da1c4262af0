"""kill -9 of the agent in the middle of every call of suspend and resume: the next agent recovers
everything.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time

import pytest

from tests.agent.nvidia_fixtures import Scene, scene_of
from tests.fake_driver.fake_gpu_machine import ROOT, Faults

STEPS = [
    *itertools.product(("suspend",), ("GetState", "Lock", "Checkpoint"), (0, 1)),
    *itertools.product(("resume",), ("GetState", "Restore", "Unlock"), (0, 1)),
    ("resume", "Lock", 0),
    ("resume", "Unlock", 2),
]


def kill_in_the_middle(scene: Scene, verb: str, fault: int) -> None:
    """Start it, wait until it hangs in the call, kill it."""
    told = {
        "path": str(scene.machine.path),
        "driver": scene.machine.driver,
        "memory": scene.machine.total,
        "uuids": scene.machine.uuids,
        "record": str(scene.folder / "parked.json"),
        "kernels": {
            name: [worker.pid for worker in workers] for name, workers in scene.kernels.items()
        },
    }
    agent = subprocess.Popen(
        [sys.executable, "-m", "tests.agent.killed_agent_process", verb, json.dumps(told)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 30
        while not scene.machine.hits(fault) and time.monotonic() < deadline:
            assert agent.poll() is None, "it never came to this call"
            time.sleep(0.002)
        time.sleep(0.005)  # a fault that strikes after the call: let the call be made
    finally:
        agent.kill()
        agent.communicate()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("verb", "call", "skip"), STEPS, ids=[f"{verb}-{call}-{skip}" for verb, call, skip in STEPS]
)
def test_an_agent_that_dies_at_any_step_is_recovered(tmp_path, verb, call, skip, moment):
    with scene_of(tmp_path) as scene:
        if verb == "resume":
            scene.copies.suspend("k", (0,))
        scene.copies.close()
        kind = Faults.HANG if moment == "before" else Faults.HANG_AFTER
        fault = scene.machine.fault(f"cuCheckpointProcess{call}", kind, skip=skip)
        kill_in_the_middle(scene, verb, fault)
        scene.machine.clear()
        scene.restart()
        scene.recover_all()
        scene.check_consistent()
        image = scene.copies.saved()["k"].image if scene.suspended() else ()
        assert image in ((), (2 * (2048 + 256),)), "the size of what is saved is known"
        if not scene.suspended():
            scene.copies.suspend("k", (0,))
        scene.copies.resume("k", (0,))
        scene.check_consistent()
        scene.check_values()
