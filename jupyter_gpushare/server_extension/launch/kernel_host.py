"""What the provisioner calls."""

from __future__ import annotations

from typing import Protocol

from jupyter_gpushare.messages import Event, KernelRequest

from .launch_plan import LaunchPlan

__all__ = ["KernelHost"]


class KernelHost(Protocol):
    """What the provisioner calls: `ServerKernelLifecycle` in a Jupyter server, `ToolHost` in a
    tool.
    """

    async def check(self, request: KernelRequest) -> KernelRequest: ...
    async def register(
        self,
        kernel_id: str,
        *,
        name: str,
        language: str,
        plan: LaunchPlan,
        request: KernelRequest | None,
    ) -> dict[str, str]: ...
    def add_event(self, kernel_id: str, event: Event) -> None: ...
    def launched(self, kernel_id: str, pid: int) -> None: ...
    def interrupted(self, kernel_id: str) -> None: ...
    def ending(self, kernel_id: str) -> None: ...
    def restarting(self, kernel_id: str) -> None: ...
    def ended(self, kernel_id: str) -> None: ...
    def is_ungated(self, kernel_id: str) -> bool: ...
