"""A real qtconsole without a display, in an environment of its own."""

from __future__ import annotations

import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.tools import ALLOCATE, STATE, program, qtconsole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_console_waits_runs_and_frees(server: Server):
    command, environ = qtconsole("whole", ALLOCATE, STATE)
    busy = [server.notebook("whole", f"busy{i}.ipynb") for i in range(2)]
    for one in busy:
        one.until("attached")
    with program(server, *command, **environ) as console:
        waits = "gpushare: waiting for a GPU: Needs 1 GPU"
        eventually(lambda: waits in console.text, f"it waits; {console.text}", 60)
        busy[0].shut_down()
        assert console.wait() == 0, console.text
    assert "on a GPU" in console.text
    assert "attached" in console.text
    busy[1].shut_down()
    server.nothing_is_left()
