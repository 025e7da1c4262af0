"""A waiting notebook suggests to release the user's own shares that are unused or idle."""

from __future__ import annotations

import msgspec

from jupyter_gpushare.messages import HelpBody, KernelRequest, KernelRuntime, MemoryMib, ReasonBody
from jupyter_gpushare.server_extension.kernels.kernel_entry import RequestedChange
from jupyter_gpushare.server_extension.kernels.kernel_registry import KernelRegistry
from tests.server_extension.test_kernel_registry import changed, lease, workload

SMALLER = HelpBody(change="gpu", to="0.25", message="A request for 0.25 GPU would start now.")
FULL = ReasonBody(code="WaitingForFreeGPU", message="No GPU is free.", helps=[SMALLER])
QUOTA = ReasonBody(code="WaitingForQuota", message="The quota is used.", helps=[SMALLER])


class Kernels:
    """Kernels of one server: one waits, others hold shares."""

    def __init__(self, reason: ReasonBody = FULL, project: str = "vision") -> None:
        self.registry = KernelRegistry()
        self.registry.add("w", "waits.ipynb")
        self.registry.set_request("w", KernelRequest(gpu=1), "w.1")
        pending = workload(workload_id="w.1", reason=reason)
        self._apply(msgspec.structs.replace(pending, kernel_id="w", project=project))

    def _apply(self, view) -> None:
        self.registry.apply_frame(changed(view))

    def share(self, kernel_id: str, *, used=0, saved=0, project="vision", **runtime) -> None:
        """Another kernel with half a GPU; `runtime`: more of the agent's report."""
        id_ = f"{kernel_id}.1"
        self.registry.add(kernel_id, f"{kernel_id}.ipynb")
        self.registry.set_request(kernel_id, KernelRequest(gpu=0.5), id_)
        granted = msgspec.structs.replace(lease(), workload=id_, kernel_id=kernel_id)
        view = workload(workload_id=id_, granted=granted, state="running")
        self._apply(msgspec.structs.replace(view, kernel_id=kernel_id, project=project))
        memory = MemoryMib(guaranteed=40960, used=used)
        runtime = {"state": "attached", "memory_mib": memory, "saved_mib": saved, **runtime}
        self.registry.apply_runtime(KernelRuntime(kernel_id=kernel_id, workload=id_, **runtime))

    def helps(self, kernel_id: str = "w") -> list[HelpBody]:
        self.registry.refresh_suggestions()
        return self.registry.view(kernel_id).reason.helps


def test_an_unused_share_comes_first():
    kernels = Kernels()
    kernels.share("second")
    assert kernels.helps() == [
        HelpBody(
            change="release",
            to="second",
            message="second.ipynb holds 0.5 GPU and uses 0 MiB: release it.",
        ),
        SMALLER,
    ]


def test_unused_before_suspended_before_idle():
    kernels = Kernels()
    kernels.share("idle", used=2048)
    kernels.share("saved", saved=1024, state="suspended")
    kernels.share("unused")
    assert [help_.message for help_ in kernels.helps()[:3]] == [
        "unused.ipynb holds 0.5 GPU and uses 0 MiB: release it.",
        "saved.ipynb holds 0.5 GPU and is suspended: release it.",
        "idle.ipynb holds 0.5 GPU and is idle with 2 GiB in use: release it.",
    ]


def test_not_a_share_that_is_used_or_pinned():
    kernels = Kernels()
    kernels.share("busy", busy=True)
    kernels.share("pinned", pinned=True)
    assert kernels.helps() == [SMALLER]


def test_for_a_quota_only_shares_of_the_same_project_help():
    kernels = Kernels(QUOTA)
    kernels.share("other", project="language")
    assert kernels.helps() == [SMALLER]
    kernels.share("same")
    assert [help_.to for help_ in kernels.helps()] == ["same", "0.25"]


def test_not_for_a_request_that_alone_exceeds_a_quota():
    over = msgspec.structs.replace(QUOTA, code="NonPreemptibleOverQuota")
    kernels = Kernels(over)
    kernels.share("same")
    assert kernels.helps() == [SMALLER]
    later = HelpBody(change="wait", to="", message="It starts automatically when enough is free.")
    kernels = Kernels(msgspec.structs.replace(over, helps=[later]))
    kernels.share("same")
    assert [one.to for one in kernels.helps()] == ["same", ""]


def test_not_for_a_request_that_can_never_start():
    kernels = Kernels(msgspec.structs.replace(FULL, code="NeverFits"))
    kernels.share("second")
    assert kernels.helps() == [SMALLER]


def test_a_waiting_kernel_changes_with_the_shares_of_others():
    kernels = Kernels()
    kernels.share("second", busy=True)
    assert kernels.registry.refresh_suggestions() == set()
    kernels.share("second")
    assert kernels.registry.refresh_suggestions() == {"w"}
    assert kernels.registry.refresh_suggestions() == set()


def test_a_kernel_that_waits_for_another_share_is_not_suggested_to_itself():
    kernels = Kernels()
    kernels.share("second")
    kernels.share("mine")
    change = RequestedChange(KernelRequest(gpu=1), "mine.2")
    kernels.registry.set_change("mine", change)
    pending = workload(workload_id="mine.2", reason=FULL)
    kernels.registry.apply_frame(changed(msgspec.structs.replace(pending, kernel_id="mine")))
    kernels.registry.refresh_suggestions()
    reason = kernels.registry.view("mine").pending_change.reason
    assert [help_.to for help_ in reason.helps] == ["second"], "0.25 is less than it has"
