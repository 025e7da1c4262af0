"""The agent's checkpoints in a process of their own, for tests that kill it: runs one method for
kernel `k` and prints a line when it is done.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.checkpoints import Checkpoints
from tests.fake_driver.environment import ExactMemoryView
from tests.fake_driver.fake_gpu_machine import FakeGpuMachine


def main() -> None:
    """Arguments: the method, and a JSON object with the scene."""
    scene = json.loads(sys.argv[2])
    machine = FakeGpuMachine.at(
        Path(scene["path"]), scene["driver"], scene["memory"], scene["uuids"]
    )
    kernels = {
        name: [SimpleNamespace(pid=pid) for pid in pids] for name, pids in scene["kernels"].items()
    }
    copies = Checkpoints(
        CheckpointClient(),
        ExactMemoryView(machine, kernels),
        Path(scene["record"]),
        machine.uuids,
        ["m"] * len(machine.uuids),
    )
    getattr(copies, sys.argv[1])("k", (0,))
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
