"""Why a node accepts no new pods, and what else is wrong with it: a closed set, using Kubernetes'
terms. Pods on such a node keep running.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["NODE_WARNINGS", "NodeCondition"]


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
    """The node came from another pool (or its Kubernetes label was removed), and pods that started
    before still run.
    """
    KUBERNETES_NOT_READY = "Kubernetes node not ready"
    """Kubernetes only: its condition Ready is False or Unknown."""
    GPUS_NOT_RESERVED = "GPUs not reserved"
    """Kubernetes only: other pods may be given its GPUs."""
    NOT_MANAGED = "not managed"
    """Kubernetes only: the node has no label that gives its GPUs to this scheduler."""
    NODE_DELETED = "node deleted"
    """Kubernetes only: the node object is gone, and the agent is still connected."""
    MISSING_CONTAINER_TOOLKIT = "missing container toolkit"
    """Kubernetes only."""
    MISSING_DCGM_EXPORTER = "missing DCGM exporter"
    """Kubernetes only; a warning."""
    AGENT_SILENT = "agent silent"
    """The agent has not reported for longer than the grace time."""
    GPU_UNHEALTHY = "GPU unhealthy"
    """None of its GPUs is usable. While some are, only the others are excluded."""


NODE_WARNINGS: Final = frozenset({NodeCondition.MISSING_DCGM_EXPORTER})
"""Conditions of nodes that accept pods nevertheless: the agent measures the GPUs by itself."""
