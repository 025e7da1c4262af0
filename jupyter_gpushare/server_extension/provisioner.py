"""The kernel provisioner: a local kernel that starts at once, connected to the node agent, without
the server's secrets.

In a Jupyter server it never waits for a GPU and never raises on a restart. It releases the share
only in `cleanup(restart=False)`: Jupyter's `kill` and `terminate` do not say whether the kernel
restarts. In a tool without a server (papermill, nbconvert) it connects to the scheduler and the
node agent itself, and waits for the GPU before the kernel starts. Without these it is a plain local
provisioner.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any, Final

from tornado.web import HTTPError
from traitlets import Any as AnyTrait

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.messages import Event, GateKind, KernelRequest, stamp

from .headless.host import ToolHost
from .headless.report import report
from .headless.session import tool_session
from .headless.tool import inherited, is_inside_share, tool_name
from .kernels.request import CONFIG_FIELDS, from_config, unknown_keys_message
from .launch.bootstrap import bootstrap_environment
from .launch.kernel_host import KernelHost
from .launch.launch_plan import LaunchPlan, plan_launch
from .launch.proxied_provisioner import ProxiedProvisioner
from .services.service import SETTING, GpuShareService

__all__ = ["GpuShareProvisioner"]

SECRETS: Final = re.compile(
    r"(JUPYTERHUB_API_TOKEN|JPY_API_TOKEN|JUPYTER_TOKEN|CONFIGPROXY_AUTH_TOKEN"
    r"|GPUSHARE_\w*TOKEN|GPUSHARE_TOKEN_FILE|GPUSHARE_DB_URL)"
)
"""Variables of the server that kernels must not see. A kernel's own `GPUSHARE_TOKEN_FILE` is set
after these are removed.
"""
PER_KERNEL_NAMES: Final = (
    "GPUSHARE_KERNEL_ID",
    "GPUSHARE_AGENT",
    "GPUSHARE_LAUNCH",
    "GPUSHARE_SIMGPU",
    "GPUSHARE_WANTS_GPU",
    "GPUSHARE_HIDES_GPUS",
    "GPUSHARE_PROBLEM",
)
"""Never inherited: a server may have been started in a terminal of another kernel."""
GPU_VISIBILITY: Final = frozenset({"CUDA_VISIBLE_DEVICES", "GPUSHARE_HIDES_GPUS"})
"""If the kernelspec or the server's environment sets one of these, it takes precedence."""


PROXY_FAILED_TEXT: Final = (
    "The process that gates the cells of this kernel has ended, so the kernel is restarted."
)


_never_connected: set[tuple[str, ...]] = set()
"""Commands of kernelspecs whose kernels had the code for the gate and did not connect."""


def _without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if not SECRETS.fullmatch(name) and name not in PER_KERNEL_NAMES
    }


def _setting(help_text: str) -> Any:
    # Any value is accepted here: a wrong one is reported with its field at the first start and
    # never prevents a restart.
    return AnyTrait(None, allow_none=True, config=True, help=help_text)


