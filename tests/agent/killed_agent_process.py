"""An agent's copying part in a process of its own, for tests that kill it: does one thing to kernel
`k`, and says when it is done.
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
    """Arguments: what to do, and a JSON object that says where."""
    told = json.loads(sys.argv[2])
    machine = FakeGpuMachine.at(Path(told["path"]), told["driver"], told["memory"], told["uuids"])
    kernels = {
        name: [SimpleNamespace(pid=pid) for pid in pids] for name, pids in told["kernels"].items()
    }
    copies = Checkpoints(
        CheckpointClient(),
        ExactMemoryView(machine, kernels),
        Path(told["record"]),
        machine.uuids,
        ["m"] * len(machine.uuids),
    )
    getattr(copies, sys.argv[1])("k", (0,))
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
