"""Why a node takes nothing new: a closed set, in the words of the field. What runs on such a node
stays.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["NodeCondition"]


class NodeCondition(StrEnum):
    """Each value is the reason as people read it."""

    DISK_PRESSURE = "disk pressure"
    """Too little room is left where kernels and their agent write."""
    MEMORY_PRESSURE = "memory pressure"
    """Too little memory is available, or processes stall for it."""
    PID_PRESSURE = "PID pressure"
    """Few process ids or threads are left."""
    NETWORK_UNAVAILABLE = "network unavailable"
    """The link between scheduler and agent is broken."""
    SCHEDULING_DISABLED = "scheduling disabled"
    """An administrator cordoned it."""
    UNDRAINED_MIGRATED_NODE = "undrained migrated node"
    """It came from another node pool, and what was started there still runs on it."""
    MISSING_CONTAINER_TOOLKIT = "missing container toolkit"
    """Kubernetes only."""
    MISSING_DCGM_EXPORTER = "missing DCGM exporter"
    """Kubernetes only."""
    AGENT_SILENT = "agent silent"
    """Nothing was heard of its agent for longer than the grace time."""
    GPU_UNHEALTHY = "GPU unhealthy"
    """None of its GPUs can be used. While some can, only the others are left out."""
