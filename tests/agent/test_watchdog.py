"""A kernel whose interpreter stands still while its memory is away is brought back; one that only
is quiet is not.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.messages import LeaseBody, Share
from node_agent.devices.base.model import TenantMemory
from node_agent.reconcile.watchdog import FROZEN_MS, IMMUNE_MS, SPARED, watch
from node_agent.state.kernel_record import KernelRecord, occupant

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
        "k", connected=True, ever_connected=True, heard=heard, holding=AWAY, home=(0,), lease=LEASE
    )


def ticks(book: KernelRecord, begin: int, end: int, step: int = 500) -> int | None:
    """Look at it again and again; when it was found to stand still."""
    return next((now for now in range(begin, end, step) if watch(book, now)), None)


def test_silence_since_the_suspension_is_found_out_once():
    book = suspended()
    assert ticks(book, 10_000, 60_000) == 10_000 + FROZEN_MS
    assert book.frozen == 10_000 + FROZEN_MS
    assert ticks(book, 20_000, 60_000) is None


def test_a_kernel_that_speaks_is_left_alone():
    book = suspended()
    for now in range(10_000, 60_000, 1_000):
        book.heard = now
        assert not watch(book, now)


def test_a_kernel_that_falls_silent_later_is_found_out_too():
    book = suspended()
    for now in range(10_000, 30_000, 1_000):
        book.heard = now
        assert not watch(book, now)
    assert ticks(book, 30_000, 60_000) in range(29_000 + FROZEN_MS, 30_000 + FROZEN_MS + 1)


@pytest.mark.parametrize(
    "changes",
    [{"heard": 0}, {"connected": False}, {"holding": TenantMemory({0: 1})}, {"transit": "in"}],
    ids=str,
)
def test_silence_that_means_nothing(changes):
    book = suspended()
    for name, value in changes.items():
        setattr(book, name, value)
    assert ticks(book, 10_000, 60_000) is None


def test_it_asks_for_its_place_and_is_spared_afterwards():
    book = suspended()
    found = ticks(book, 10_000, 60_000)
    assert occupant(book, 30_000, 0, 0).wants_since == found
    book.holding = TenantMemory({0: 1024})
    assert not watch(book, 31_000)
    assert occupant(book, 31_000, 0, 0).wants_since is None
    assert not occupant(book, 31_000 + IMMUNE_MS - 1, 0, 0).suspendable
    assert occupant(book, 31_000 + IMMUNE_MS, 0, 0).suspendable
    assert book.no_suspend_why == SPARED
