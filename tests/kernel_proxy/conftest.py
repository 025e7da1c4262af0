"""Real kernels behind a real proxy, whose agent is the fake one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.blocking import BlockingKernelClient

from tests.kernel.conftest import Notebook
from tests.kernel.fake_agent import FakeAgent
from tests.story.front_end import eventually
from tests.workers import free_port

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
CONNECTION = {
    "transport": "tcp",
    "ip": "127.0.0.1",
    "key": "secret",
    "signature_scheme": "hmac-sha256",
}
KERNELS = {
    "ipykernel": ("-m", "ipykernel_launcher", "-f"),
    "bash": ("-m", "bash_kernel", "-f"),
    "sensitive": (str(Path(__file__).with_name("interrupt_sensitive_kernel.py")), "-f"),
    "lying": (str(Path(__file__).with_name("lying_kernel.py")), "-f"),
}
"""Arguments of the interpreter, without the connection file."""


class ProxiedKernel:
    """One kernel, its proxy, and the provisioner's end of the proxy's socket."""

    def __init__(
        self, folder: Path, argv: tuple[str, ...], keys: dict[str, str], **environ: str
    ) -> None:
        self.folder = folder
        self.front, self.back = folder / "front.json", folder / "back.json"
        for file in (self.front, self.back):
            ports = {f"{channel}_port": free_port() for channel in CHANNELS}
            file.write_text(json.dumps({**CONNECTION, **keys, **ports}))
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(20)
        self.proxy = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "jupyter_gpushare.kernel_proxy"),
                *("--front", str(self.front), "--back", str(self.back)),
                *("--fd", str(theirs.fileno()), "--gone-after", "3"),
            ],
            env={**os.environ, **environ},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.argv, self.kernel = argv, None
        self.launch()
        self.command(do="kernel", pid=self.kernel.pid)
        self.clients: list[BlockingKernelClient] = []

    def launch(self) -> None:
        """Start the kernel; a process that runs is replaced."""
        if self.kernel is not None:
            os.killpg(self.kernel.pid, signal.SIGKILL)
            self.kernel.wait()
        self.kernel = subprocess.Popen(
            [sys.executable, *self.argv, str(self.back)],
            cwd=self.folder,
            env=os.environ | {"IPYTHONDIR": str(self.folder)},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )

    def command(self, **command: object) -> None:
        self.socket.sendall(json.dumps(command).encode() + b"\n")

    def interrupt(self) -> bool:
        """As the provisioner does; whether the kernel was spared the signal."""
        self.command(do="interrupt")
        held = json.loads(self.socket.recv(4096))["held"]
        if not held:
            os.killpg(self.kernel.pid, signal.SIGINT)
        return held

    def client(self) -> Notebook:
        # a client that has no kernel manager takes a heart that does not beat yet for dead
        for file in (self.front, self.back):
            content = json.loads(file.read_text())
            eventually(lambda content=content: _listens(content), "the kernel listens", 40)
        client = BlockingKernelClient(connection_file=str(self.front))
        client.load_connection_file()
        client.start_channels()
        self.clients.append(client)
        client.wait_for_ready(timeout=60)
        return Notebook(None, client)

    def stop(self) -> None:
        for client in self.clients:
            client.stop_channels()
        self.socket.close()
        for process in (self.kernel, self.proxy):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listens(content: dict) -> bool:
    port = content["hb_port"]
    if content["transport"] == "ipc":
        return Path(f"{content['ip']}-{port}").exists()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def agent(tmp_path):
    agent = FakeAgent(tmp_path / "agent.sock")
    yield agent
    agent.close()


@pytest.fixture
def start(agent, tmp_path):
    """Starts kernels for the agent's state at that moment: `start("bash")`."""
    started = []

    def make(
        name: str = "ipykernel", keys: dict[str, str] | None = None, **environ: str
    ) -> ProxiedKernel:
        (tmp_path / "token").write_text("secret")
        ours = {
            "GPUSHARE_KERNEL_ID": "k1",
            "GPUSHARE_AGENT": str(agent.path),
            "GPUSHARE_TOKEN_FILE": str(tmp_path / "token"),
        }
        wants = {} if agent.kernel["state"] == "detached" else {"GPUSHARE_WANTS_GPU": "1"}
        started.append(
            ProxiedKernel(tmp_path, KERNELS[name], keys or {}, **ours, **wants, **environ)
        )
        return started[-1]

    yield make
    for one in started:
        one.stop()
