"""The routes of the Jupyter server extension, below the server's base URL."""

from __future__ import annotations

from typing import Final

from jupyter_gpushare import messages as m

from .route import HISTORY_QUERY, TABLE_QUERY, Route

__all__ = ["JUPYTER_ROUTES"]

_J: Final = "/gpushare/api"
JUPYTER_ROUTES: Final = (
    Route(
        "status",
        "GET",
        f"{_J}/status",
        "person",
        "Mode, scheduler, and the caller's kernels.",
        m.Status,
    ),
    Route("kernel", "GET", f"{_J}/kernels/{{kernel_id}}", "person", "One kernel.", m.Kernel),
    Route(
        "request",
        "POST",
        f"{_J}/kernels/{{kernel_id}}",
        "person",
        "Request a share, or change it.",
        m.Kernel,
        m.KernelRequest,
    ),
    Route(
        "release", "DELETE", f"{_J}/kernels/{{kernel_id}}", "person", "Release the GPU.", m.Kernel
    ),
    Route(
        "act",
        "POST",
        f"{_J}/kernels/{{kernel_id}}/actions/{{action}}",
        "person",
        "Suspend, resume, pin or unpin; run waiting cells without a GPU (`run-without-gpu`); "
        "cancel the pending request, the current share stays (`cancel`).",
        m.Kernel,
    ),
    Route(
        "what_if",
        "POST",
        f"{_J}/what-if",
        "person",
        "Would this request start now? Changes nothing.",
        m.WhatIfAnswer,
        m.KernelRequest,
        query=("kernel_id",),
    ),
    Route(
        "queues",
        "GET",
        f"{_J}/queues",
        "person",
        "Departments and projects per node pool and resource.",
        m.Queues,
        query=TABLE_QUERY,
    ),
    Route(
        "nodes", "GET", f"{_J}/nodes", "person", "Nodes and their GPUs.", m.Nodes, query=TABLE_QUERY
    ),
    Route("pools", "GET", f"{_J}/pools", "person", "Node pools.", m.Pools, query=TABLE_QUERY),
    Route(
        "projects",
        "GET",
        f"{_J}/projects",
        "person",
        "Projects per node pool.",
        m.Projects,
        query=TABLE_QUERY,
    ),
    Route(
        "workloads",
        "GET",
        f"{_J}/workloads",
        "person",
        "The workloads that the caller may see, with the reasons of pending ones.",
        m.Workloads,
        query=TABLE_QUERY,
    ),
    Route(
        "end_workload",
        "DELETE",
        f"{_J}/workloads/{{id}}",
        "person",
        "End a workload: one of the caller's own, or as an admin any.",
        m.Ended,
    ),
    Route(
        "node_action",
        "POST",
        f"{_J}/nodes/{{name}}/{{action}}",
        "person",
        "`cordon`, `uncordon` or `drain` a node; admins only.",
        m.CordonStatus,
    ),
    Route(
        "evictions",
        "GET",
        f"{_J}/evictions",
        "person",
        "Evictions: workload, action, beneficiary, and reason.",
        m.Evictions,
        query=TABLE_QUERY,
    ),
    Route(
        "people",
        "GET",
        f"{_J}/people",
        "person",
        "People of projects: state, turns and GPU minutes today, limits.",
        m.People,
        query=TABLE_QUERY,
    ),
    Route(
        "limit_person",
        "POST",
        f"{_J}/people/limit",
        "person",
        "Limit one person in a project, within the policy's limits.",
        m.People,
        m.MemberLimit,
    ),
    Route(
        "bookings",
        "GET",
        f"{_J}/bookings",
        "person",
        "Bookings of the caller's projects, the next first.",
        m.Bookings,
        query=TABLE_QUERY,
    ),
    Route(
        "book",
        "POST",
        f"{_J}/bookings",
        "person",
        "Book GPUs in a window of time, or tell whether they could be booked.",
        m.BookingFit,
        m.BookingRequest,
    ),
    Route(
        "booking_calendar",
        "GET",
        f"{_J}/bookings/calendar",
        "person",
        "What is booked in a node pool, and what is free; `from` and `to` are ISO 8601 times.",
        m.BookingCalendar,
        query=("pool", "from", "to"),
    ),
    Route(
        "cancel_booking",
        "DELETE",
        f"{_J}/bookings/{{booking}}",
        "person",
        "Cancel a booking.",
        m.Ended,
    ),
    Route(
        "manage",
        "POST",
        f"{_J}/workloads/{{id}}/actions/{{action}}",
        "person",
        "For managers of its project: `release` its GPU, or put it first once (`next-turn`).",
        m.Ended,
    ),
    Route(
        "queue_history",
        "GET",
        f"{_J}/history/queues",
        "person",
        "Allocations and requests of the queues over time.",
        m.QueueHistory,
        query=HISTORY_QUERY,
    ),
    Route(
        "node_history",
        "GET",
        f"{_J}/history/nodes",
        "person",
        "Utilization, memory, temperature and power of GPUs, and CPU and memory of nodes, in the "
        "last hour; `since` (a time) continues, `node` (names, separated by commas) selects.",
        m.NodeHistory,
        query=("minutes", "since", "node"),
    ),
    Route(
        "kernel_history",
        "GET",
        f"{_J}/kernels/{{kernel_id}}/history",
        "person",
        "One kernel's share and memory over time.",
        m.KernelHistory,
        query=("minutes", *TABLE_QUERY),
    ),
    Route(
        "stream",
        "WS",
        f"{_J}/stream",
        "person",
        "The state, then changes; `since` resumes.",
        m.StreamFrame,
        query=("since",),
    ),
)
