"""An agent for tests: a real unix socket with scripted answers, which records what it receives."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from pathlib import Path

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.kernel.kernel_body import detached


def kernel_state(state: str, **more):
    """A kernel as the agent would send it."""
    return {**detached("k1"), "state": state, **more}


class FakeAgent:
    """Welcomes a kernel in state `state`; allows every cell at once unless `holding`; answers
    requests from `answers`.
    """

    def __init__(self, path: Path, state: str = "detached") -> None:
        self.path = path
        self.kernel = kernel_state(state)
        self.holding, self.simulated = False, True
        self.protocol = 1
        self.answers = {"why": lambda body: self.kernel}
        self.received: queue.Queue = queue.Queue()
        self._connections: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Close the socket and all connections, as if the agent had crashed."""
        self._listener.close()
        self.path.unlink(missing_ok=True)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections.clear()

    def send(self, message: dict) -> None:
        self._connections[-1].sendall(json.dumps(message).encode() + b"\n")

    def set_state(self, state: str, *, cap_mib: int = 0, devices: tuple = (), **more) -> None:
        self.kernel = kernel_state(state, **more)
        self.send(
            {"type": "kernel", "kernel": self.kernel, "cap_mib": cap_mib, "devices": list(devices)}
        )

    def receive(self, kind: str, timeout: float = 60) -> dict:
        """The next message of this kind; others before it are skipped."""
        while True:
            message = self.received.get(timeout=timeout)
            if message["type"] == kind:
                return message

    def received_kinds(self) -> list[str]:
        kinds = []
        while not self.received.empty():
            kinds.append(self.received.get()["type"])
        return kinds

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection.makefile() as lines:
            for line in lines:
                message = json.loads(line)
                self._react(message)
                self.received.put(message)

    def _react(self, message: dict) -> None:
        match message["type"]:
            case "kernel_hello" if message["protocol"] != self.protocol:
                self.send({"type": "kernel_refused", "protocol": self.protocol})
            case "kernel_hello":
                self.send(
                    {
                        "type": "kernel_welcome",
                        "node": "n",
                        "simulated": self.simulated,
                        "kernel": self.kernel,
                    }
                )
            case "cell_start" if not self.holding or message["exempt"]:
                self.send({"type": "cell_go", "n": message["n"], "waited_ms": 0, "message": ""})
            case "cell_start":
                self.send(
                    {
                        "type": "cell_wait",
                        "n": message["n"],
                        "message": "Waiting for quota.",
                        "reason": None,
                        "position": 2,
                    }
                )
            case "ask":
                self.send({"type": "reply", "n": message["n"], **self._answer(message)})

    def _answer(self, message: dict) -> dict:
        try:
            return {"body": self.answers[message["action"]](message["body"]), "error": None}
        except GpuShareError as error:
            found = {"code": error.code, "message": error.message, "field": error.field}
            return {"body": None, "error": found}
