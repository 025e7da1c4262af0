"""Jupyter server <-> agent: what starting a share on this node would change for other notebooks."""

from __future__ import annotations

from msgspec import field

from .common import ErrorDetail, Share, Tagged
from .jupyter import AffectedNotebook

__all__ = ["StartPreviewRequest", "StartPreviewed"]


class StartPreviewRequest(Tagged, frozen=True, kw_only=True, tag="start_preview"):
    """What would happen if a share started now. Changes nothing."""

    n: int
    kernel_id: str = ""
    """The kernel whose share it replaces; "": a new kernel."""
    request: Share
    planned_gpus: list[str] = field(default_factory=list)
    """UUIDs of the GPUs that the scheduler would plan."""


class StartPreviewed(Tagged, frozen=True, kw_only=True, tag="start_previewed"):
    """Response to `StartPreviewRequest`. `gpus`: UUIDs of the GPUs where the share would be; empty:
    it does not fit now.
    """

    n: int
    gpus: list[str] = field(default_factory=list)
    affected: list[AffectedNotebook] = field(default_factory=list)
    error: ErrorDetail | None = None
