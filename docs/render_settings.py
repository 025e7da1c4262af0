"""docs/reference/settings.md and metrics.md: traits, settings of the front end, variables of the
environment, metrics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traitlets import Bool, Enum, Float, Integer, TraitType
from traitlets.config import Configurable

from jupyter_gpushare.scheduler.app import SchedulerApp
from jupyter_gpushare.scheduler.app_config import SchedulerConfig
from jupyter_gpushare.scheduler.service.metric_table import METRICS
from jupyter_gpushare.server_extension.extension import GpuShareExtension
from jupyter_gpushare.server_extension.provisioner import GpuShareProvisioner

PLUGIN = Path(__file__).parent.parent / "labextension/schema/plugin.json"
IN_SERVER = (
    'In `jupyter_server_config.py` (`c.GpuShareExtension.simulate = "A100:2"`), or as an'
    " option: `jupyter lab --GpuShareExtension.simulate=A100:2`."
)
IN_KERNELSPEC = (
    "In `metadata.kernel_provisioner.config` of a [kernelspec](../how-to/kernelspec.md), or for"
    " all kernels in `jupyter_server_config.py` (`c.GpuShareProvisioner.gpu = 0.5`)."
)
IN_SCHEDULER = (
    "In `jupyter_gpushare_config.py` of the scheduler service (`c.SchedulerApp.port = 8470`)."
    " Options of [`jupyter gpushare scheduler`](commands.md#scheduler) take precedence."
)
CONFIGURED: dict[str, tuple[type[Configurable], str]] = {
    "Jupyter server": (GpuShareExtension, IN_SERVER),
    "Kernelspec": (GpuShareProvisioner, IN_KERNELSPEC),
    "Scheduler": (SchedulerApp, IN_SCHEDULER),
}
"""Heading -> the class, and where it is configured."""

VARIABLES: dict[str, str] = {
    "GPUSHARE_SCHEDULER": "address of the scheduler, for servers, agents, commands and tools;"
    " several are separated by commas",
    "GPUSHARE_TOKEN_FILE": "file with the token for the scheduler",
    "GPUSHARE_CA_FILE": "CA certificates for an https:// scheduler",
    "GPUSHARE_STATE": "directory for the state of scheduler and agent",
    "GPUSHARE_AGENT_SOCKET": "unix socket of this machine's agent, for Jupyter servers and tools",
    "GPUSHARE_LOG_FORMAT": "`text` or `json`: the log of scheduler and agent",
    "GPUSHARE_DB_URL": "removed from the environment of kernels, since it may contain a password",
    "GPUSHARE_CGROUP": "cgroup in which the agent makes a group per kernel",
    "GPUSHARE_AGENT_WAIT": "seconds for which cells wait for an absent agent; set it in a"
    " kernelspec's `env`",
    "GPUSHARE_REQUIRED": "`1`: a tool without a Jupyter server fails if it gets no GPU",
    "GPUSHARE_HIDES_GPUS": "set by a kernelspec or server that chooses the visible GPUs itself",
    "GPUSHARE_WORKLOAD": "in batch commands: the id of the workload",
    "GPUSHARE_POD": "in batch commands: the name of the pod",
}
"""What an administrator or user sets, or a command may read."""
INTERNAL: dict[str, str] = {
    "GPUSHARE_AGENT": "the agent's socket, for one kernel",
    "GPUSHARE_COMPLETE": "completion of a shell",
    "GPUSHARE_KERNEL_ID": "the id of a kernel",
    "GPUSHARE_LAUNCH": "marks the processes of one launch",
    "GPUSHARE_LAUNCHED_WITH": "the GPUs that a kernel behind a proxy was started with",
    "GPUSHARE_PROBLEM": "why no agent is expected",
    "GPUSHARE_PROXY_OF": "the kernel that a proxy gates",
    "GPUSHARE_SIMGPU": "the file of the simulated node",
    "GPUSHARE_USER_STARTUP": "the user's own `PYTHONSTARTUP`",
    "GPUSHARE_WANTS_GPU": "`1`: cells wait for the first grant",
}
"""Between our own processes; they may change in any version."""


def settings(written: str) -> str:
    """The page of settings."""
    parts = ["# Settings", written]
    for title, (kind, where) in CONFIGURED.items():
        rows = ["| setting | default | |", "|---|---|---|"]
        rows += [_row(kind, name, trait) for name, trait in traits_of(kind).items()]
        parts += [f"## {title}", where, "\n".join(rows)]
    parts += ["## JupyterLab and Notebook 7", _front_end_head(), "\n".join(_front_end_rows())]
    parts += [
        "## Node agent",
        "The options of [`jupyter gpushare agent`](commands.md#agent).",
        "## Variables of the environment",
        "\n".join(["| variable | |", "|---|---|", *_variables(VARIABLES)]),
        "These pass between the project's own processes and may change in any version:",
        "\n".join(["| variable | |", "|---|---|", *_variables(INTERNAL)]),
    ]
    return "\n\n".join(parts) + "\n"


def traits_of(kind: type[Configurable]) -> dict[str, TraitType]:
    """The settings that this project's classes add, in the order of the code."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("jupyter_gpushare.")]
    found = kind.class_traits(config=True)
    names = [name for base in reversed(own) for name in vars(base) if name in found]
    return {name: found[name] for name in dict.fromkeys(names)}


