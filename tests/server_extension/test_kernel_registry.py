"""What scheduler and agent say, folded into one kernel."""

from __future__ import annotations

import msgspec

from jupyter_gpushare.messages import (
    Event,
    ExpectedWait,
    Kernel,
    KernelRequest,
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
    return Kernel(
        kernel_id="k", state=state, workload="k.1", node="n", gpu_uuid="SIM-GPU-n-1", **more
    )


def directory(*news):
    it = KernelRegistry()
    it.appeared("k", "a.ipynb")
    it.asks("k", HALF, "k.1")
    for one in news:
        it.agent_said(one) if isinstance(one, Kernel) else it.scheduler_said(one)
    return it


def changed(view):
    return WorkloadChanged(revision=view.revision, workload=view)


def state(revision, *workloads):
    return SchedulerState(
        revision=revision,
        status=ServiceStatus(version="1", revision=revision),
        workloads=list(workloads),
    )


CASES = {
    "asked, nobody answered yet": ([], "pending"),
    "the scheduler lets it wait": ([changed(workload(reason=WHY))], "pending"),
    "granted, its agent knows nothing yet": (
        [changed(workload(granted=lease(), state="running"))],
        "granted",
    ),
    "attached": (
        [changed(workload(granted=lease(), state="running")), agent("attached")],
        "attached",
    ),
    "the agent heard of the grant before us": ([agent("attached")], "attached"),
    "to be taken back": (
        [changed(workload(granted=lease("evict"), state="running"))],
        "reclaiming",
    ),
    "suspended": (
        [changed(workload(granted=lease(), state="running")), agent("suspended")],
        "suspended",
    ),
    "the agent speaks of an older request": (
        [Kernel(kernel_id="k", state="attached", workload="k.0")],
        "pending",
    ),
    "ended by the scheduler": (
        [changed(workload()), changed(workload(2, state="ended"))],
        "detached",
    ),
    "gone at the scheduler": (
        [changed(workload()), WorkloadGone(revision=2, id="k.1", kernel_id="k")],
        "detached",
    ),
    "an older request gone": (
        [changed(workload()), WorkloadGone(revision=2, id="k.0", kernel_id="k")],
        "pending",
    ),
    "not in the scheduler's full state": ([changed(workload(1)), state(2)], "detached"),
    "answered after the full state was made": ([changed(workload(3)), state(2)], "pending"),
}


SOON = ExpectedWait(
    basis="history",
    message="About 6 min more.",
    at="2026-01-01T00:00:00.000+00:00",
    seconds_median=360.0,
    based_on=9,
)
WAITS = msgspec.structs.replace(workload(reason=WHY), expected_wait=SOON)


def test_who_waits_is_told_for_how_much_longer_and_so_is_its_cell():
    it = directory(changed(WAITS))
    assert it.view("k").expected_wait == it.outlook("k").expected_wait == SOON


def test_what_was_granted_has_no_more_to_expect():
    granted = msgspec.structs.replace(
        workload(2, granted=lease(), state="running"), expected_wait=SOON
    )
    for it in (
        directory(changed(WAITS), changed(granted)),
        directory(changed(WAITS), agent("attached")),
    ):
        assert it.view("k").expected_wait is None


def test_states():
    for name, (news, expected) in CASES.items():
        assert directory(*news).view("k").state == expected, name


def test_a_pending_kernel_says_why_and_where_in_the_queue():
    view = directory(changed(workload(reason=WHY))).view("k")
    assert (view.reason, view.queue_position, view.project, view.request.gpu) == (
        WHY,
        3,
        "vision",
        0.5,
    )


def test_what_is_asked_shows_before_the_scheduler_answers():
    assert directory().view("k").request == Share(gpu=0.5)


def test_the_stream_may_be_quicker_than_the_answer():
    """What is told of a request before its submission is answered is not lost, and the answer,
    which is older, does not undo it.
    """
    it = KernelRegistry()
    it.appeared("k")
    it.scheduler_said(changed(workload(2, reason=WHY)))
    assert it.view("k").state == "detached"
    it.asks("k", KernelRequest(gpu=0.5), "k.1")
    it.workload_answered(workload(1))
    assert (it.view("k").state, it.view("k").reason) == ("pending", WHY)


def test_what_is_over_before_it_was_answered_is_over():
    it = KernelRegistry()
    it.appeared("k")
    it.scheduler_said(changed(workload(1)))
    it.scheduler_said(WorkloadGone(revision=2, id="k.1", kernel_id="k"))
    it.asks("k", KernelRequest(gpu=0.5), "k.1")
    it.workload_answered(workload(1))
    assert it.view("k").state == "detached"


def test_news_of_strangers_is_not_heaped_up():
    it = KernelRegistry()
    it.appeared("k")
    for number in range(50):
        it.scheduler_said(changed(msgspec.structs.replace(workload(number), id=f"k.{number}")))
    assert len(it.entry("k").early) <= 2


def test_an_older_revision_changes_nothing():
    it = directory(changed(workload(5, granted=lease(), state="running")))
    assert it.scheduler_said(changed(workload(4))) == set()
    assert it.view("k").state == "granted"


def test_memory_is_the_agents_word_and_before_it_the_leases_guarantee():
    it = directory(changed(workload(granted=lease(), state="running")))
    assert it.view("k").memory_mib == MemoryMib(guaranteed=40960)
    it.agent_said(
        agent("attached", memory_mib=MemoryMib(guaranteed=40960, used=71680, borrowed=30720))
    )
    assert it.view("k").memory_mib.borrowed == 30720


def test_what_was_given_back_is_nobodys_although_the_agent_is_not_done_with_it():
    it = directory(
        changed(workload(granted=lease(), state="running")),
        agent("attached", memory_mib=MemoryMib(guaranteed=40960, used=10)),
    )
    it.asks_nothing("k")
    view = it.view("k")
    assert (view.state, view.gpu_uuid, view.planned_gpu, view.memory_mib) == (
        "detached",
        None,
        None,
        MemoryMib(),
    )


def test_events_of_both_sides_are_one_story_oldest_first_bounded():
    it = directory()
    for second in reversed(range(150)):
        it.happened(
            "k",
            Event(
                time=f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000+00:00",
                kind="burst",
                message=str(second),
            ),
        )
    events = it.view("k").events
    assert [event.message for event in events] == [str(second) for second in range(50, 150)]
    assert it.happened("k", events[-1]) == set()


def test_a_kernel_that_left_is_forgotten_and_news_of_it_is_dropped():
    it = directory()
    it.left("k")
    assert it.agent_said(agent("attached")) == set()
    assert it.scheduler_said(changed(workload())) == set()
    assert "k" not in it


def test_the_outlook_tells_the_agent_what_the_gate_shows():
    outlook = directory(changed(workload(reason=WHY))).outlook("k")
    assert (outlook.pending, outlook.reason, outlook.position, outlook.request.gpu) == (
        True,
        WHY,
        3,
        0.5,
    )
    assert not directory(changed(workload(granted=lease(), state="running"))).outlook("k").pending