class GpuShareProvisioner(ProxiedProvisioner):
    """`gpushare-provisioner` in a kernelspec; its `config` is the request."""

    preset = _setting("Name of one of the server's presets, which gives default values.")
    gpu = _setting(
        "GPUs that this kernel requests: 0.5, 2. Default: none; it may request one later."
    )
    gpu_memory = _setting("GPU memory instead of a number of GPUs: 20GiB.")
    gpu_limit = _setting("Burst limit in GPUs. Default: the whole GPU.")
    project = _setting("Project. Default: the user's first project.")
    node_pools = _setting("Node pools in order of preference. Default: the project's.")
    priority_class = _setting("Priority class. Default: the policy's.")
    queue_anyway = _setting("Queue a request that no node can run now, in place of an error.")

    _launches = 0
    _tool: ToolHost | None = None
    _no_scheduler = ""
    _gate: GateKind = "none"

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        kwargs = await super().pre_launch(**kwargs)
        is_first, self._launches = self._launches == 0, self._launches + 1
        if is_inside_share(kwargs["env"]) and self._is_in_tool():
            return self._inherit_share(kwargs)
        kwargs["env"] = env = _without_secrets(kwargs["env"])
        host = self._server_host()
        if host is None:
            host = self._tool = await self._find_tool_host(is_first)
        if host is None:
            return self._without_share(kwargs)
        request = await self._first_request(host) if is_first else None
        plan = self._plan(kwargs["cmd"])
        if plan.gate == "bootstrap":
            env |= bootstrap_environment(env)
        try:
            env |= await self._kernel_environment(host, env, request, plan)
            if is_first:
                self._report_unknown_keys(host)
        except Exception as error:
            if is_first and self._tool is not None and isinstance(error, GpuShareError):
                raise RuntimeError(error.message) from None  # a tool ends with this line
            # A restart that raises leaves a notebook that stays disconnected; a kernel without a
            # GPU still works.
            self.log.exception("gpushare: kernel %s starts without a GPU", self.kernel_id)
        return await self.use_proxy(kwargs) if plan.gate == "proxy" else kwargs

    def _plan(self, cmd: list[str]) -> LaunchPlan:
        has_proxy = self.can_use_proxy(cmd)
        never_connected = self._command() in _never_connected
        plan = plan_launch(
            cmd, self._language(), never_connected=never_connected, has_proxy=has_proxy
        )
        self._gate = plan.gate
        self.log.debug("gpushare: kernel %s: %s (%s)", self.kernel_id, plan.gate, plan.reason)
        return plan

    def _inherit_share(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """In a command or notebook with a share, the kernel is one of its processes."""
        if from_config(self._request_config()) is not None:
            report("the kernel uses the share of the command or notebook that starts it")
        outer = inherited(kwargs["env"])
        kwargs["env"] = env = {n: value for n, value in outer.items() if not SECRETS.fullmatch(n)}
        if self._plan(kwargs["cmd"]).gate == "bootstrap":
            env |= bootstrap_environment(env)
        return kwargs

    def _without_share(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """A kernel that nothing governs. Notebooks that import `gpu` run there as well."""
        env = kwargs["env"]
        if self._plan(kwargs["cmd"]).gate == "bootstrap":
            env |= bootstrap_environment(env) | {"GPUSHARE_PROBLEM": self._no_scheduler}
        self._gate = "none"
        return kwargs

    async def _find_tool_host(self, is_first: bool) -> ToolHost | None:
        """Outside of a server with our extension. Raises RuntimeError: GPUs are required."""
        if not is_first:
            return self._tool
        try:
            return ToolHost(await asyncio.to_thread(tool_session), waits=self._is_in_tool())
        except GpuShareError as error:
            if os.environ.get("GPUSHARE_REQUIRED") == "1":
                raise RuntimeError(f"no GPU: {error.message} (GPUSHARE_REQUIRED=1)") from None
            self._no_scheduler = error.message
            if any(value is not None for value in self._request_config().values()):
                report(f"the kernel starts without a share, and is not governed: {error.message}")
            return None

    def _proxy_environment(self) -> Mapping[str, str]:
        return _without_secrets(os.environ)

    def before_relaunch(self) -> None:
        host = self._host()
        if host is not None:
            host.restarting(self.kernel_id)

    def after_relaunch(self) -> None:
        host = self._host()
        if host is not None and self.pid:
            host.launched(self.kernel_id, self.pid)

    def on_proxy_failed(self) -> None:
        super().on_proxy_failed()
        host = self._host()
        if host is not None:
            now = stamp(time.time_ns() // 1_000_000)
            host.add_event(self.kernel_id, Event(time=now, kind="lost", message=PROXY_FAILED_TEXT))

    async def _kernel_environment(
        self,
        host: KernelHost,
        env: Mapping[str, str],
        request: KernelRequest | None,
        plan: LaunchPlan,
    ) -> dict[str, str]:
        """The variables of the agent, without those that `env` overrides."""
        ours = await host.register(
            self.kernel_id,
            name=self._name(env),
            language=self._language(),
            plan=plan,
            request=request,
        )
        if GPU_VISIBILITY.isdisjoint(env):
            return ours
        return {name: value for name, value in ours.items() if name not in GPU_VISIBILITY}

    def _report_unknown_keys(self, host: KernelHost) -> None:
        message = unknown_keys_message(self._config())
        if message:
            self.log.warning("gpushare: kernel %s: %s", self.kernel_id, message)
            now = stamp(time.time_ns() // 1_000_000)
            host.add_event(self.kernel_id, Event(time=now, kind="refused", message=message))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        # An automatic restart and a person's restart can overlap: the older process would keep the
        # ports.
        if self.process is not None and self.process.poll() is None:
            self.log.warning(
                "gpushare: kernel %s is being launched twice; ending the first process",
                self.kernel_id,
            )
            await self.kill()
            await self.wait()
        return await super().launch_kernel(cmd, **kwargs)

    async def post_launch(self, **kwargs: Any) -> None:
        await super().post_launch(**kwargs)
        host = self._host()
        if host is not None and self.pid:
            host.launched(self.kernel_id, self.pid)

    async def send_signal(self, signum: int) -> None:
        await super().send_signal(signum)
        host = self._host()
        if host is not None and signum == signal.SIGINT:
            host.interrupted(self.kernel_id)

    async def shutdown_requested(self, restart: bool = False) -> None:
        self._report_ending()
        await super().shutdown_requested(restart=restart)

    async def terminate(self, restart: bool = False) -> None:
        self._report_ending()
        await super().terminate(restart=restart)

    async def kill(self, restart: bool = False) -> None:
        self._report_ending()
        await super().kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        host = self._host()
        if host is None:
            return
        if self._gate == "bootstrap" and host.is_ungated(self.kernel_id):
            _never_connected.add(self._command())
        if restart:
            host.restarting(self.kernel_id)
            return
        host.ended(self.kernel_id)
        if self._tool is not None:
            await self._tool.flush()

    # ---- parts

    def _report_ending(self) -> None:
        host = self._host()
        # After a crash, Jupyter's restarter kills a process that has ended.
        if host is not None and self.process is not None and self.process.poll() is None:
            host.ending(self.kernel_id)

    def _host(self) -> KernelHost | None:
        """The services of the server, else of this tool, if the kernel was launched with them."""
        return self._server_host() or self._tool

    def _server_host(self) -> KernelHost | None:
        service = (self._server_settings() or {}).get(SETTING)
        return service.lifecycle if isinstance(service, GpuShareService) else None

    def _is_in_tool(self) -> bool:
        """Whether no Jupyter server runs this kernel: nbconvert, papermill, `jupyter console`."""
        return self._server_settings() is None

    def _server_settings(self) -> Mapping[str, object] | None:
        """Of the server, found through the parents of the kernel manager; None: no server."""
        owner: Any = self.parent
        while owner is not None:
            settings = getattr(getattr(owner, "web_app", None), "settings", None)
            if isinstance(settings, Mapping):
                return settings
            owner = getattr(owner, "parent", None)
        return None

    async def _first_request(self, host: KernelHost) -> KernelRequest | None:
        try:
            return await self._request(host)
        except GpuShareError as error:
            text = f"{error.message} (kernelspec config: {error.field or 'gpu'})"
            if host is self._tool:
                raise RuntimeError(text) from None
            status = error.status_hint if 400 <= error.status_hint < 500 else 400
            raise HTTPError(status, text) from None

    async def _request(self, host: KernelHost) -> KernelRequest | None:
        """The kernelspec's request, checked by the scheduler if that answers quickly.

        Raises:
            GpuShareError: it is invalid.
        """
        request = from_config(self._request_config())
        return await host.check(request) if request is not None else None

    def _request_config(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in CONFIG_FIELDS}

    def _config(self) -> Mapping[str, object]:
        """The kernelspec's `config`, unchanged."""
        stanza = (getattr(self.kernel_spec, "metadata", None) or {}).get("kernel_provisioner")
        config = stanza.get("config") if isinstance(stanza, Mapping) else None
        return config if isinstance(config, Mapping) else {}

    def _name(self, env: Mapping[str, str]) -> str:
        """The notebook's path below the server's root, or "" if Jupyter does not pass it."""
        path = env.get("JPY_SESSION_NAME", "")
        root = getattr(getattr(self.parent, "parent", None), "root_dir", "") or ""
        if path and root and path.startswith(root.rstrip("/") + "/"):
            return os.path.relpath(path, root)
        return path or (tool_name(env) if self._is_in_tool() else "")

    def _command(self) -> tuple[str, ...]:
        return tuple(getattr(self.kernel_spec, "argv", None) or ())

    def _language(self) -> str:
        return str(getattr(self.kernel_spec, "language", "") or "")
