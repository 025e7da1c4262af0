"""The server extension: configuration, start and stop of services and embedded scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, cast

from jupyter_core.paths import jupyter_data_dir
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Enum, List, Unicode, default

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.client import SchedulerClient

from .clients.agent_client import AgentClient
from .clients.embedded_scheduler import EmbeddedOptions
from .clients.embedded_services import EmbeddedServices
from .clients.gateway_relay import GatewayRelay
from .clients.jupyter_server import JupyterServer, gateway_text, register_events
from .clients.local_user import local_user
from .clients.scheduler_transport import LateTransport, remote_scheduler
from .handlers.api import handlers
from .requests.presets import DEFAULT_PRESETS, presets_or_default
from .services.service import SETTING, GpuShareService
from .services.status import ServiceSettings

__all__ = ["GpuShareExtension", "local_user"]

PROVISIONER: Final = "gpushare-provisioner"


class GpuShareExtension(ExtensionApp):
    """Share GPUs between notebooks."""

    name = "jupyter_gpushare"
    app_name = "GPU share"
    description = "GPU shares for notebooks, with an embedded scheduler or a cluster's scheduler."
    load_other_extensions = True

    scheduler_url = Unicode(
        "",
        config=True,
        help=(
            "Address of the scheduler service: http://, https:// or unix:///PATH. "
            "Default: $GPUSHARE_SCHEDULER; without it an embedded scheduler runs inside this "
            "server."
        ),
    )
    scheduler_token_file = Unicode(
        "",
        config=True,
        help=(
            "File with this server's token for the scheduler service. "
            "Default: $JUPYTERHUB_API_TOKEN, if it is set."
        ),
    )
    scheduler_ca_file = Unicode(
        "", config=True, help="CA certificates for an https:// scheduler. Default: the system's."
    )
    agent_socket = Unicode(
        "",
        config=True,
        help=(
            "Unix socket of this machine's node agent. "
            "Default: with a scheduler service $GPUSHARE_AGENT_SOCKET; else `agent.sock` in the "
            "state folder."
        ),
    )
    state_dir = Unicode(
        config=True,
        help=(
            "Folder for the state of scheduler and agent. "
            "Default: $GPUSHARE_STATE, or gpushare/ in Jupyter's data folder."
        ),
    )
    policy_file = Unicode("", config=True, help="Policy file of the embedded scheduler.")
    simulate = Unicode(
        "",
        config=True,
        help=(
            "Simulated GPUs for the embedded agent: MODEL:N or N. "
            "They are always labelled as simulated."
        ),
    )
    simulated_gpu_memory = Unicode("80GiB", config=True, help="Memory of each simulated GPU.")
    host_memory = Unicode(
        "",
        config=True,
        help=(
            "Largest amount of host memory that the embedded agent uses to save GPU memory, such "
            "as 64GiB. Default: all free host memory."
        ),
    )
    ungated_devices = Enum(
        ("share", "none"),
        "share",
        config=True,
        help=(
            "GPUs that a kernel sees whose cells do not ask before they run, of the embedded agent:"
            " those of the share that it has when it starts, or none."
        ),
    )
    make_default_provisioner = Bool(
        True,
        config=True,
        help="Start kernels through gpushare unless their kernelspec names another provisioner.",
    )
    presets = List(
        Dict(),
        DEFAULT_PRESETS,
        config=True,
        help=(
            "Named shares: a list of mappings with `name`, an optional `description` and the "
            "fields of a request (`gpu` or `gpu_memory`, `gpu_limit`, `project`, `node_pools`, "
            "`priority_class`)."
        ),
    )
    user = Unicode(
        config=True,
        help=(
            "User on whose behalf this server requests GPUs. "
            "Default: $JUPYTERHUB_USER or the operating system's user."
        ),
    )

    @default("scheduler_url")
    def _default_scheduler_url(self) -> str:
        return os.environ.get("GPUSHARE_SCHEDULER", "")

    @default("agent_socket")
    def _default_agent_socket(self) -> str:
        """An embedded agent makes its own socket."""
        return os.environ.get("GPUSHARE_AGENT_SOCKET", "") if self.scheduler_url else ""

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return os.environ.get("GPUSHARE_STATE") or str(Path(jupyter_data_dir()) / "gpushare")

    @default("user")
    def _default_user(self) -> str:
        return os.environ.get("JUPYTERHUB_USER") or local_user()

    # ---- before the server's classes are instantiated

    def _link_jupyter_server_extension(self, serverapp: Any) -> None:
        """Set the default provisioner; only at this point can another class be configured.

        The administrator's own setting takes precedence.
        """
        super()._link_jupyter_server_extension(serverapp)
        factory = serverapp.config.KernelProvisionerFactory
        is_configured = "default_provisioner_name" in factory or bool(
            os.environ.get("JUPYTER_DEFAULT_PROVISIONER_NAME")
        )
        if self.make_default_provisioner and not is_configured:
            factory.default_provisioner_name = PROVISIONER

    # ---- start and stop

    def initialize_settings(self) -> None:
        self._tasks = BackgroundTasks(self.log)
        register_events(self.serverapp)
        self._jupyter = JupyterServer(self.serverapp)
        transport = LateTransport()
        self.service = GpuShareService(
            self._jupyter,
            self._scheduler_client(transport),
            AgentClient(self._socket(), self.log, is_optional=bool(self.scheduler_url)),
            self._service_settings(),
            self.log,
        )
        self._check_gateway()
        self.embedded = EmbeddedServices(
            self._embedded_options(), transport, self.service.startup, self.log
        )
        self.settings[SETTING] = self.service

    def _check_gateway(self) -> None:
        startup, serverapp = self.service.startup, cast(Any, self.serverapp)
        startup.gateway_text = gateway_text(serverapp)
        if not self.scheduler_url:
            startup.problem = startup.gateway_text
        if startup.gateway_text is not None:
            self.service.relay = GatewayRelay(serverapp.gateway_config, self.log)

    def _service_settings(self) -> ServiceSettings:
        presets = presets_or_default(self.presets)
        if presets.problem:
            self.log.error("gpushare: %s", presets.problem)
        is_remote = bool(self.scheduler_url)
        return ServiceSettings(
            mode="remote" if is_remote else "embedded",
            user=self.user,
            presets=presets,
            simulated=bool(self.simulate) and not is_remote,
        )

    def _scheduler_client(self, transport: LateTransport) -> SchedulerClient:
        """In remote mode with the JupyterHub token, which the provisioner hides from kernels."""
        if not self.scheduler_url:
            return SchedulerClient(transport)
        hub_token = os.environ.get("JUPYTERHUB_API_TOKEN", "")
        return remote_scheduler(
            self.scheduler_url, self.scheduler_token_file, hub_token, self.scheduler_ca_file
        )

    def initialize_handlers(self) -> None:
        """The handlers are under the server's base URL, not under the extension's name."""
        assert self.serverapp is not None
        web_app: Any = self.serverapp.web_app
        web_app.add_handlers(".*$", handlers(self.serverapp.base_url))
        # not `_start_jupyter_server_extension`, which Jupyter Server 2.13 does not call
        self.serverapp.io_loop.add_callback(self._start)

    def _socket(self) -> str:
        return self.agent_socket or str(Path(self.state_dir) / "agent.sock")

    def _start(self) -> None:
        """The event loop runs. The embedded services start in the background, unless the kernels
        run on a gateway.
        """
        self.service.start()
        if self.scheduler_url or self.service.startup.gateway_text is not None:
            self.service.startup.finished.set()
        else:
            self._tasks.spawn(self.embedded.start())

    def _embedded_options(self) -> EmbeddedOptions:
        return EmbeddedOptions(
            state_dir=Path(self.state_dir).absolute(),
            socket=Path(self._socket()),
            policy_file=Path(self.policy_file) if self.policy_file else None,
            simulate=self.simulate,
            gpu_memory=self.simulated_gpu_memory,
            host_memory=self.host_memory,
            ungated_devices="none" if self.ungated_devices == "none" else "share",
            user=self.user,
        )

    async def stop_extension(self) -> None:
        """Before Jupyter shuts its kernels down: end their workloads and the embedded services."""
        self._jupyter.forget_failed_starts()
        await self._tasks.close()
        await self.service.stop()
        await self.embedded.stop()
