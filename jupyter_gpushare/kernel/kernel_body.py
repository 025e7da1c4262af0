"""The body of a kernel as the node agent sends it, before the agent has sent one."""

from __future__ import annotations

from typing import Any

__all__ = ["Json", "detached"]

Json = dict[str, Any]


def detached(kernel_id: str = "") -> Json:
    """The state of a kernel that has requested no GPU."""
    no_share = {"gpu": None, "gpu_memory_mib": None}
    return {
        "kernel_id": kernel_id,
        "name": "",
        "state": "detached",
        "project": None,
        "request": no_share,
        "limit": no_share,
        "node": None,
        "planned_gpu": None,
        "gpu_uuid": None,
        "simulated": False,
        "pinned": False,
        "busy": False,
        "memory_mib": {"guaranteed": 0, "used": 0, "borrowed": 0},
        "gpu_memory_total_mib": 0,
        "saved_mib": 0,
        "reason": None,
        "queue_position": None,
        "expected_wait": None,
        "notice_deadline": None,
        "generation": 0,
        "workload": None,
        "utilization": None,
        "user": "",
        "gated": False,
        "gate_problem": None,
        "cell_waits": None,
        "preset": None,
        "pending_change": None,
        "events": [],
    }
