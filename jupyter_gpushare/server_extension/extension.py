"""The server extension: configuration, and the life of what it starts. Chooses embedded or remote;
decides nothing else.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jupyter_core.paths import jupyter_data_dir
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, List, Unicode, default

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError

from .clients.embedded_scheduler import SchedulerRunsElsewhere, start_local
from .clients.jupyter_server import JupyterServer, register_events
from .clients.scheduler_line import SchedulerLine
from .handlers.api import SETTING, handlers
from .requests.presets import DEFAULT_PRESETS, presets_or_usual
from .services.service import GpuShareService

if TYPE_CHECKING:
    from jupyter_gpushare.scheduler.embedded import EmbeddedServer

__all__ = ["GpuShareExtension", "local_user"]

PROVISIONER: Final = "gpushare-provisioner"
LOOK_AGAIN_S: Final = 2.0
"""Seconds between two looks whether the server that runs scheduler and agent for this one as well
is still there.
"""


def local_user() -> str:
    """Who runs this process; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


class GpuShareExtension(ExtensionApp):
    """Share GPUs between notebooks."""

    name = "jupyter_gpushare"
    app_name = "GPU share"
    description = "Shares of GPUs for notebooks, with a scheduler of its own or a cluster's."
    load_other_extensions = True

    scheduler_url = Unicode(
        "",
        config=True,
        help="Address of the scheduler service: http://, https:// or unix:///PATH; nothing: run one inside this server.",
    )
    scheduler_token_file = Unicode(
        "",
        config=True,
        help="File with this server's token for the scheduler service; default: $JUPYTERHUB_API_TOKEN, where there is one.",
    )
    scheduler_ca_file = Unicode(
        "",
        config=True,
        help="Certificates to trust for an https:// scheduler; default: the system's.",
    )
    agent_socket = Unicode(
        "",
        config=True,
        help="Unix socket of this machine's node agent; default: `agent.sock` in the state directory.",
    )
    state_dir = Unicode(
        config=True,
        help="State of scheduler and agent; default: $GPUSHARE_STATE or gpushare/ in Jupyter's data.",
    )
    policy_file = Unicode(
        "", config=True, help="The administrator's policy for the scheduler inside this server."
    )
    simulate = Unicode(
        "",
        config=True,
        help="Simulated GPUs for the agent inside this server: MODEL:N or N. Always labelled as simulated.",
    )
    simulated_gpu_memory = Unicode("80GiB", config=True, help="Memory of each simulated GPU.")
    host_memory = Unicode(
        "",
        config=True,
        help="At most so much host memory for saved GPU memory (64GiB), for the agent inside this server; default: what is free.",
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
        help="Shares that people choose by name: a list of mappings with `name`, perhaps `description`, and the fields of a request "
        "(`gpu` or `gpu_memory`, `gpu_limit`, `project`, `node_pools`, `priority_class`).",
    )
    user = Unicode(
        config=True,
        help="On whose behalf this server asks; default: $JUPYTERHUB_USER or the user of the operating system.",
    )

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return os.environ.get("GPUSHARE_STATE") or str(Path(jupyter_data_dir()) / "gpushare")

    @default("user")
    def _default_user(self) -> str:
        return os.environ.get("JUPYTERHUB_USER") or local_user()

    # ---- before the server's classes are made

    def _link_jupyter_server_extension(self, serverapp: Any) -> None:
        """The only moment at which another class's default can still be set; what the administrator
        set wins.
        """
        super()._link_jupyter_server_extension(serverapp)
        factory = serverapp.config.KernelProvisionerFactory
        taken = "default_provisioner_name" in factory or bool(
            os.environ.get("JUPYTER_DEFAULT_PROVISIONER_NAME")
        )
        if self.make_default_provisioner and not taken:
            factory.default_provisioner_name = PROVISIONER

    # ---- with the server

    def initialize_settings(self) -> None:
        self._local: EmbeddedServer | None = None
        self._tasks = BackgroundTasks(self.log)
        register_events(self.serverapp)
        self._scheduler = self._line()
        self._jupyter = JupyterServer(self.serverapp)
        presets = presets_or_usual(self.presets)
        if presets.problem:
            self.log.error("gpushare: %s", presets.problem)
        self.sharing = GpuShareService(
            self._jupyter,
            self._scheduler,
            self._socket(),
            self.log,
            mode="remote" if self.scheduler_url else "embedded",
            user=self.user,
            on_behalf=self.user if self.scheduler_url else None,
            simulated=bool(self.simulate) and not self.scheduler_url,
            presets=presets,
        )
        self.settings[SETTING] = self.sharing

    def _line(self) -> SchedulerLine:
        """The token of JupyterHub stays in this server: the provisioner takes it out of the
        environment of kernels.
        """
        if not self.scheduler_url:
            return SchedulerLine()
        hub_token = os.environ.get("JUPYTERHUB_API_TOKEN", "")
        return SchedulerLine.over_http(
            self.scheduler_url, self.scheduler_token_file, hub_token, self.scheduler_ca_file
        )

    def initialize_handlers(self) -> None:
        """Ours go under the server's base URL, not under the extension's name."""
        assert self.serverapp is not None
        self.serverapp.web_app.add_handlers(".*$", handlers(self.serverapp.base_url))

    def _state(self) -> Path:
        return Path(self.state_dir).absolute()

    def _socket(self) -> str:
        return self.agent_socket or str(Path(self.state_dir) / "agent.sock")

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:  # noqa: ARG002 - Jupyter's signature
        """The loop runs. What takes time goes on beside the server's start."""
        self.sharing.start()
        if self.scheduler_url:
            self.sharing.started.set()
        else:
            self._tasks.spawn(self._start_local())

    async def _start_local(self) -> None:
        """In this server; or where another server of this person has them already, until that one
        ends: then here.
        """
        is_guest = False
        try:
            while (elsewhere := await self._try_local()) is not None:
                if not is_guest:
                    is_guest = True
                    self._scheduler.connect(elsewhere.transport)
                    self.log.info(
                        "gpushare: %s; this server uses them, and takes over when it ends",
                        elsewhere.message,
                    )
                    self.sharing.started.set()
                await asyncio.sleep(LOOK_AGAIN_S)
            if (
                self._local is not None and not is_guest
            ):  # a guest stays on the socket: whoever takes over listens there as well
                self._scheduler.connect(self._local.transport)
        finally:
            self.sharing.started.set()

    async def _try_local(self) -> SchedulerRunsElsewhere | None:
        """None: it is decided, they run here or they cannot."""
        try:
            self._local = await start_local(
                state_dir=self._state(),
                socket=Path(self._socket()),
                policy_file=Path(self.policy_file) if self.policy_file else None,
                simulate=self.simulate,
                gpu_memory=self.simulated_gpu_memory,
                host_memory=self.host_memory,
                user=self.user,
                tell=self._takes_long,
            )
        except SchedulerRunsElsewhere as elsewhere:
            return elsewhere
        except GpuShareError as error:
            self.log.warning("gpushare: no GPUs are managed here: %s", error.message)
            self.sharing.problem = self._scheduler.problem = error.message
        except Exception:
            self.log.exception("gpushare: the scheduler inside this server did not start")
            self.sharing.problem = self._scheduler.problem = (
                "the scheduler inside this server did not start; its log says why"
            )
        else:
            label = " (simulated GPUs)" if self.simulate else ""
            self.log.info(
                "gpushare: scheduler and node agent run inside this server%s, state in %s",
                label,
                self.state_dir,
            )
        return None

    def _takes_long(self, problem: str) -> None:
        """The driver does not answer: kernels start without a GPU meanwhile, and are made known
        when it does.
        """
        if problem:
            problem = f"{problem}; it is waited for, and kernels start without a GPU (the system's log, `dmesg`, may say more)"
            self.log.warning("gpushare: %s", problem)
            self.sharing.started.set()
        else:
            self.log.info("gpushare: the GPU driver answers")
        self.sharing.problem = problem or None
        self._scheduler.problem = problem or "the scheduler inside this server is starting"

    async def stop_extension(self) -> None:
        """Jupyter is about to shut its kernels down; give back, then stop what runs here."""
        self._jupyter.forget_failed_starts()
        await self._tasks.close()
        await self.sharing.stop()
        if self._local is not None:
            await self._local.stop()
