"""A restart by the user is no error; a crash is reported with the lost GPU memory."""

from __future__ import annotations

import pytest

from tests.story.front_end import eventually

pytestmark = pytest.mark.slow
HOLD = "from jupyter_gpushare import simgpu; kept = simgpu.alloc('1GiB')"


def test_only_a_crash_reports_lost_memory(server, notebook):
    mine = notebook("half")
    mine.until("attached")
    mine.ok(HOLD)
    before = mine.view["generation"]
    server.rest("POST", f"api/kernels/{mine.kernel_id}/restart")
    eventually(lambda: mine.view["generation"] > before, "the new process is attached")
    mine.connect()
    mine.ok(HOLD)
    assert not {"lost", "killed"} & set(mine.kinds())
    eventually(lambda: mine.view["memory_mib"]["used"] == 1024, "the agent measures its memory")
    mine.submit("import os; os.kill(os.getpid(), 9)")
    eventually(lambda: "lost" in mine.kinds(), "the crash is reported")
    mine.until("attached")
