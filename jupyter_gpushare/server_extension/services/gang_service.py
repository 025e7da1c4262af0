"""Gangs of a notebook: workloads with several pods that `gpu.cluster` starts. A kernel reaches its
own only; they end with its process.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jupyter_gpushare.core.model.errors import InvalidInput, NotFound
from jupyter_gpushare.messages import CommandRequest, KernelRequest, convert, to_json

from ..requests.workload_client import WorkloadClient
from .kernel_service import KernelService

__all__ = ["GangRequest", "GangService"]

MAX_WORKERS: Final = 1000
OUTPUT_CHARS: Final = 2000
"""Of the end of a failed gang's output."""


class GangRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`n` pods, each with this share and command, on the kernel's node or on any."""

    n: int
    share: KernelRequest
    command: CommandRequest
    several_nodes: bool = False


class GangService:
    """All methods raise GpuShareError."""

    def __init__(self, kernels: KernelService, workloads: WorkloadClient) -> None:
        self._kernels, self._workloads = kernels, workloads
        self._gangs: dict[str, set[str]] = {}

    async def start(self, kernel_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Submit a gang of this kernel; its project is the kernel's by default."""
        request = convert(GangRequest, body)
        if not 1 <= request.n <= MAX_WORKERS:
            raise InvalidInput(f"n must be 1 to {MAX_WORKERS}, got {request.n}", field="n")
        share = request.share
        if share.project is None:
            project = self._kernels.get(kernel_id).project
            share = msgspec.structs.replace(share, project=project)
        name = f"cluster of {self._kernels.name(kernel_id) or 'a notebook'}"
        wanted = await self._workloads.new_gang(
            kernel_id, name, share, request.n, request.command, several_nodes=request.several_nodes
        )
        self._gangs.setdefault(kernel_id, set()).add(wanted.id)
        view = await self._workloads.submit(wanted)
        return {"workload": view.id}

    async def state(self, kernel_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Its state; with the end of its output if it has ended."""
        workload_id = self._own(kernel_id, body)
        view = await self._workloads.get(workload_id)
        if view is None:
            return {"state": "ended", "message": "It is not known any more."}
        shown: dict[str, Any] = to_json(view)
        if view.state == "ended":
            shown["output"] = (await self._workloads.output(workload_id))[-OUTPUT_CHARS:]
        return shown

    async def end(self, kernel_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """End it in the background, with retries."""
        workload_id = self._own(kernel_id, body)
        self._gangs[kernel_id].discard(workload_id)
        self._workloads.end_later(workload_id)
        return {}

    def process_ended(self, kernel_id: str) -> None:
        """The kernel's process has ended: no worker has a scheduler any more."""
        for workload_id in self._gangs.pop(kernel_id, ()):
            self._workloads.end_later(workload_id)

    def _own(self, kernel_id: str, body: dict[str, Any]) -> str:
        workload_id = str(body.get("workload"))
        if workload_id not in self._gangs.get(kernel_id, ()):
            raise NotFound(f"this notebook has no cluster {workload_id}", field="workload")
        return workload_id
