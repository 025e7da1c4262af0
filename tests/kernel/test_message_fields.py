"""The plain dicts that the kernel sends are bodies of `messages.agent_socket`, and loading the
kernel part loads no dependency of the server.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.connection import AgentConnection, address_from
from jupyter_gpushare.kernel.kernel_body import detached
from jupyter_gpushare.messages import FromKernel, Kernel, convert, to_json

SENT = [
    {
        "type": "kernel_hello",
        "kernel_id": "k",
        "token": "t",
        "pid": 1,
        "proxy": False,
        "protocol": 1,
    },
    {"type": "cell_start", "n": 1, "exempt": True, "wait": False, "running": False},
    {"type": "cell_cancel", "n": 1},
    {"type": "cell_end", "n": 1},
    {"type": "ask", "n": 1, "action": "request", "body": {"gpu": 0.5}},
    {"type": "caches_dropped"},
    {"type": "ping"},
]
HEAVY = "msgspec tornado jupyter_client jupyter_server sqlalchemy numpy pydantic yaml click rich"


@pytest.mark.parametrize("message", SENT, ids=lambda m: m["type"])
def test_messages_of_the_kernel_match_their_schemas(message):
    assert to_json(convert(FromKernel, message)) == message


def test_every_message_in_the_source_is_listed_here():
    """A new kind of message in kernel/ must be added to the list above."""
    import re

    import jupyter_gpushare.kernel as package

    source = "".join(path.read_text() for path in Path(package.__path__[0]).rglob("*.py"))
    sent = set(re.findall(r'\{\s*"type": "(\w+)"', source)) - {"away", "tick", "told"}
    assert sent == {message["type"] for message in SENT}


def test_the_initial_kernel_body_matches_its_schema():
    assert detached("k") == to_json(Kernel(kernel_id="k"))


def test_the_extension_imports_none_of_the_servers_dependencies():
    code = (
        "import sys, jupyter_gpushare.kernel.magics.line_magic\n"
        f"print([m for m in {HEAVY!r}.split() if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_kernel_of_another_provisioner_has_no_agent():
    assert address_from({}) is None
    connection = AgentConnection(None, lambda message: None)
    connection.start()
    assert connection.send({"type": "caches_dropped"}) is False
    assert json.loads(json.dumps(connection.kernel)) == detached()


def _loaded_in_a_kernel() -> list[str]:
    code = (
        "import sys\n"
        "from jupyter_gpushare.kernel import magics, panel, simgpu\n"
        "import jupyter_gpushare.kernel.magics.line_magic\n"
        "files = [m.__file__ for n, m in sys.modules.items() if n.startswith('jupyter_gpushare')]\n"
        "print('\\n'.join(file for file in files if file))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return found.stdout.split()


def test_modules_loaded_in_a_kernel_use_the_syntax_of_python_3_9():
    files = _loaded_in_a_kernel()
    assert len(files) > 20
    for file in files:
        source = Path(file).read_text()
        ast.parse(source, filename=file, feature_version=(3, 9))
        for newer in ("slots=True", "strict=True", "strict=False"):  # of dataclasses, of zip()
            assert newer not in source, file
