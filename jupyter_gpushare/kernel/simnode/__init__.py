"""A simulated GPU node: one SQLite file in place of the driver and the device memory of a machine.

Kernels (`jupyter_gpushare.kernel.simgpu`) and the node agent
(`node_agent.devices.simulated.simulated_devices`) open the same file, as they would use one driver.
Like device memory, it survives the exit of either side: memory of a process is freed only when the
process has exited. Processes are identified by (number, start time); the number is the pid, or more
in another pid namespace than the agent's (`process_numbers`). Amounts are bytes, times are
monotonic ms.

Calls of the driver have the signature and the error numbers of CUDA's checkpoint API: lock,
checkpoint, restore, unlock; 2 out of memory, 304 operating system, 401 illegal state, 600 not
ready, 801 not supported. Only the standard library is used, since kernels import this package.

`model` has values and errors, `connection` opens the file, `processes`, `attachments` and
`checkpoints` are the calls of kernels, of the agent, and of the checkpoint API.
"""

from __future__ import annotations

from .checkpoints import CheckpointCalls
from .model import (
    ILLEGAL_STATE,
    MIB,
    NOT_READY,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    DeviceBlocked,
    DeviceDetached,
    DeviceExhausted,
    DriverError,
    KernelReading,
    Reading,
    SimGpu,
    now_ms,
    start_of,
)

__all__ = [
    "ILLEGAL_STATE",
    "MIB",
    "NOT_READY",
    "NOT_SUPPORTED",
    "OPERATING_SYSTEM",
    "OUT_OF_MEMORY",
    "DeviceBlocked",
    "DeviceDetached",
    "DeviceExhausted",
    "DriverError",
    "KernelReading",
    "Reading",
    "SimGpu",
    "SimNode",
    "now_ms",
    "start_of",
]


class SimNode(CheckpointCalls):
    """One connection to the file. Thread-safe; a forked child must open its own."""
