"""One kernel, composed from the reports of scheduler and agent."""

from __future__ import annotations

import msgspec

from jupyter_gpushare.messages import (
    Event,
    ExpectedWait,
    KernelRequest,
    KernelRuntime,
    LeaseBody,
    MemoryMib,
    PodView,
    ReasonBody,
    SchedulerState,
    ServiceStatus,
    Share,
    WorkloadChanged,
    WorkloadGone,
    WorkloadView,
)
from jupyter_gpushare.server_extension.kernels.kernel_registry import KernelRegistry

WHY = ReasonBody(code="WaitingForQuota", message="No quota.")
HALF = KernelRequest(gpu=0.5)


def lease(wanted="hold"):
    return LeaseBody(
        id="l",
        workload="k.1",
        pod="kernel",
        kernel_id="k",
        project="vision",
        node="n",
        pool="default",
        planned_gpus=[0],
        request_mib=40960,
        limit_mib=81920,
        wanted=wanted,
    )


def workload(revision=1, *, workload_id="k.1", state="pending", granted=None, reason=None):
    pods = [PodView(name="kernel", state="running" if granted else "pending", lease=granted)]
    return WorkloadView(
        id=workload_id,
        name="a.ipynb",
        kernel_id="k",
        user="me",
        project="vision",
        priority=75,
        preemptible=True,
        node_pools=["default"],
        created="2026-01-01T00:00:00.000+00:00",
        state=state,
        request=Share(gpu=0.5),
        pods=pods,
        reason=reason,
        queue_position=3,
        revision=revision,
    )


def agent(state, **more):
    return KernelRuntime(
        kernel_id="k", state=state, workload="k.1", node="n", gpu_uuid="SIM-GPU-n-1", **more
    )


def registry_with(*reports):
    """A registry with one kernel that requests half a GPU, after these reports."""
    registry = KernelRegistry()
    registry.add("k", "a.ipynb")
    registry.set_request("k", HALF, "k.1")
    for report in reports:
        if isinstance(report, KernelRuntime):
            registry.apply_runtime(report)
        else:
            registry.apply_frame(report)
    return registry


def changed(view):
    return WorkloadChanged(revision=view.revision, workload=view)


def state(revision, *workloads):
    return SchedulerState(
        revision=revision,
        status=ServiceStatus(version="1", revision=revision),
        workloads=list(workloads),
    )


CASES = {
    "requested, no answer yet": ([], "pending"),
    "pending in the scheduler": ([changed(workload(reason=WHY))], "pending"),
    "granted, not yet known to the agent": (
        [changed(workload(granted=lease(), state="running"))],
        "granted",
    ),
    "attached": (
        [changed(workload(granted=lease(), state="running")), agent("attached")],
        "attached",
    ),
    "the grant reached the agent first": ([agent("attached")], "attached"),
    "being evicted": ([changed(workload(granted=lease("evict"), state="running"))], "reclaiming"),
    "suspended": (
        [changed(workload(granted=lease(), state="running")), agent("suspended")],
        "suspended",
    ),
    "the agent reports an older request": (
        [KernelRuntime(kernel_id="k", state="attached", workload="k.0")],
        "pending",
    ),
    "ended by the scheduler": (
        [changed(workload()), changed(workload(2, state="ended"))],
        "detached",
    ),
    "gone in the scheduler": (
        [changed(workload()), WorkloadGone(revision=2, id="k.1", kernel_id="k")],
        "detached",
    ),
    "an older request gone": (
        [changed(workload()), WorkloadGone(revision=2, id="k.0", kernel_id="k")],
        "pending",
    ),
    "not in the complete state": ([changed(workload(1)), state(2)], "detached"),
    "answered after the complete state": ([changed(workload(3)), state(2)], "pending"),
}


SOON = ExpectedWait(
    basis="history",
    message="About 6 min more.",
    at="2026-01-01T00:00:00.000+00:00",
    seconds_median=360.0,
    based_on=9,
)
WAITS = msgspec.structs.replace(workload(reason=WHY), expected_wait=SOON)


def test_a_pending_kernel_shows_its_expected_wait_and_so_does_its_cell():
    registry = registry_with(changed(WAITS))
    assert registry.view("k").expected_wait == registry.request_state("k").expected_wait == SOON


