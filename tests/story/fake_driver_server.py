"""Servers on a machine with a fake NVIDIA driver (tests/fake_driver), without simulated GPUs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fake_driver.fake_gpu_machine import ROOT, FakeGpuMachine
from tests.story.jupyter_process import Server

__all__ = ["GPU", "FakeDriverServer"]

GPU = "from tests.fake_driver.driver import CudaError, Gpu\ng = Gpu()\n"
"""First lines of a notebook that uses its GPU, like `import torch`."""


class FakeDriverServer(Server):
    """Without `simulate`: the agent uses the GPUs that the driver lists."""

    def __init__(
        self,
        folder: Path,
        *,
        gpus: int = 2,
        driver: int = 580,
        remote: bool = False,
        **machine: object,
    ) -> None:
        self.machine = FakeGpuMachine(gpus=gpus, driver=driver, **machine)  # type: ignore[arg-type]
        super().__init__(folder, remote=remote, gpus=gpus)

    @property
    def env(self) -> dict[str, str]:
        return super().env | self.machine.environment() | {"PYTHONPATH": str(ROOT)}

    def _write_config(self) -> None:
        super()._write_config()
        path = self.folder / "config/jupyter_server_config.json"
        config = json.loads(path.read_text())
        config["GpuShareExtension"].pop("simulate", None)
        path.write_text(json.dumps(config))

    def start_agent(self) -> None:
        self.agent(
            "--scheduler",
            f"http://127.0.0.1:{self.scheduler_port}",
            "--state-dir",
            str(self.state),
            "--token-file",
            str(self.state / "admin.token"),
        )

    def stop(self) -> None:
        super().stop()
        self.machine.close()
