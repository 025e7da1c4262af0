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


def test_a_move_names_the_workload_that_needs_the_gpu():
    said = EventText("GPU").moved((0,), (1,), KernelRecord("k"))
    assert said == "Moved from GPU 0 to GPU 1 to make room for another workload. Nothing was lost."
