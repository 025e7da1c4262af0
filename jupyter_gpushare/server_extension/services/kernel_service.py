"""The kernels of this server, as pages and kernels query them."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.core.model.errors import Conflict, NotFound
from jupyter_gpushare.messages import Kernel, KernelHistory

from ..clients.jupyter_server import JupyterServer
from ..kernels.kernel_history import KernelHistories, wall_ms
from ..kernels.kernel_registry import KernelRegistry
from ..kernels.launches import KernelLaunches

__all__ = ["KernelService"]


class KernelService:
    """`changed` is called with the ids of the kernels that may have changed."""

    def __init__(
        self,
        registry: KernelRegistry,
        histories: KernelHistories,
        launches: KernelLaunches,
        jupyter: JupyterServer,
        *,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._registry, self._histories, self._launches = registry, histories, launches
        self._jupyter, self._changed = jupyter, changed

    def all(self) -> list[Kernel]:
        """Every kernel that Jupyter has now."""
        kernel_ids = self._jupyter.kernel_ids()
        for kernel_id in kernel_ids:
            self._ensure_known(kernel_id)
        return [self._registry.view(kernel_id) for kernel_id in kernel_ids]

    def get(self, kernel_id: str) -> Kernel:
        """One kernel.

        Raises:
            NotFound: Jupyter has no such kernel.
        """
        if kernel_id not in self._jupyter.kernel_ids():
            raise NotFound(f"kernel {kernel_id} does not exist")
        self._ensure_known(kernel_id)
        return self._registry.view(kernel_id)

    def has_lease_on_node(self, kernel_id: str) -> bool:
        """Whether the node agent has received the lease of the kernel's request."""
        entry = self._registry.entry(kernel_id)
        return entry.runtime is not None and entry.runtime.workload == entry.workload_id

    def history(self, kernel_id: str, minutes: int) -> KernelHistory:
        """Samples of the last `minutes`. Raises NotFound."""
        return self._histories.of(self.get(kernel_id), wall_ms(), minutes)

    def sample(self) -> None:
        """Add a sample of every kernel to its history."""
        self._histories.sample(wall_ms(), self.all())

    def check_provisioner(self, kernel_id: str) -> None:
        """Check that the kernel can have a share.

        Raises:
            NotFound: Jupyter has no such kernel.
            Conflict: another kernel provisioner, or a gateway, started it.
        """
        self.get(kernel_id)
        if kernel_id not in self._launches:
            if self._launches.gateway_text is not None:
                raise Conflict(self._launches.gateway_text)
            raise Conflict(
                f"kernel {kernel_id} was started by another kernel provisioner, "
                "so it cannot have a GPU share"
            )

    def name(self, kernel_id: str) -> str:
        """The notebook's path, or "" if it is not known yet."""
        return self._registry.entry(kernel_id).name

    def names(self) -> dict[str, str]:
        """Kernel id -> the notebook's path, of kernels whose notebook is known."""
        return {kernel.kernel_id: kernel.name for kernel in self.all() if kernel.name}

    def _ensure_known(self, kernel_id: str) -> None:
        if kernel_id not in self._registry:
            self._changed(self._registry.add(kernel_id))