def _row(kind: type[Configurable], name: str, trait: TraitType) -> str:
    meaning = _cell(trait.help) + _bounds(trait)
    return f"| `{_class_name(kind)}.{name}` | {_default(trait)} | {meaning} |"


def _class_name(kind: type[Configurable]) -> str:
    return SchedulerApp.__name__ if issubclass(kind, SchedulerConfig) else kind.__name__


def _default(trait: TraitType) -> str:
    value = trait.default_value
    if isinstance(trait, (Bool, Integer, Float, Enum)) or (isinstance(value, str) and value):
        text = oct(value) if trait.name == "socket_mode" else value
        return f"`{text}`"
    return ""


def _bounds(trait: TraitType) -> str:
    if isinstance(trait, Enum):
        return f" One of {', '.join(f'`{value}`' for value in trait.values or ())}."
    return ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _front_end_head() -> str:
    return "Under *Settings, Settings Editor, GPU share*, or in `overrides.json` for all users."


def _front_end_rows() -> list[str]:
    properties = json.loads(PLUGIN.read_text())["properties"]
    rows = [_front_end_row(name, one) for name, one in properties.items()]
    return ["| setting | default | |", "|---|---|---|", *rows]


def _front_end_row(name: str, one: dict[str, Any]) -> str:
    parts: dict[str, dict[str, Any]] = one.get("properties", {})
    default = {key: part["default"] for key, part in parts.items()} or one["default"]
    meaning = " ".join([one["description"], *(f"`{k}`: {v['title']}." for k, v in parts.items())])
    return f"| `{name}` | `{json.dumps(default)}` | {_cell(meaning)} |"


def _variables(table: dict[str, str]) -> list[str]:
    return [f"| `{name}` | {text} |" for name, text in table.items()]


def metrics(written: str) -> str:
    """The page of metrics."""
    head = (
        "`GET /metrics` of the scheduler, in the Prometheus format."
        " [Metrics, logs, usage and audit](../how-to/observability.md) shows how to scrape them, a"
        " Grafana dashboard and alerts. Counters start at 0 with the scheduler, and their series"
        " exist before the first event, so `rate()` and `increase()` miss nothing. Times measured"
        " by agents arrive with their reports, a few seconds later. `process_*` and `python_*` are"
        " memory, CPU, open files and start time of the scheduler's process."
    )
    rows = ["| metric | kind | labels | |", "|---|---|---|---|"]
    for row in METRICS:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        text = f"{row.help[0].upper()}{row.help[1:]} {row.note}".strip()
        rows.append(f"| `{row.series}` | {row.kind} | {labels} | {text} |")
    return "\n\n".join(["# Metrics", written, head, "\n".join(rows)]) + "\n"
