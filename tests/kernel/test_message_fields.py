"""The kernel speaks plain dicts; these are the bodies of `messages.machine`, and loading it costs
no server dependency.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jupyter_gpushare.kernel.connection import AgentConnection, address_from, detached
from jupyter_gpushare.messages import FromKernel, Kernel, convert, to_json

SENT = [
    {"type": "kernel_hello", "kernel_id": "k", "token": "t", "pid": 1},
    {"type": "cell_start", "n": 1, "exempt": True, "wait": False, "running": False},
    {"type": "cell_cancel", "n": 1},
    {"type": "cell_end", "n": 1},
    {"type": "ask", "n": 1, "action": "request", "body": {"gpu": 0.5}},
    {"type": "caches_dropped"},
    {"type": "ping"},
]
HEAVY = "msgspec tornado jupyter_client jupyter_server sqlalchemy numpy pydantic yaml click rich"


@pytest.mark.parametrize("message", SENT, ids=lambda m: m["type"])
def test_what_the_kernel_sends_is_a_body_of_the_language(message):
    assert to_json(convert(FromKernel, message)) == message


def test_every_message_in_the_source_is_among_these():
    """A new kind of message in kernel/ must be added to the list above."""
    import re
    from pathlib import Path

    import jupyter_gpushare.kernel as package

    source = "".join(path.read_text() for path in Path(package.__path__[0]).rglob("*.py"))
    sent = set(re.findall(r'\{\s*"type": "(\w+)"', source)) - {"away", "tick"}
    assert sent == {message["type"] for message in SENT}


def test_a_kernel_that_asked_for_nothing_looks_like_the_body():
    assert detached("k") == to_json(Kernel(kernel_id="k"))


def test_loading_the_extension_imports_none_of_the_servers_dependencies():
    code = f"import sys, jupyter_gpushare.kernel.magics; print([m for m in {HEAVY!r}.split() if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_kernel_that_was_not_started_through_us_has_no_agent():
    assert address_from({}) is None
    link = AgentConnection(None, lambda message: None)
    link.start()
    assert link.send({"type": "caches_dropped"}) is False
    assert json.loads(json.dumps(link.kernel)) == detached()
