"""The kernel's line to the node agent: one unix socket, owned by one daemon thread, that comes back
by itself.

Bodies are plain dicts with the shapes of `jupyter_gpushare.messages.agent_socket` (a test compares
them): a kernel must not pay for the server's dependencies. Nothing here decides anything and
nothing here touches IPython.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from jupyter_gpushare.aio import Backoff

__all__ = ["AgentAddress", "Json", "AgentConnection", "address_from", "detached"]

Json = dict[str, Any]
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between two attempts to reach an agent that is away: an agent's restart takes about that long."""
SEND_S: Final = 5.0
PULSE_S: Final = 1.0
"""How often a kernel on a real GPU says that its interpreter runs."""
LONGEST_LINE: Final = 4 << 20


class AgentAddress(NamedTuple):
    """Where this kernel's agent listens and how the kernel proves who it is."""

    kernel_id: str
    socket: str
    token_file: str


def address_from(environ: Mapping[str, str]) -> AgentAddress | None:
    """What the provisioner left in the environment; None in a kernel that was not started through
    it.
    """
    kernel_id, path = environ.get("GPUSHARE_KERNEL_ID"), environ.get("GPUSHARE_AGENT")
    if not kernel_id or not path:
        return None
    return AgentAddress(kernel_id, path, environ.get("GPUSHARE_TOKEN_FILE", ""))


def detached(kernel_id: str = "") -> Json:
    """The state of a kernel that asked for nothing."""
    nothing = {"gpu": None, "gpu_memory_mib": None}
    return {
        "kernel_id": kernel_id,
        "name": "",
        "state": "detached",
        "project": None,
        "request": nothing,
        "limit": nothing,
        "node": None,
        "planned_gpu": None,
        "gpu_uuid": None,
        "simulated": False,
        "pinned": False,
        "busy": False,
        "memory_mib": {"guaranteed": 0, "used": 0, "borrowed": 0},
        "gpu_memory_total_mib": 0,
        "saved_mib": 0,
        "reason": None,
        "queue_position": None,
        "expected_wait": None,
        "notice_deadline": None,
        "generation": 0,
        "workload": None,
        "utilization": None,
        "cell_waits": None,
        "preset": None,
        "events": [],
    }


class AgentConnection:
    """Sends and receives for this process. `kernel`, `node`, `simulated` and `cap_mib` are what the
    agent said last.

    A message with a number `n` goes to the one who asked it (`asking`); every other goes to
    `on_message`, in the link's thread. When the line breaks, everybody who waits is handed
    `{"type": "away"}`.
    """

    def __init__(
        self, address: AgentAddress | None, on_message: Callable[[Json], None], *, problem: str = ""
    ) -> None:
        """`problem`: why there was no agent when this kernel was launched."""
        self.address = address
        self._problem = problem
        self.kernel: Json = detached(address.kernel_id if address else "")
        self.node = ""
        self.simulated = False
        self.cap_mib = 0
        self.welcomed = threading.Event()
        """Set while the line stands; cleared when it breaks."""
        self.ever_welcomed = False
        self.lost_at = 0.0
        """When a line that stood broke last (monotonic seconds)."""
        self._on_message = on_message
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Json]] = {}
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._owner = os.getpid()
        self._has_pulse = False

    def problem(self) -> str:
        """Why no agent has ever answered, as far as it was known when this kernel was launched; "":
        one has, or nobody knew.
        """
        return "" if self.ever_welcomed else self._problem

    def start(self) -> None:
        """Begin to connect, in the background; does nothing in a kernel that has no agent."""
        if self.address is not None:
            threading.Thread(target=self._run, name="gpushare-link", daemon=True).start()

    def stop(self) -> None:
        """Close the line for good."""
        self._stopping.set()
        self._close()

    def send(self, message: Json) -> bool:
        """Whether it was handed to the operating system. Never raises: an agent that is away will
        be told after its return.
        """
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        with self._sending:
            sock = self._socket
            if sock is None or os.getpid() != self._owner:
                return False
            try:
                sock.sendall(line)
            except OSError:
                self._close()
                return False
            return True

    @contextlib.contextmanager
    def asking(self) -> Iterator[tuple[int, queue.SimpleQueue[Json]]]:
        """A fresh number, and the queue in which what carries it arrives."""
        n = next(self._numbers)
        answers: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._waiting[n] = answers
        try:
            yield n, answers
        finally:
            self._waiting.pop(n, None)

    def _run(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while not self._stopping.is_set():
            if self._converse():
                backoff.reset()
            self._stopping.wait(backoff.next_s())

    def _converse(self) -> bool:
        """One connection from hello to its end; whether the agent welcomed us in it."""
        assert self.address is not None
        welcomed = False
        try:
            hello = self._hello(self.address)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(SEND_S)
                sock.connect(self.address.socket)
                sock.sendall(hello)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_S))
                sock.settimeout(None)
                self._socket = sock
                for message in _lines(sock):
                    self._received(message)
                    welcomed = welcomed or self.welcomed.is_set()
        except (OSError, ValueError):
            pass  # the agent is away, or spoke nonsense: try again after a pause
        finally:
            self._lost()
        return welcomed

    @staticmethod
    def _hello(address: AgentAddress) -> bytes:
        token = ""
        if address.token_file:
            with open(address.token_file, encoding="utf-8") as file:
                token = file.read().strip()
        hello = {
            "type": "kernel_hello",
            "kernel_id": address.kernel_id,
            "token": token,
            "pid": os.getpid(),
        }
        return json.dumps(hello).encode() + b"\n"

    def _received(self, message: Json) -> None:
        kind = message.get("type")
        if kind == "kernel_welcome":
            self.node, self.simulated, self.kernel = (
                message["node"],
                message["simulated"],
                message["kernel"],
            )
            self.ever_welcomed = True
            self.welcomed.set()
            self._start_pulse()
        elif kind == "kernel":
            self.kernel, self.cap_mib = message["kernel"], message.get("cap_mib", 0)
        if "n" in message:
            answers = self._waiting.get(message["n"])
            if answers is not None:
                answers.put(message)
            return
        self._on_message(message)

    def _start_pulse(self) -> None:
        """On real GPUs a driver call can stop the whole interpreter while the memory is away:
        silence tells the agent to bring it back.
        """
        if not self.simulated and not self._has_pulse:
            self._has_pulse = True
            threading.Thread(target=self._pulse, name="gpushare-pulse", daemon=True).start()

    def _pulse(self) -> None:
        while not self._stopping.wait(PULSE_S):
            self.send({"type": "ping"})

    def _lost(self) -> None:
        was_there = self.welcomed.is_set()
        if was_there:
            self.lost_at = time.monotonic()
        self.welcomed.clear()
        self._socket = None
        for answers in list(self._waiting.values()):
            answers.put({"type": "away"})
        if was_there:
            self._on_message({"type": "away"})

    def _close(self) -> None:
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _timeval(seconds: float) -> bytes:
    import struct

    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _lines(sock: socket.socket) -> Iterator[Json]:
    rest = b""
    while piece := sock.recv(1 << 16):
        rest += piece
        *lines, rest = rest.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if isinstance(message, dict):
                yield message
        if len(rest) > LONGEST_LINE:
            raise ValueError("a line that does not end")
