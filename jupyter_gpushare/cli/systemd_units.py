"""The text of the systemd units of scheduler and node agent. Pure: no file is read or written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["UNITS", "Unit", "quoted"]

SCHEDULER_SOCKET: Final = "/run/gpushare-scheduler/scheduler.sock"


@dataclass(frozen=True, slots=True)
class Unit:
    """`arguments`: of `jupyter gpushare`; `before`: what has to be done before the first start."""

    name: str
    description: str
    after: str
    arguments: tuple[str, ...]
    settings: tuple[str, ...]
    before: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return f"{self.name}.service"

    def text(self, program: str, options: Sequence[str] = (), *, user: str = "gpushare") -> str:
        """The unit. `program`: the path of `jupyter`; `options` are appended to the command."""
        command = " ".join(map(quoted, (program, "gpushare", *self.arguments, *options)))
        service = [f"ExecStart={command}", *(line.format(user=user) for line in self.settings)]
        sections = {
            "Unit": [
                f"Description={self.description}",
                f"After={self.after}",
                "Wants=network-online.target",
            ],
            "Service": service,
            "Install": ["WantedBy=multi-user.target"],
        }
        return "\n".join("\n".join([f"[{name}]", *sections[name], ""]) for name in sections)


def quoted(argument: str) -> str:
    """As systemd reads it in ExecStart=: quotes, and nothing expanded."""
    if re.fullmatch(r"[\w@:,./=+*-]+", argument):
        return argument
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'


_ANY: Final = ("Restart=always", "RestartSec=2", "TimeoutStopSec=30", "LimitNOFILE=65536")

UNITS: Final = {
    "scheduler": Unit(
        "gpushare-scheduler",
        "jupyter-gpushare scheduler",
        "network-online.target",
        (
            *("scheduler", "--state-dir", "/var/lib/gpushare-scheduler"),
            *("--policy", "/etc/gpushare/gpushare.yaml", "--socket", SCHEDULER_SOCKET),
        ),
        (
            "User={user}",
            *_ANY,
            "StateDirectory=gpushare-scheduler",
            "StateDirectoryMode=0700",
            "RuntimeDirectory=gpushare-scheduler",
            "RuntimeDirectoryMode=0755",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "PrivateDevices=yes",
            "ProtectKernelTunables=yes",
            "ProtectControlGroups=yes",
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        ),
        (
            "useradd --system --home-dir /var/lib/gpushare-scheduler {user}",
            "install -D -m 0644 gpushare.yaml /etc/gpushare/gpushare.yaml",
        ),
    ),
    "agent": Unit(
        "gpushare-agent",
        "jupyter-gpushare node agent",
        "network-online.target gpushare-scheduler.service",
        (
            *("agent", "--users", "all", "--run-commands", "users"),
            *("--scheduler", f"unix://{SCHEDULER_SOCKET}", "--state-dir"),
            "/var/lib/gpushare-agent",
        ),
        (
            *_ANY,
            "Delegate=yes",
            "KillMode=process",
            "OOMPolicy=continue",
            "StateDirectory=gpushare-agent",
            "StateDirectoryMode=0700",
            "RuntimeDirectory=gpushare",
            "RuntimeDirectoryMode=0711",
            "RuntimeDirectoryPreserve=yes",
        ),
        (),
    ),
}
"""Name of the service -> its unit, for one machine with several users."""
