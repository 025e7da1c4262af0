"""The process that makes the blocking driver calls of the agent: `python -m
node_agent.devices.nvidia.checkpoint_worker`, one JSON object per line.

It calls cuInit once (a new process per call would repeat it: NVIDIA measured 0.8 s instead of 3.4 s
for a restore), sends a greeting, and serves requests in threads, so that a long copy delays no
other. A call that hangs in the driver cannot be cancelled: the agent kills this process and starts
another. It has no state that could be lost, and it exits immediately when its input ends, because
its agent has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Final

from node_agent.devices.nvidia.cuda import CHECKPOINT_DRIVER, CudaDriver, CudaError

__all__ = ["main"]

REMEDIES: Final = {
    100: "; give the agent access to its GPUs (/dev/nvidia*)",
    802: "; GPUs behind NVSwitch need the fabric manager (`systemctl start nvidia-fabricmanager`)",
    803: "; the driver was updated while the old one still runs: restart the machine",
}
"""For CUDA_ERROR_NO_DEVICE, SYSTEM_NOT_READY and SYSTEM_DRIVER_MISMATCH."""
TOO_OLD: Final = (
    f"the driver is older than {CHECKPOINT_DRIVER} and cannot save the state of processes"
)
_writing = threading.Lock()


def _send(body: dict[str, Any]) -> None:
    line = json.dumps(body).encode() + b"\n"
    with _writing:
        os.write(1, line)


def _start() -> CudaDriver | None:
    """The initialised driver, or None; sends a greeting with the version or the problem."""
    try:
        driver = CudaDriver()
        driver.init()
        if not driver.can_checkpoint():
            _send({"problem": TOO_OLD})
            return None
        _send({"version": driver.version()})
    except OSError as error:
        _send({"problem": f"the CUDA driver cannot be loaded: {error}"})
    except CudaError as error:
        remedy = REMEDIES.get(error.code, "")
        _send({"problem": f"the CUDA driver does not start: {error}{remedy}"})
    else:
        return driver
    return None


def _serve(driver: CudaDriver, request: dict[str, Any]) -> None:
    try:
        value = getattr(driver, request["call"])(*request["args"])
    except CudaError as error:
        _send({"n": request["n"], "error": [error.call, error.code, error.name]})
    except ValueError as error:  # an unknown process state
        _send({"n": request["n"], "error": [request["call"], 1, str(error)]})
    else:
        _send({"n": request["n"], "value": value})


def main() -> None:
    """Serve until the agent closes the pipe."""
    driver = _start()
    for line in sys.stdin.buffer:
        if driver is not None:
            threading.Thread(target=_serve, args=(driver, json.loads(line)), daemon=True).start()
    os._exit(0)  # threads may hang in the driver, so nothing can be awaited


if __name__ == "__main__":
    main()
