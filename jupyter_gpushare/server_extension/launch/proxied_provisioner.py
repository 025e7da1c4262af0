"""A local kernel whose clients talk to it through the proxy, where the launch plan says so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool

from .proxy_process import ProxyProcess

__all__ = ["ProxiedProvisioner"]

PROXY_FAILED: Final = 1
"""Exit status of a kernel whose proxy has ended."""


class ProxiedProvisioner(LocalProvisioner):
    """Starts one proxy per launch, and ends it with the kernel."""

    gate_proxy = Bool(
        True,
        config=True,
        help="Whether kernels that cannot load the cell gate (R, Julia, bash, xeus-python) get it"
        " by a proxy process between server and kernel.",
    )
    _proxy: ProxyProcess | None = None
    _launch: tuple[list[str], dict[str, Any]] = ([], {})
    _is_relaunching = False

    def can_use_proxy(self, cmd: list[str]) -> bool:
        """Whether the proxy is switched on, and the command names the connection file."""
        front = getattr(self.parent, "connection_file", "")
        return self.gate_proxy and bool(front) and any(front in word for word in cmd)

    async def use_proxy(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Direct the next launch through a proxy. `kwargs` as `pre_launch` returns them."""
        await self._stop_proxy()  # of a launch that overlaps with this one
        env: Mapping[str, str] = kwargs["env"]
        loop = asyncio.get_running_loop()

        def relaunch(visible: str) -> None:
            asyncio.run_coroutine_threadsafe(self._relaunch(visible), loop)

        proxy = ProxyProcess(getattr(self.parent, "connection_file", ""), relaunch)
        try:
            proxy.start(env, self._proxy_environment())
        except OSError as error:
            self.log.warning(
                "gpushare: kernel %s has no cell gate: cannot start its proxy: %s",
                self.kernel_id,
                error,
            )
            await proxy.stop()
            return kwargs
        self._proxy = proxy
        return {
            **kwargs,
            "cmd": proxy.kernel_command(kwargs["cmd"]),
            "env": proxy.kernel_environment(env),
        }

    def _proxy_environment(self) -> Mapping[str, str]:
        """The environment of the proxy, without the variables of the kernel."""
        return os.environ

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        info = await super().launch_kernel(cmd, **kwargs)
        self._launch = (cmd, kwargs)
        if self._proxy is not None and self.pid:
            self._proxy.kernel_launched(self.pid)
        return info

    async def _relaunch(self, visible: str) -> None:
        """Replace the process, which has executed nothing, by one that sees these GPUs. For Jupyter
        it is the same kernel: no page notices it.
        """
        old, proxy = self.process, self._proxy
        if old is None or old.poll() is not None or proxy is None or self._is_relaunching:
            return
        self._is_relaunching = True
        cmd, kwargs = self._launch
        kwargs = {**kwargs, "env": {**kwargs["env"], "CUDA_VISIBLE_DEVICES": visible}}
        try:
            self.before_relaunch()
            await super().send_signal(signal.SIGKILL)
            await asyncio.to_thread(old.wait)
            await super().launch_kernel(cmd, **kwargs)
            self.after_relaunch()
        finally:
            self._is_relaunching = False
        if self.pid:
            proxy.kernel_relaunched(self.pid, visible)

    def before_relaunch(self) -> None:
        """The process is about to be replaced."""

    def after_relaunch(self) -> None:
        """Another process runs."""

    async def send_signal(self, signum: int) -> None:
        # SIGINT would end a kernel of xeus, although the cell that it is meant for waits outside
        proxy = self._proxy if signum == signal.SIGINT else None
        if proxy is None or not await proxy.interrupt():
            await super().send_signal(signum)

    async def poll(self) -> int | None:
        if self._is_relaunching:
            return None
        status = await super().poll()
        if status is None and self._proxy is not None and self._proxy.has_failed:
            self.on_proxy_failed()
            await self.kill()
            return PROXY_FAILED
        return status

    def on_proxy_failed(self) -> None:
        """The proxy has ended: no client reaches the kernel any more, so that it is ended."""
        self.log.error("gpushare: the proxy of kernel %s has ended; ending it", self.kernel_id)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        await self._stop_proxy()

    async def _stop_proxy(self) -> None:
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            await proxy.stop()
