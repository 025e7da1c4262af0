"""A vendor outside `node_agent`: GPUs whose memory is a directory with one file per process, which
contains the MiB that it uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jupyter_gpushare.messages import DeviceReport
from node_agent.devices.base.basic_devices import BasicDevices
from node_agent.devices.base.model import DeviceTraits, KernelProcesses, NodeReading, TenantMemory
from node_agent.devices.base.process_attribution import ProcessAttribution
from node_agent.devices.base.protocols import DiscoveryRequest
from node_agent.policy.memory_accounting import ENDED

__all__ = ["DIRECTORY", "FileDevices", "FileVendor"]

DIRECTORY = "FILE_GPUS"
TOTAL_MIB = 16 * 1024


class FileDevices(BasicDevices):
    """Two GPUs; a kernel reports its memory by a file in `<directory>/<GPU>/<pid>`."""

    traits = DeviceTraits(label="file GPU")

    def __init__(self, directory: Path) -> None:
        self._directories = [directory / str(gpu) for gpu in range(2)]
        for path in self._directories:
            path.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._attribution = ProcessAttribution()
        self.caps: dict[str, tuple[tuple[int, int], ...]] = {}
        self._version = 0

    def reports(self) -> list[DeviceReport]:
        return [
            DeviceReport(index=gpu, uuid=f"FILE-{gpu}", model="File 16GB", total_mib=TOTAL_MIB)
            for gpu in range(len(self._directories))
        ]

    def environment(self) -> dict[str, str]:
        return {DIRECTORY: str(self._directory)}

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        self._attribution.track(kernels)

    def version(self) -> int:
        self._version += 1  # files change without notice: read them at every step
        return self._version

    def read(self) -> NodeReading:
        held: dict[str, dict[int, int]] = {}
        foreign = dict.fromkeys(range(len(self._directories)), 0)
        used = dict(foreign)
        for gpu, directory in enumerate(self._directories):
            for file in directory.iterdir():
                _, owner = self._attribution.owner_of(int(file.name))
                mib = int(file.read_text() or 0)
                if owner and owner != ENDED:
                    kernel = held.setdefault(owner, {})
                    kernel[gpu] = kernel.get(gpu, 0) + mib
                    used[gpu] += mib
                elif owner != ENDED:
                    foreign[gpu] += mib
        kernels = {name: TenantMemory(memory) for name, memory in held.items()}
        return NodeReading(used, kernels, foreign)

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        self.caps.update({name: tuple(places) for name, places in kernels.items()})

    def attached(self) -> set[str]:
        return {name for name, places in self.caps.items() if places}


class FileVendor:
    """Finds GPUs on every machine."""

    def find(self, request: DiscoveryRequest) -> FileDevices:
        return FileDevices(request.state_dir / "file-gpus")
