"""Pending requests of a killed server are found; those of another running server are not."""

from __future__ import annotations

from jupyter_gpushare.messages import SchedulerState, ServiceStatus, WorkloadChanged, WorkloadGone
from jupyter_gpushare.server_extension.requests.orphans import GRACE_MS, OrphanedRequests
from tests.server_extension.test_kernel_registry import lease, workload

SELF = {"node": "n", "user": "me"}


def pending(workload_id="k.n.1", **more):
    return workload(workload_id=workload_id, **more)


def orphans_of(*workloads):
    orphans = OrphanedRequests()
    orphans.apply_frame(
        SchedulerState(
            revision=1, status=ServiceStatus(version="1", revision=1), workloads=list(workloads)
        )
    )
    return orphans


def suspects(orphans, living=()):
    assert orphans.suspects(0, **SELF, living=living) == {}
    return orphans.suspects(GRACE_MS, **SELF, living=living)


def test_a_request_whose_kernel_is_unknown_for_the_grace_time():
    assert suspects(orphans_of(pending())) == {"k.n.1": "k"}


def test_not_of_a_living_kernel_another_node_or_with_a_lease():
    assert suspects(orphans_of(pending()), living={"k"}) == {}
    assert suspects(orphans_of(pending("k.m.1"))) == {}
    assert suspects(orphans_of(pending(granted=lease(), state="running"))) == {}


def test_not_of_another_user():
    orphans = orphans_of(pending())
    assert orphans.suspects(0, node="n", user="you", living=()) == {}
    assert orphans.suspects(GRACE_MS, node="n", user="you", living=()) == {}


def test_the_grace_time_starts_again_when_the_kernel_was_seen():
    orphans = orphans_of(pending())
    assert orphans.suspects(0, **SELF, living=()) == {}
    assert orphans.suspects(GRACE_MS - 1, **SELF, living={"k"}) == {}
    assert orphans.suspects(GRACE_MS, **SELF, living=()) == {}


def test_a_request_that_was_granted_or_ended_is_no_orphan():
    orphans = orphans_of(pending())
    granted = pending(revision=2, granted=lease(), state="running")
    orphans.apply_frame(WorkloadChanged(revision=2, workload=granted))
    assert suspects(orphans) == {}
    orphans.apply_frame(WorkloadChanged(revision=3, workload=pending(revision=3)))
    assert suspects(orphans) == {"k.n.1": "k"}
    orphans.apply_frame(WorkloadGone(revision=4, id="k.n.1", kernel_id="k"))
    assert suspects(orphans) == {}
