"""What a killed server left waiting is found; what another server is just asking for is not taken
for it.
"""

from __future__ import annotations

from jupyter_gpushare.messages import SchedulerState, ServiceStatus, WorkloadChanged, WorkloadGone
from jupyter_gpushare.server_extension.requests.orphans import GRACE_MS, OrphanedRequests
from tests.server_extension.test_kernel_registry import lease, workload

SELF = {"node": "n", "user": "me"}


def waiting(workload_id="k.n.1", **more):
    return workload(workload_id=workload_id, **more)


def following(*workloads):
    ghosts = OrphanedRequests()
    ghosts.scheduler_said(
        SchedulerState(
            revision=1, status=ServiceStatus(version="1", revision=1), workloads=list(workloads)
        )
    )
    return ghosts


def suspects(ghosts, living=()):
    assert ghosts.suspects(0, **SELF, living=living) == {}
    return ghosts.suspects(GRACE_MS, **SELF, living=living)


def test_a_request_whose_kernel_nobody_knows_for_the_grace_time():
    assert suspects(following(waiting())) == {"k.n.1": "k"}


def test_not_that_of_a_living_kernel_another_node_or_a_lease():
    assert suspects(following(waiting()), living={"k"}) == {}
    assert suspects(following(waiting("k.m.1"))) == {}
    assert suspects(following(waiting(granted=lease(), state="running"))) == {}


def test_not_that_of_another_person():
    ghosts = following(waiting())
    assert ghosts.suspects(0, node="n", user="you", living=()) == {}
    assert ghosts.suspects(GRACE_MS, node="n", user="you", living=()) == {}


def test_the_grace_time_begins_anew_when_its_kernel_was_seen():
    ghosts = following(waiting())
    assert ghosts.suspects(0, **SELF, living=()) == {}
    assert ghosts.suspects(GRACE_MS - 1, **SELF, living={"k"}) == {}
    assert ghosts.suspects(GRACE_MS, **SELF, living=()) == {}


def test_what_changed_or_ended_meanwhile():
    ghosts = following(waiting())
    granted = waiting(revision=2, granted=lease(), state="running")
    ghosts.scheduler_said(WorkloadChanged(revision=2, workload=granted))
    assert suspects(ghosts) == {}
    ghosts.scheduler_said(WorkloadChanged(revision=3, workload=waiting(revision=3)))
    assert suspects(ghosts) == {"k.n.1": "k"}
    ghosts.scheduler_said(WorkloadGone(revision=4, id="k.n.1", kernel_id="k"))
    assert suspects(ghosts) == {}
