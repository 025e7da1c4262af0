"""The configuration of the scheduler program: traitlets, read the Jupyter way."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from jupyter_core.application import JupyterApp
from jupyter_core.paths import jupyter_data_dir
from traitlets import Bool, Dict, Float, Integer, List, TraitError, Unicode, default

from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput

from .auth.rate_limits import GENEROUS
from .store.leadership import SILENT_S
from .store.retention import ENDED_PER_USER

__all__ = ["SchedulerConfig", "state_directory"]

PORT: Final = 8470


def state_directory() -> Path:
    """Default directory of the state of scheduler and agent."""
    return Path(os.environ.get("GPUSHARE_STATE") or Path(jupyter_data_dir()) / "gpushare")


class SchedulerConfig(JupyterApp):
    """Options of `SchedulerApp`."""

    name = "jupyter-gpushare-scheduler"
    config_file_name = Unicode("jupyter_gpushare_config")

    host = Unicode("127.0.0.1", config=True, help="Address to listen on; 0.0.0.0: all interfaces.")
    port = Integer(PORT, min=0, max=65535, config=True, help="Port to listen on; 0: any free port.")
    certfile = Unicode(
        "", config=True, help="TLS certificate (PEM). Without one, use a proxy that terminates TLS."
    )
    keyfile = Unicode("", config=True, help="Key of the certificate, if it is in another file.")
    client_ca = Unicode(
        "",
        config=True,
        help="CA certificates (PEM): if set, agents need a client certificate for their node.",
    )
    socket = Unicode(
        "",
        config=True,
        help="Unix socket; callers are unix users. The only listener if host and port are not set.",
    )
    socket_mode = Integer(
        0o666, min=0, max=0o777, config=True, help="Permissions of the unix socket file."
    )
    admin_users = List(
        Unicode(),
        config=True,
        help="Unix users (and `group:NAME`) that are admins, besides root and the service's user.",
    )
    calls_per_second = Float(
        GENEROUS.calls_per_s, min=0, config=True, help="Calls per second per caller; 0: unlimited."
    )
    calls_at_once = Integer(
        GENEROUS.calls_at_once, min=1, config=True, help="Burst of calls per caller."
    )
    body_bytes = Integer(
        GENEROUS.body_bytes, min=1024, config=True, help="Largest body of a call, in bytes."
    )
    frames_per_second = Float(
        GENEROUS.frames_per_s,
        min=0,
        config=True,
        help="Frames per second per agent connection; 0: unlimited.",
    )
    links_per_caller = Integer(
        GENEROUS.links, min=0, config=True, help="Open WebSockets per caller; 0: unlimited."
    )
    pending_pods_per_user = Integer(
        GENEROUS.pods_per_user,
        min=0,
        config=True,
        help="Pods per user that are pending or run without a GPU; 0: unlimited.",
    )
    pods_per_workload = Integer(
        GENEROUS.pods_per_workload, min=0, config=True, help="Pods per workload; 0: 10000."
    )
    output_bytes_per_user = Integer(
        GENEROUS.output_per_user,
        min=0,
        config=True,
        help="Output of a user's commands that is stored; the oldest is removed; 0: unlimited.",
    )
    frame_bytes = Integer(
        GENEROUS.frame_bytes, min=1024, config=True, help="Largest WebSocket frame, in bytes."
    )
    state_dir = Unicode(
        config=True,
        help="State directory; default: $GPUSHARE_STATE, else gpushare/ in Jupyter's data.",
    )
    db_url = Unicode(
        "", config=True, help="Database URL (SQLAlchemy); default: SQLite in the state directory."
    )
    db_upgrade = Bool(
        False, config=True, help="Upgrade the tables of an older PostgreSQL database at the start."
    )
    leader_silent_s = Float(
        SILENT_S,
        min=0.5,
        config=True,
        help="Seconds without renewal after which a standby on the same database takes over.",
    )
    public_url = Unicode(
        "",
        config=True,
        help="URL of this scheduler for users, named by standbys; default: where it listens.",
    )
    policy_file = Unicode(
        "",
        config=True,
        help="Policy file (gpushare.yaml). Reloaded when it changes, and on SIGHUP.",
    )
    token_file = Unicode(
        "",
        config=True,
        help="File of the admin's token, created if missing; default: admin.token in state_dir.",
    )
    retention_days = Integer(
        90, min=1, config=True, help="Days for which ended workloads are kept."
    )
    ended_workloads_per_user = Integer(
        ENDED_PER_USER,
        min=0,
        config=True,
        help="Ended workloads per user that are kept, the latest; 0: all of retention_days.",
    )
    event_retention_days = Integer(90, min=1, config=True, help="Days for which events are kept.")
    usage_retention_days = Integer(400, min=1, config=True, help="Days for which usage is kept.")
    protect_metrics = Bool(False, config=True, help="Require a token for /metrics.")
    hub_api_url = Unicode(
        "",
        config=True,
        help="JupyterHub's API, whose tokens and groups are accepted; default: the managing Hub's.",
    )
    hub_api_token_file = Unicode(
        "",
        config=True,
        help="File with this service's token for JupyterHub; default: $JUPYTERHUB_API_TOKEN.",
    )
    hub_service = Unicode(
        "gpushare",
        config=True,
        help="Name of this service in JupyterHub, if the Hub does not manage it.",
    )
    hub_ca_file = Unicode(
        "",
        config=True,
        help="CA certificates for JupyterHub's API at https://; default: the system's.",
    )
    hub_remember_s = Float(
        60.0,
        min=0,
        config=True,
        help="Seconds for which the owner of a JupyterHub token is cached.",
    )
    hub_refresh_s = Float(
        30.0, min=1, config=True, help="Seconds between two reads of JupyterHub's groups."
    )
    kubernetes = Bool(
        False,
        config=True,
        help="Read nodes and pods of a Kubernetes cluster, and accept its service-account tokens"
        " from agents.",
    )
    kubernetes_namespace = Unicode(
        "",
        config=True,
        help="Namespace of the agents and slots; default: this pod's, else gpushare.",
    )
    kubernetes_operator_namespace = Unicode(
        "",
        config=True,
        help="Namespace of the GPU Operator, whose pods are read too; default: they are not read.",
    )
    kubernetes_reserve = Bool(
        True, config=True, help="A managed node is ready only when slot pods hold all of its GPUs."
    )
    kubernetes_agent_account = Unicode(
        "",
        config=True,
        help="User name of the agents' service account;"
        " default: system:serviceaccount:NAMESPACE:gpushare-agent.",
    )
    groups = Dict(
        List(Unicode()),
        config=True,
        help="Members of the groups in the policy: {'vision': ['alice']}.",
    )

    @default("state_dir")
    def _state_dir_default(self) -> str:
        return str(state_directory())

    def read_configuration(self) -> None:
        """Reads `config_file`, or Jupyter's config directories. Raises InvalidInput."""
        self.log.addFilter(
            lambda record: not str(record.msg).startswith("Bad config")
        )  # `exit` reports it
        try:
            self.initialize([])
        except GpuShareError:
            raise
        except Exception as error:  # the file is Python and may raise anything
            raise InvalidInput(
                f"the configuration cannot be read: {error}", field=self.config_file or None
            ) from error

    def exit(self, exit_status: int | str | None = 0) -> None:
        """Raises InvalidInput where traitlets would end the process over a bad value."""
        error = sys.exc_info()[1]
        if isinstance(error, TraitError):
            raise InvalidInput(
                f"the configuration cannot be used: {error}", field=self.config_file or None
            ) from error
        super().exit(exit_status)
