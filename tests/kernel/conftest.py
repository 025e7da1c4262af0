"""A real ipykernel whose agent is the fake one."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from jupyter_gpushare.server_extension.launch.bootstrap import bootstrap_environment
from tests.kernel.fake_agent import FakeAgent

OUTPUTS = ("stream", "display_data", "update_display_data", "execute_result", "error")


@dataclass
class Result:
    """The reply of one cell and its outputs."""

    reply: dict
    outputs: list[dict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.reply["status"] == "ok"

    @property
    def text(self) -> str:
        """All text under the cell, updates included."""
        return "\n".join(_text(one) for one in self.outputs)


def _text(message: dict) -> str:
    content = message["content"]
    if message["msg_type"] == "error":
        return "\n".join(content["traceback"])
    return content.get("text") or content.get("data", {}).get("text/plain", "")


class Notebook:
    """A kernel and its client, as a notebook would use it. Messages are kept by the request that
    they belong to, so that several cells can run at once.
    """

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client
        self._outputs: dict[str, list[dict]] = defaultdict(list)
        self._replies: dict[str, dict] = {}

    def submit(self, code: str, subshell: str | None = None) -> str:
        """Begin a cell, in the main shell or in a subshell; the id of its request."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        message = self.client.session.msg("execute_request", {**content, "allow_stdin": False})
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def create_subshell(self) -> str:
        """Its id."""
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        return self.client.get_control_msg(timeout=60)["content"]["subshell_id"]

    def delete_subshell(self, subshell: str) -> None:
        """Wait for the kernel's reply."""
        message = self.client.session.msg("delete_subshell_request", {"subshell_id": subshell})
        self.client.control_channel.send(message)
        assert self.client.get_control_msg(timeout=60)["content"]["status"] == "ok"

    def _next_output(self, msg_id: str, timeout: float) -> dict:
        while not self._outputs[msg_id]:
            message = self.client.get_iopub_msg(timeout=timeout)
            self._outputs[message["parent_header"].get("msg_id")].append(message)
        return self._outputs[msg_id].pop(0)

    def _reply(self, msg_id: str, timeout: float) -> dict:
        while msg_id not in self._replies:
            message = self.client.get_shell_msg(timeout=timeout)
            self._replies[message["parent_header"].get("msg_id")] = message
        return self._replies.pop(msg_id)

    def collect(self, msg_id: str, timeout: float = 60) -> Result:
        """The end of a cell, and what it has shown since the last look."""
        outputs = []
        while True:
            message = self._next_output(msg_id, timeout)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            if message["msg_type"] in OUTPUTS:
                outputs.append(message)
        return Result(self._reply(msg_id, timeout)["content"], outputs)

    def run(self, code: str) -> Result:
        return self.collect(self.submit(code))

    def until_shown(self, msg_id: str, words: str, timeout: float = 60) -> None:
        """Wait until this cell shows these words."""
        while words not in _text(self._next_output(msg_id, timeout)):
            pass


@pytest.fixture
def agent(tmp_path):
    agent = FakeAgent(tmp_path / "agent.sock")
    yield agent
    agent.close()


@pytest.fixture
def notebook(agent, tmp_path):
    """Starts a kernel for the agent's state at that moment: `notebook()`."""
    started = []

    def start(*, startup: bool = False, flags: tuple[str, ...] = (), **environ: str) -> Notebook:
        """`startup`: as the provisioner starts it; `flags` of the interpreter."""
        (tmp_path / "token").write_text("secret")
        ours = {
            "GPUSHARE_KERNEL_ID": "k1",
            "GPUSHARE_AGENT": str(agent.path),
            "GPUSHARE_TOKEN_FILE": str(tmp_path / "token"),
        }
        manager = KernelManager()
        command = manager.kernel_spec.argv  # type: ignore[union-attr]  # there is one
        command[:] = [sys.executable, *flags, *command[1:]]
        manager.start_kernel(
            extra_arguments=[] if startup else ["--ext", "jupyter_gpushare"],
            env={**os.environ, **ours, **(bootstrap_environment({}) if startup else {}), **environ},
            cwd=str(tmp_path),
        )
        client = manager.client()
        client.start_channels()
        started.append((manager, client))
        client.wait_for_ready(timeout=60)
        return Notebook(manager, client)

    yield start
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def python():
    return sys.executable
