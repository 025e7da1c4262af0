"""A workload names a kernel only if the kernel belongs to its user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotAllowed
from jupyter_gpushare.scheduler.auth.identity import Identity
from tests.scheduler.databases import Database
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness

MALLORY = Identity("mallory", (), "person")


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url).joined()
    yield scheduler
    scheduler.close()


def request(id_: str, kernel_id: str = "k") -> m.WorkloadRequest:
    pod = m.PodRequest(name="kernel", gpu=0.5, nodes=["n0"])
    return m.WorkloadRequest(id=id_, kernel_id=kernel_id, pods=[pod], project="vision")


def report(scheduler: SchedulerHarness, user: str, kernel_id: str = "k") -> None:
    owner = m.KernelOwner(kernel_id=kernel_id, user=user)
    scheduler.service.agent_report("n0", m.KernelsChanged(registered=[owner]))


def refused(scheduler: SchedulerHarness, identity: Identity, id_: str) -> None:
    for ask in (scheduler.service.submit, scheduler.service.what_if):
        with pytest.raises(NotAllowed, match="kernel 'k' does not belong to") as error:
            ask(identity, request(id_))
        assert error.value.field == "kernel_id"


def test_another_users_kernel_is_refused(scheduler: SchedulerHarness):
    report(scheduler, "alice")
    refused(scheduler, MALLORY, "m")
    assert scheduler.service.submit(ALICE, request("a")).kernel_id == "k"
    refused(scheduler, MALLORY, "m")


def test_kernels_in_the_hello_count_and_those_that_are_gone_do_not(scheduler: SchedulerHarness):
    owner = m.KernelOwner(kernel_id="k", user="alice")
    hello = m.AgentHello(version="1", node=scheduler.node(), kernels=[owner])
    scheduler.service.agent_hello(hello, scheduler.listener.send)
    refused(scheduler, MALLORY, "m")
    scheduler.service.agent_report("n0", m.KernelsChanged(gone=["k"]))
    assert scheduler.service.submit(MALLORY, request("m")).user == "mallory"
    scheduler.service.end(MALLORY, "m")
    scheduler.service.agent_hello(hello, scheduler.listener.send)
    hello = m.AgentHello(version="1", node=scheduler.node())
    scheduler.service.agent_hello(hello, scheduler.listener.send)
    assert scheduler.service.submit(MALLORY, request("m2")).user == "mallory"


def test_without_a_report_the_first_workload_claims_the_kernel(scheduler: SchedulerHarness):
    """A kernel may ask before its agent has reported it."""
    scheduler.service.submit(ALICE, request("a"))
    refused(scheduler, MALLORY, "m")
    scheduler.start()
    scheduler.joined()
    refused(scheduler, MALLORY, "m")
    scheduler.service.end(ALICE, "a")
    assert scheduler.service.submit(MALLORY, request("m")).user == "mallory"


def test_a_late_report_ends_workloads_of_other_users(scheduler: SchedulerHarness):
    scheduler.service.submit(MALLORY, request("m"))
    scheduler.service.run_cycle()
    assert len(scheduler.leases()) == 1
    report(scheduler, "alice")
    assert scheduler.leases() == []
    gone = scheduler.listener.frames[-1]
    assert isinstance(gone, m.WorkloadGone)
    assert gone.message == "Kernel k belongs to another user."
    assert scheduler.service.submit(ALICE, request("a")).user == "alice"


def test_an_agent_that_does_not_know_the_user_decides_nothing(scheduler: SchedulerHarness):
    report(scheduler, "")
    assert scheduler.service.submit(ALICE, request("a")).user == "alice"


def join(scheduler: SchedulerHarness, node: str, *owners: m.KernelOwner) -> None:
    hello = m.AgentHello(
        version="1", node=replace(scheduler.node(), name=node), kernels=list(owners)
    )
    scheduler.service.agent_hello(hello, scheduler.listener.send)


@pytest.mark.parametrize("after", ["a report", "no report", "a restart"])
def test_a_registration_on_another_node_takes_no_kernel_away(
    scheduler: SchedulerHarness, after: str
):
    """Ids are no secrets, so any user may register one again on a node of their own."""
    if after == "a report":
        report(scheduler, "alice")
    scheduler.service.submit(ALICE, request("a"))
    scheduler.service.run_cycle()
    if after == "a restart":
        scheduler.start()
    join(scheduler, "n1", m.KernelOwner(kernel_id="k", user="mallory"))
    assert [lease.workload for lease in scheduler.leases()] == ["a"]
    join(scheduler, "n0", m.KernelOwner(kernel_id="k", user="alice"))
    assert [lease.workload for lease in scheduler.leases()] == ["a"]
    refused(scheduler, MALLORY, "m")
    assert scheduler.service.submit(ALICE, request("a2")).user == "alice"
    scheduler.service.agent_report("n1", m.KernelsChanged(gone=["k"]))
    refused(scheduler, MALLORY, "m")


def test_a_workload_for_any_node_needs_one_node_that_knows_its_user(scheduler: SchedulerHarness):
    report(scheduler, "alice")
    join(scheduler, "n1", m.KernelOwner(kernel_id="k", user="mallory"))
    anywhere = replace(request("m"), pods=[m.PodRequest(name="kernel", gpu=0.5)])
    assert scheduler.service.submit(MALLORY, anywhere).user == "mallory"
    eve = Identity("eve", (), "person")
    with pytest.raises(NotAllowed, match="does not belong to"):
        scheduler.service.submit(eve, replace(anywhere, id="e"))
