"""Why a node accepts no new pods: a closed set, using Kubernetes' terms. Pods on such a node keep
running.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["NodeCondition"]


class NodeCondition(StrEnum):
    """The value is the text shown to users."""

    DISK_PRESSURE = "disk pressure"
    """Too little disk space is left for kernels and the agent."""
    MEMORY_PRESSURE = "memory pressure"
    """Too little memory is available, or processes stall on memory."""
    PID_PRESSURE = "PID pressure"
    """Few process or thread ids are left."""
    NETWORK_UNAVAILABLE = "network unavailable"
    """The connection between scheduler and agent is broken."""
    SCHEDULING_DISABLED = "scheduling disabled"
    """An administrator cordoned the node."""
    UNDRAINED_MIGRATED_NODE = "undrained migrated node"
    """The node came from another pool, and pods that started there still run."""
    MISSING_CONTAINER_TOOLKIT = "missing container toolkit"
    """Kubernetes only."""
    MISSING_DCGM_EXPORTER = "missing DCGM exporter"
    """Kubernetes only."""
    AGENT_SILENT = "agent silent"
    """The agent has not reported for longer than the grace time."""
    GPU_UNHEALTHY = "GPU unhealthy"
    """None of its GPUs is usable. While some are, only the others are excluded."""
