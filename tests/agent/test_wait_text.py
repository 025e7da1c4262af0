"""Messages about a kernel: true for every cause."""

from __future__ import annotations

from node_agent.state.event_text import EventText
from node_agent.state.kernel_record import KernelRecord


def test_a_move_says_where_to_and_claims_no_reason_of_its_own():
    """Its owner may have pressed "Move now", or the agent found a better place: there is more room
    either way.
    """
    said = EventText("simulated GPU").moved((0,), (1,), None)
    assert (
        said
        == "Moved from simulated GPU 0 to simulated GPU 1, which has more room. Nothing was lost."
    )


def test_a_notice_says_what_is_taken_and_what_prevents_it():
    text, kernel = EventText("GPU"), KernelRecord("k")
    said = text.notice(70 * 1024, 30 * 1024, 10, kernel, None, "", can_save=True)
    assert said == (
        "70 GiB of GPU memory will be reclaimed in 10 s: another workload needs its share. "
        "The memory will be saved to host memory if the driver supports it, and restored later. "
        "Free 30 GiB by then to prevent it."
    )
    all_of_it = text.notice(1024, 1024, 10, kernel, None, "", can_save=False)
    assert all_of_it.endswith("needs its share. The memory cannot be saved here and will be lost.")


def test_memory_of_a_released_gpu_is_restored_with_the_next_gpu():
    said = EventText("GPU").suspended(1024, KernelRecord("k"), None, "", requested=True)
    assert said == (
        "Saved 1 GiB of GPU memory to host memory: the GPU was released. "
        "It is restored when this notebook has a GPU again."
    )


def test_a_move_names_the_workload_that_needs_the_gpu():
    said = EventText("GPU").moved((0,), (1,), KernelRecord("k"))
    assert said == "Moved from GPU 0 to GPU 1 to make room for another workload. Nothing was lost."
