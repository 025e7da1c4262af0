"""The process that makes the driver's blocking calls for the agent: `python -m
node_agent.devices.nvidia.checkpoint_worker`, one JSON object per line.

It calls cuInit once (a call in a fresh process would pay for it every time: 0.8 s against 3.4 s for
a restore in NVIDIA's own measurement), says hello with what it found, and serves requests in
threads, so that a long copy holds up no other. A call that hangs in the driver cannot be broken
off; so the agent kills this process and starts another. It keeps nothing that is worth keeping, and
it ends with its agent: when its input ends, it is gone at once, in the middle of whatever it does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Final

from node_agent.devices.nvidia.cuda import CHECKPOINT_DRIVER, CudaDriver, CudaError

__all__ = ["main"]

THEN: Final = {
    100: "; show the agent its GPUs (/dev/nvidia*)",
    802: "; GPUs behind NVSwitch need the fabric manager (`systemctl start nvidia-fabricmanager`)",
    803: "; the driver was updated while the old one still runs: restart the machine",
}
"""What to do about CUDA_ERROR_NO_DEVICE, SYSTEM_NOT_READY and SYSTEM_DRIVER_MISMATCH."""
_speaking = threading.Lock()


def _say(body: dict[str, Any]) -> None:
    line = json.dumps(body).encode() + b"\n"
    with _speaking:
        os.write(1, line)


def _ready() -> CudaDriver | None:
    """The driver, initialised; says hello, or why not."""
    try:
        driver = CudaDriver()
        driver.init()
        if not driver.can_checkpoint():
            _say(
                {
                    "problem": f"the driver is older than {CHECKPOINT_DRIVER} and cannot save the state of processes"
                }
            )
            return None
        _say({"version": driver.version()})
    except OSError as error:
        _say({"problem": f"the CUDA driver cannot be loaded: {error}"})
    except CudaError as error:
        _say({"problem": f"the CUDA driver does not start: {error}{THEN.get(error.code, '')}"})
    else:
        return driver
    return None


def _serve(driver: CudaDriver, request: dict[str, Any]) -> None:
    try:
        value = getattr(driver, request["call"])(*request["args"])
    except CudaError as error:
        _say({"n": request["n"], "error": [error.call, error.code, error.name]})
    except ValueError as error:  # a state that this driver has and we do not know
        _say({"n": request["n"], "error": [request["call"], 1, str(error)]})
    else:
        _say({"n": request["n"], "value": value})


def main() -> None:
    """Until the agent closes the pipe."""
    driver = _ready()
    for line in sys.stdin.buffer:
        if driver is not None:
            threading.Thread(target=_serve, args=(driver, json.loads(line)), daemon=True).start()
    os._exit(0)  # daemon threads may be deep in the driver: nothing can be waited for


if __name__ == "__main__":
    main()