def test_a_granted_kernel_has_no_expected_wait():
    granted = msgspec.structs.replace(
        workload(2, granted=lease(), state="running"), expected_wait=SOON
    )
    for registry in (
        registry_with(changed(WAITS), changed(granted)),
        registry_with(changed(WAITS), agent("attached")),
    ):
        assert registry.view("k").expected_wait is None


def test_states():
    for name, (reports, expected) in CASES.items():
        assert registry_with(*reports).view("k").state == expected, name


def test_a_pending_kernel_shows_reason_and_queue_position():
    view = registry_with(changed(workload(reason=WHY))).view("k")
    assert (view.reason, view.queue_position, view.project, view.request.gpu) == (
        WHY,
        3,
        "vision",
        0.5,
    )


def test_the_request_shows_before_the_scheduler_answers():
    assert registry_with().view("k").request == Share(gpu=0.5)


def test_the_stream_may_be_faster_than_the_answer():
    """A report that arrives before the answer to the submission is kept; the older answer does not
    undo it.
    """
    registry = KernelRegistry()
    registry.add("k")
    registry.apply_frame(changed(workload(2, reason=WHY)))
    assert registry.view("k").state == "detached"
    registry.set_request("k", KernelRequest(gpu=0.5), "k.1")
    registry.apply_workload(workload(1))
    assert (registry.view("k").state, registry.view("k").reason) == ("pending", WHY)


def test_a_workload_that_ended_before_the_answer_has_ended():
    registry = KernelRegistry()
    registry.add("k")
    registry.apply_frame(changed(workload(1)))
    registry.apply_frame(WorkloadGone(revision=2, id="k.1", kernel_id="k"))
    registry.set_request("k", KernelRequest(gpu=0.5), "k.1")
    registry.apply_workload(workload(1))
    assert registry.view("k").state == "detached"


def test_reports_of_other_workloads_are_bounded():
    registry = KernelRegistry()
    registry.add("k")
    for number in range(50):
        registry.apply_frame(changed(msgspec.structs.replace(workload(number), id=f"k.{number}")))
    assert len(registry.entry("k").early) <= 2


def test_an_older_revision_changes_nothing():
    registry = registry_with(changed(workload(5, granted=lease(), state="running")))
    assert registry.apply_frame(changed(workload(4))) == set()
    assert registry.view("k").state == "granted"


def test_memory_is_the_agents_measurement_or_else_the_leases_guarantee():
    registry = registry_with(changed(workload(granted=lease(), state="running")))
    assert registry.view("k").memory_mib == MemoryMib(guaranteed=40960)
    registry.apply_runtime(
        agent("attached", memory_mib=MemoryMib(guaranteed=40960, used=71680, borrowed=30720))
    )
    assert registry.view("k").memory_mib.borrowed == 30720


def test_a_released_share_is_gone_although_the_agent_still_reports_it():
    registry = registry_with(
        changed(workload(granted=lease(), state="running")),
        agent("attached", memory_mib=MemoryMib(guaranteed=40960, used=10)),
    )
    registry.clear_request("k")
    view = registry.view("k")
    assert (view.state, view.gpu_uuid, view.planned_gpu, view.memory_mib) == (
        "detached",
        None,
        None,
        MemoryMib(),
    )


def test_events_of_both_sides_are_sorted_by_time_and_bounded():
    registry = registry_with()
    for second in reversed(range(150)):
        registry.add_event(
            "k",
            Event(
                time=f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000+00:00",
                kind="burst",
                message=str(second),
            ),
        )
    events = registry.view("k").events
    assert [event.message for event in events] == [str(second) for second in range(50, 150)]
    assert registry.add_event("k", events[-1]) == set()


def test_reports_of_a_removed_kernel_are_ignored():
    registry = registry_with()
    registry.remove("k")
    assert registry.apply_runtime(agent("attached")) == set()
    assert registry.apply_frame(changed(workload())) == set()
    assert "k" not in registry


def test_the_agent_receives_the_state_of_the_request():
    state = registry_with(changed(workload(reason=WHY))).request_state("k")
    assert (state.pending, state.reason, state.position, state.request.gpu) == (True, WHY, 3, 0.5)
    assert (
        not registry_with(changed(workload(granted=lease(), state="running")))
        .request_state("k")
        .pending
    )
