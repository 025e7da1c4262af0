"""Requests that can never start are refused at once; those that only have to wait are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from tests.scheduler.databases import Database
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness

POLICY = """
node_pools: [{name: default}, {name: later, label: {key: gpu, value: later}}]
departments: [{name: d, pools: {default: {gpu: {quota: 2, limit: 2}}}}]
projects:
  - {name: p, department: d, pools: {default: {gpu: {quota: 1, limit: 1}}}}
  - {name: q, department: d, pools: {default: {gpu: {quota: 0.5}}}}
"""


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url)
    scheduler.service.use_policy(parse_policy(POLICY))
    yield scheduler.joined()
    scheduler.close()


def request(gpu: object, project: str = "q", id_: str = "w", **more: object) -> m.WorkloadRequest:
    nodes = more.pop("nodes", ["n0"])
    pods = more.pop("pods", [m.PodRequest(name="kernel", gpu=gpu, nodes=nodes)])
    return m.WorkloadRequest(id=id_, project=project, pods=pods, **more)


IMPOSSIBLE = {
    "more GPUs than the node has": (request(3), "NeverFits"),
    "more GPUs than the nodes of the pool have": (
        request(0, pods=[m.PodRequest(gpu=1) for _ in range(3)]),
        "NeverFits",
    ),
    "more than the limit of its project": (request(2, "p"), "OverLimit"),
    "non-preemptible and more than its quota": (
        request(1, preemptible=False),
        "NonPreemptibleOverQuota",
    ),
}


@pytest.mark.parametrize(("asked", "code"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_request_that_can_never_start_is_refused(
    scheduler: SchedulerHarness, asked: m.WorkloadRequest, code: str
):
    answer = scheduler.service.what_if(ALICE, asked)
    assert (answer.refused, answer.reason and answer.reason.code) == (True, code)
    with pytest.raises(Conflict) as refused:
        scheduler.service.submit(ALICE, asked)
    assert (refused.value.code, refused.value.field, refused.value.status_hint) == (
        code,
        "gpu",
        409,
    )
    assert not scheduler.service.unit_of_work.records


@pytest.mark.parametrize(("asked", "code"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_it_may_be_queued_anyway(scheduler: SchedulerHarness, asked: m.WorkloadRequest, code: str):
    queued = m.WorkloadRequest(
        id="w",
        project=asked.project,
        pods=asked.pods,
        preemptible=asked.preemptible,
        queue_anyway=True,
    )
    answer = scheduler.service.what_if(ALICE, queued)
    assert (answer.refused, answer.reason and answer.reason.code) == (False, code)
    scheduler.service.submit(ALICE, queued)
    scheduler.service.run_cycle()
    view = scheduler.service.queries.workload(ALICE, "w")
    assert (view.state, view.reason and view.reason.code) == ("pending", code)


def test_what_waits_until_others_end_is_accepted(scheduler: SchedulerHarness):
    scheduler.ask("a", 1, project="p")
    scheduler.ask("b", 1, project="q")
    assert scheduler.ask("c", 1, project="p").reason.code == "OverLimit"
    assert scheduler.ask("d", 2, project="q").state == "pending"
    assert scheduler.ask("e", 0.5, project="q", preemptible=False).state == "pending"


def test_nodes_that_are_not_ready_or_unhealthy_count(scheduler: SchedulerHarness):
    scheduler.service.cordons.cordon("root", "n0")
    devices = [m.DeviceReport(index=i, uuid=f"SIM-{i}", model="S", total_mib=80) for i in (0, 1)]
    broken = m.DeviceReport(index=1, uuid="SIM-1", model="S", total_mib=80, healthy=False)
    report = m.NodeReport(name="n0", simulated=True, devices=[devices[0], broken])
    scheduler.service.agent_report("n0", m.NodeChangedReport(node=report))
    assert scheduler.service.submit(ALICE, request(2)).state == "pending"


def test_unknown_nodes_and_pools_without_nodes_are_waited_for(scheduler: SchedulerHarness):
    scheduler.service.submit(ALICE, request(3, nodes=["new"]))
    scheduler.service.end(ALICE, "w")
    pods = [m.PodRequest(name="k", gpu=3)]
    asked = m.WorkloadRequest(id="v", project="q", pods=pods, node_pools=["later"])
    assert scheduler.service.submit(ALICE, asked).state == "pending"


def test_a_larger_node_and_a_new_policy_change_the_answer(scheduler: SchedulerHarness):
    with pytest.raises(Conflict):
        scheduler.service.submit(ALICE, request(2, "p"))
    scheduler.service.use_policy(parse_policy(POLICY.replace("limit: 1", "limit: 2")))
    assert scheduler.service.submit(ALICE, request(2, "p")).state == "pending"
    scheduler.service.end(ALICE, "w")
    with pytest.raises(Conflict, match="3 GPUs"):
        scheduler.service.submit(ALICE, request(3, id_="v"))
    devices = [
        m.DeviceReport(index=i, uuid=f"S{i}", model="S", total_mib=80 * 1024) for i in range(4)
    ]
    report = m.NodeReport(name="n0", simulated=True, devices=devices)
    scheduler.service.agent_report("n0", m.NodeChangedReport(node=report))
    with pytest.raises(Conflict) as refused:
        scheduler.service.submit(ALICE, request(3, id_="v"))
    assert refused.value.code == "OverLimit", "the department's limit is 2"


def test_a_refused_replacement_leaves_the_old_share(scheduler: SchedulerHarness):
    scheduler.ask("old", 0.5, project="p")
    with pytest.raises(Conflict):
        scheduler.ask("new", 2, project="p", replaces="old")
    assert scheduler.service.queries.workload(ALICE, "old").state == "running"


def test_a_repeated_request_is_not_judged_again(scheduler: SchedulerHarness):
    scheduler.service.submit(ALICE, request(1, "p"))
    scheduler.service.use_policy(parse_policy(POLICY.replace("limit: 1}", "limit: 0.5}")))
    assert scheduler.service.submit(ALICE, request(1, "p")).id == "w"
