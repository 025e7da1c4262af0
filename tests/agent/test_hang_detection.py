"""Work that hangs in the driver is reported while it hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from node_agent.devices.base.call_tracker import CallTracker, hang_problem
from node_agent.devices.base.hang_detection import run_watched


def test_work_that_failed_after_a_hang_is_retried_and_other_failures_are_raised():
    calls, reported, gate = CallTracker(), [], threading.Event()
    tries = []

    def search() -> str:
        tries.append(1)
        if len(tries) == 1:
            calls.track("nvmlInit", gate.wait)
            raise Unavailable("not in a normal state")
        return "devices"

    def report(problem: str) -> None:
        reported.append(problem)
        gate.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "node_agent.devices.base.hang_detection.hang_problem",
            lambda: hang_problem(calls, slow_s=0.05),
        )
        assert asyncio.run(run_watched(search, report)) == "devices"
        assert "nvmlInit" in reported[0]
        assert reported[-1] == ""
        with pytest.raises(Unavailable):
            asyncio.run(
                run_watched(lambda: (_ for _ in ()).throw(Unavailable("no driver")), report)
            )
