"""A kernel whose interpreter stands still while its memory is away is brought back; one that only
is quiet is not.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.messages import LeaseBody, Share
from node_agent.devices.base.model import TenantMemory
from node_agent.reconcile.tenants import tenant
from node_agent.reconcile.watchdog import FROZEN_MS, IMMUNE_MS, SPARED, watch
from node_agent.state.assignment import GpuAssignment
from node_agent.state.cell_requests import CellRequests
from node_agent.state.kernel_memory import KernelMemory
from node_agent.state.kernel_record import Heartbeat, KernelRecord

AWAY = TenantMemory(image=(1024,), suspended=True)
LEASE = LeaseBody(
    id="k.1/kernel",
    workload="k.1",
    pod="kernel",
    kernel_id="k",
    project="vision",
    node="n0",
    pool="default",
    planned_gpus=[0],
    request_mib=1024,
    limit_mib=2048,
    request=Share(gpu=0.5),
)


def suspended(heard: int = 1_000) -> KernelRecord:
    return KernelRecord(
        "k",
        gate=CellRequests(connected=True, ever_connected=True),
        heartbeat=Heartbeat(received_at=heard),
        memory=KernelMemory(usage=AWAY),
        assignment=GpuAssignment(lease=LEASE, assigned_gpus=(0,)),
    )


def ticks(kernel: KernelRecord, begin: int, end: int, step: int = 500) -> int | None:
    """Look at it again and again; when it was found to stand still."""
    return next((now for now in range(begin, end, step) if watch(kernel, now)), None)


def test_silence_since_the_suspension_is_found_out_once():
    kernel = suspended()
    assert ticks(kernel, 10_000, 60_000) == 10_000 + FROZEN_MS
    assert kernel.heartbeat.frozen_since == 10_000 + FROZEN_MS
    assert ticks(kernel, 20_000, 60_000) is None


def test_a_kernel_that_speaks_is_left_alone():
    kernel = suspended()
    for now in range(10_000, 60_000, 1_000):
        kernel.heartbeat.received_at = now
        assert not watch(kernel, now)


def test_a_kernel_that_falls_silent_later_is_found_out_too():
    kernel = suspended()
    for now in range(10_000, 30_000, 1_000):
        kernel.heartbeat.received_at = now
        assert not watch(kernel, now)
    assert ticks(kernel, 30_000, 60_000) in range(29_000 + FROZEN_MS, 30_000 + FROZEN_MS + 1)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("heartbeat", "received_at", 0),
        ("gate", "connected", False),
        ("memory", "usage", TenantMemory({0: 1})),
        ("memory", "transit", "in"),
    ],
    ids=str,
)
def test_silence_that_means_nothing(part, name, value):
    kernel = suspended()
    setattr(getattr(kernel, part), name, value)
    assert ticks(kernel, 10_000, 60_000) is None


def test_it_asks_for_its_place_and_is_spared_afterwards():
    kernel = suspended()
    found = ticks(kernel, 10_000, 60_000)
    assert tenant(kernel, 30_000, 0, 0).wants_since == found
    kernel.memory.usage = TenantMemory({0: 1024})
    assert not watch(kernel, 31_000)
    assert tenant(kernel, 31_000, 0, 0).wants_since is None
    assert not tenant(kernel, 31_000 + IMMUNE_MS - 1, 0, 0).suspendable
    assert tenant(kernel, 31_000 + IMMUNE_MS, 0, 0).suspendable
    assert kernel.memory.no_suspend_reason == SPARED
