"""Names that the chart, the scheduler and `kube check` share. The chart uses the same values."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT_ACCOUNT",
    "AGENT_NAME",
    "AUDIENCE",
    "COMPONENT_AGENT",
    "COMPONENT_LABEL",
    "COMPONENT_SCHEDULER",
    "COMPONENT_SLOT",
    "DCGM_EXPORTER_APPS",
    "DEPLOY_DCGM_EXPORTER_LABEL",
    "DEPLOY_TOOLKIT_LABEL",
    "GPU_COUNT_LABEL",
    "GPU_RESOURCE",
    "GROUP",
    "HUB_ACCESS_LABEL",
    "MANAGED_LABEL",
    "MANAGED_VALUE",
    "MIG_RESOURCE_PREFIX",
    "NAME_LABEL",
    "NAMESPACE",
    "NODE_NAME_VARIABLE",
    "PART_OF",
    "PRIORITY_CLASS",
    "REPLICAS_LABEL",
    "SCHEDULER_ACCOUNT",
    "SCHEDULER_NAME",
    "SCHEDULER_PORT",
    "SHARING_LABEL",
    "SLOT_LABEL",
    "SLOT_NAME",
    "SOCKET_DIRECTORY",
    "SOCKET_FILE",
    "STATE_DIRECTORY",
    "TOKEN_FILE",
    "TOKEN_LIFETIME_S",
    "TOOLKIT_APP",
]

GROUP: Final = "gpushare.jupyter.org"
NAMESPACE: Final = "gpushare"
"""The default namespace, outside of a cluster."""

MANAGED_LABEL: Final = f"{GROUP}/managed"
"""Label of nodes whose GPUs are shared; also the key of the optional taint."""
MANAGED_VALUE: Final = "true"

# Labels of pods

NAME_LABEL: Final = "app.kubernetes.io/name"
PART_OF: Final = "gpushare"
"""Value of `NAME_LABEL` on all pods of the chart."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
COMPONENT_SCHEDULER: Final = "scheduler"
COMPONENT_AGENT: Final = "agent"
COMPONENT_SLOT: Final = "slot"
SLOT_LABEL: Final = f"{GROUP}/slot"
"""Label of slot pods; the value is the number of the slot, from 0."""
HUB_ACCESS_LABEL: Final = "hub.jupyter.org/network-access-hub"
"""With the value "true" on the scheduler's pod, z2jh's network policy lets it reach the Hub."""

# Objects

SLOT_NAME: Final = "gpushare-slot-{}"
"""DaemonSet of one slot, by number."""
AGENT_NAME: Final = "gpushare-agent"
"""DaemonSet of the agents."""
SCHEDULER_NAME: Final = "gpushare-scheduler"
"""StatefulSet and headless Service."""
AGENT_ACCOUNT: Final = "gpushare-agent"
"""Service account of the agents: their tokens name the node."""
SCHEDULER_ACCOUNT: Final = "gpushare-scheduler"
PRIORITY_CLASS: Final = "gpushare-slot"
SCHEDULER_PORT: Final = 8470

# Agents

AUDIENCE: Final = "gpushare"
"""Audience of the projected service-account tokens that agents show to the scheduler."""
TOKEN_FILE: Final = "/var/run/secrets/gpushare/token"  # noqa: S105 - a path
"""Where the agent's projected token is mounted; `GPUSHARE_TOKEN_FILE` of the agent."""
TOKEN_LIFETIME_S: Final = 3600
NODE_NAME_VARIABLE: Final = "NODE_NAME"
"""From `spec.nodeName`; the agent runs with `--node $(NODE_NAME)`."""
SOCKET_DIRECTORY: Final = "/run/gpushare"
SOCKET_FILE: Final = "/run/gpushare/agent.sock"
"""`GPUSHARE_AGENT_SOCKET` of user pods."""
STATE_DIRECTORY: Final = "/var/lib/gpushare"

# NVIDIA

GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX: Final = "nvidia.com/mig-"
GPU_COUNT_LABEL: Final = "nvidia.com/gpu.count"
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
DEPLOY_TOOLKIT_LABEL: Final = "nvidia.com/gpu.deploy.container-toolkit"
DEPLOY_DCGM_EXPORTER_LABEL: Final = "nvidia.com/gpu.deploy.dcgm-exporter"
TOOLKIT_APP: Final = "nvidia-container-toolkit-daemonset"
"""Label `app` of the GPU Operator's toolkit pods."""
DCGM_EXPORTER_APPS: Final = ("nvidia-dcgm-exporter", "dcgm-exporter")
"""Values of the labels `app` or `app.kubernetes.io/name` of DCGM exporter pods."""
