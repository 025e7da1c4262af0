"""Starts and stops the proxy of one launch of a kernel (`jupyter_gpushare.kernel_proxy`), and talks
to it.

The kernel stays a child of this process, in a session of its own; the proxy is in another session,
so that no signal to the kernel reaches it. When this process ends, the proxy ends the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jupyter_client.connect import LocalPortCache

__all__ = ["PROXY_MODULE", "ProxyProcess"]

PROXY_MODULE: Final = "jupyter_gpushare.kernel_proxy"
CHANNELS: Final = ("shell", "iopub", "stdin", "control", "hb")
LOOPBACK: Final = "127.0.0.1"
ANSWER_S: Final = 1.0
"""A proxy that does not answer is stuck: the kernel is interrupted then."""
STOP_S: Final = 1.0
PROXY_VARIABLES: Final = (
    "GPUSHARE_AGENT",
    "GPUSHARE_KERNEL_ID",
    "GPUSHARE_TOKEN_FILE",
    "GPUSHARE_WANTS_GPU",
    "GPUSHARE_PROBLEM",
    "GPUSHARE_AGENT_WAIT",
)
TAKEN_FROM_KERNEL: Final = ("GPUSHARE_AGENT", "GPUSHARE_TOKEN_FILE", "GPUSHARE_WANTS_GPU")
"""Variables that only the proxy has: a second connection for the kernel would replace its own."""
LAUNCHED_WITH: Final = "GPUSHARE_LAUNCHED_WITH"
"""`jupyter_gpushare.kernel_proxy.visible_gpus.VISIBLE`."""
MARKER: Final = "GPUSHARE_PROXY_OF"
"""`node_agent.system.processes.PROXY_MARKER`."""


class ProxyProcess:
    """One proxy. Needs no event loop between its calls."""

    def __init__(self, front: str, relaunch: Callable[[str], None]) -> None:
        """`front`: the connection file of the clients, as the kernel's command names it. Writes the
        one for the kernel, outside of Jupyter's runtime directory: `jupyter console --existing`
        looks for the newest file there. `relaunch`: called in a thread when the kernel has to see
        these GPUs, and has executed nothing yet.
        """
        self._front, self._relaunch = front, relaunch
        self._folder = Path(tempfile.mkdtemp(prefix="gpushare-proxy-"))
        self._ports: list[int] = []
        self.back = self._folder / Path(front).name
        self._write_back_file()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def _write_back_file(self) -> None:
        content = json.loads(Path(self._front).read_text(encoding="utf-8"))
        if content.get("transport", "tcp") == "ipc":
            content["ip"] = str(self._folder / "k")
            ports = list(range(1, len(CHANNELS) + 1))
        else:
            content["ip"] = LOOPBACK
            cache = LocalPortCache.instance()
            self._ports = ports = [cache.find_available_port(LOOPBACK) for _ in CHANNELS]
        for channel, port in zip(CHANNELS, ports, strict=True):
            content[f"{channel}_port"] = port
        with os.fdopen(
            os.open(self.back, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            json.dump(content, file)

    # ---- launch

    def kernel_command(self, cmd: Sequence[str]) -> list[str]:
        """The kernel's command with the connection file that it has to read. The file may be a part
        of a word, as in the text of a shell command.
        """
        return [word.replace(self._front, str(self.back)) for word in cmd]

    @staticmethod
    def kernel_environment(env: Mapping[str, str]) -> dict[str, str]:
        """The kernel's environment, without the variables of the proxy."""
        return {name: value for name, value in env.items() if name not in TAKEN_FROM_KERNEL}

    def start(self, env: Mapping[str, str], base: Mapping[str, str]) -> None:
        """Start the proxy. `env`: the kernel's environment, with the variables of the agent;
        `base`: that of this process, without its secrets.
        """
        ours, theirs = socket.socketpair()
        variables = {name: env[name] for name in PROXY_VARIABLES if name in env}
        if "CUDA_VISIBLE_DEVICES" in env:
            variables[LAUNCHED_WITH] = env["CUDA_VISIBLE_DEVICES"]
        if "GPUSHARE_KERNEL_ID" in env:
            variables[MARKER] = env["GPUSHARE_KERNEL_ID"]
        options = ["--front", self._front, "--back", str(self.back)]
        with theirs:
            self._process = subprocess.Popen(
                # -P: no module of the notebook's folder is imported
                [sys.executable, "-P", "-m", PROXY_MODULE, *options, "--fd", str(theirs.fileno())],
                env={**base, **variables},
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        threading.Thread(
            target=self._receive, args=(ours,), name="gpushare-proxy", daemon=True
        ).start()

    def kernel_launched(self, pid: int) -> None:
        """The kernel's process."""
        self._send({"do": "kernel", "pid": pid})

    def kernel_relaunched(self, pid: int, visible: str) -> None:
        """Another process of the kernel, as requested by `relaunch`."""
        self._send({"do": "relaunched", "pid": pid, "visible": visible})

    @property
    def has_failed(self) -> bool:
        """Whether the proxy was started and has ended."""
        return self._process is not None and self._process.poll() is not None

    # ---- run

    async def interrupt(self) -> bool:
        """Stop the waits of all cells. Returns whether the kernel must not be interrupted, because
        it executes nothing.
        """
        return await asyncio.to_thread(self._interrupt)

    def _interrupt(self) -> bool:
        with contextlib.suppress(queue.Empty):
            while True:
                self._answers.get_nowait()
        if not self._send({"do": "interrupt"}):
            return False
        try:
            return bool(self._answers.get(timeout=ANSWER_S)["held"])
        except queue.Empty:
            return False

    def _receive(self, connection: socket.socket) -> None:
        # RuntimeError: the event loop of `relaunch` is closed
        with contextlib.suppress(OSError, ValueError, RuntimeError), connection.makefile() as lines:
            for line in lines:
                message = json.loads(line)
                if message.get("ask") == "relaunch":
                    self._relaunch(message["visible"])
                else:
                    self._answers.put(message)

    def _send(self, message: dict[str, Any]) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    # ---- end

    async def stop(self) -> None:
        """End the proxy: what the kernel sent last is delivered first."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._send({"do": "stop"})
        if self._process is not None:
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for port in self._ports:
            LocalPortCache.instance().return_port(port)
        self._ports = []
        shutil.rmtree(self._folder, ignore_errors=True)
