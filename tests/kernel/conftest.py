"""A real ipykernel whose agent is the fake one."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.kernel.fake_agent import FakeAgent


@dataclass
class Result:
    """What one cell gave: its reply and everything it showed."""

    reply: dict
    outputs: list[dict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.reply["status"] == "ok"

    @property
    def text(self) -> str:
        """All that a person could read under the cell, updates included."""
        return "\n".join(_text(one) for one in self.outputs)


def _text(message: dict) -> str:
    content = message["content"]
    if message["msg_type"] == "error":
        return "\n".join(content["traceback"])
    return content.get("text") or content.get("data", {}).get("text/plain", "")


class Notebook:
    """A kernel and its client, as a notebook would use it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def submit(self, code: str) -> str:
        return self.client.execute(code)

    def collect(self, msg_id: str, timeout: float = 20) -> Result:
        outputs = []
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            if message["msg_type"] in (
                "stream",
                "display_data",
                "update_display_data",
                "execute_result",
                "error",
            ):
                outputs.append(message)
        while (reply := self.client.get_shell_msg(timeout=timeout))["parent_header"].get(
            "msg_id"
        ) != msg_id:
            pass
        return Result(reply["content"], outputs)

    def run(self, code: str) -> Result:
        return self.collect(self.submit(code))

    def until_shown(self, msg_id: str, words: str, timeout: float = 20) -> None:
        """Wait until this cell shows these words."""
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") == msg_id and words in _text(message):
                return


@pytest.fixture
def agent(tmp_path):
    agent = FakeAgent(tmp_path / "agent.sock")
    yield agent
    agent.close()


@pytest.fixture
def notebook(agent, tmp_path):
    """Starts a kernel for the agent's state at that moment: `notebook()`."""
    started = []

    def start(**environ: str) -> Notebook:
        (tmp_path / "token").write_text("secret")
        ours = {
            "GPUSHARE_KERNEL_ID": "k1",
            "GPUSHARE_AGENT": str(agent.path),
            "GPUSHARE_TOKEN_FILE": str(tmp_path / "token"),
        }
        manager = KernelManager()
        manager.start_kernel(
            extra_arguments=["--ext", "jupyter_gpushare"],
            env={**os.environ, **ours, **environ},
            cwd=str(tmp_path),
        )
        client = manager.client()
        client.start_channels()
        started.append((manager, client))
        client.wait_for_ready(timeout=30)
        return Notebook(manager, client)

    yield start
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def python():
    return sys.executable
