"""A node as the platform below describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .node_conditions import NodeCondition

__all__ = ["PlatformNode"]


@dataclass(frozen=True, slots=True)
class PlatformNode:
    """A node as the platform below (Kubernetes) describes it, in addition to its agent's report."""

    labels: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[NodeCondition, str] = field(default_factory=dict)
    """Each with the platform's own message."""
    is_managed: bool = True
    """Whether its GPUs are shared by this scheduler."""
