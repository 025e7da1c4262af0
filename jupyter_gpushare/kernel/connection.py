"""The kernel's connection to the node agent: one unix socket, read by one daemon thread, reopened
after every loss.

Messages are plain dicts in the shapes of `jupyter_gpushare.messages.agent_socket` (compared in
`tests/kernel/test_message_fields.py`), because a kernel must not load the server's dependencies.
This module makes no decisions and does not import IPython.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from .kernel_body import Json, detached
from .protocol import PROTOCOL, mismatch_text

__all__ = ["AgentAddress", "AgentConnection", "Replies", "address_from"]

Replies = queue.SimpleQueue[Json]
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between two connection attempts. The restart of an agent takes about that long."""
REFUSED_PAUSE_S: Final = 30.0
"""After an agent of another protocol: it may be updated while the kernel runs."""
SEND_TIMEOUT_S: Final = 5.0
PING_S: Final = 1.0
"""How often a kernel on a real GPU reports that its interpreter runs."""
MAX_LINE_BYTES: Final = 4 << 20
NOT_REACHABLE: Final = "not reachable; this is the last known state"


class AgentAddress(NamedTuple):
    """Where the agent listens, and how this kernel authenticates to it."""

    kernel_id: str
    socket: str
    token_file: str


def address_from(environ: Mapping[str, str]) -> AgentAddress | None:
    """The address that the provisioner set in the environment; None without our provisioner."""
    kernel_id, path = environ.get("GPUSHARE_KERNEL_ID"), environ.get("GPUSHARE_AGENT")
    if not kernel_id or not path:
        return None
    return AgentAddress(kernel_id, path, environ.get("GPUSHARE_TOKEN_FILE", ""))


class AgentConnection:
    """Sends and receives for this process.

    `kernel`, `node`, `simulated` and `cap_mib` hold the last values that the agent sent. A message
    with a number `n` goes to the request that has this number (`open_request`); every other message
    goes to `on_message`, in the connection's thread. When the connection is lost, every open
    request receives `{"type": "away"}`.
    """

    def __init__(
        self,
        address: AgentAddress | None,
        on_message: Callable[[Json], None],
        *,
        problem: str = "",
        is_proxy: bool = False,
    ) -> None:
        """`problem`: why there was no agent when this kernel was launched. `is_proxy`: this process
        is not the kernel, but stands in for its gate.
        """
        self.address = address
        self._is_proxy = is_proxy
        self._problem = problem
        self.kernel: Json = detached(address.kernel_id if address else "")
        self.node = ""
        self.simulated = False
        self.cap_mib = 0
        self.welcomed = threading.Event()
        """Set while the agent is connected."""
        self.ever_welcomed = False
        self.is_refused = False
        """Whether the agent speaks another protocol; `problem` has the sentence."""
        self.lost_at = 0.0
        """When the connection was last lost (monotonic seconds)."""
        self._on_message = on_message
        self._numbers = itertools.count(1)
        self._replies: dict[int, Replies] = {}
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._owner = os.getpid()
        self._sends_pings = False

    @property
    def is_lost(self) -> bool:
        """Whether this kernel has an agent that is not connected now."""
        return self.address is not None and not self.welcomed.is_set()

    @property
    def loss_text(self) -> str:
        """Why no agent answers; "" while one is connected, or when this kernel needs none."""
        if self.address is None:
            return self._problem
        return (self.problem() or NOT_REACHABLE) if self.is_lost else ""

    def problem(self) -> str:
        """Why no agent has ever welcomed this kernel, or now refuses it, if known; or ""."""
        return "" if self.ever_welcomed and not self.is_refused else self._problem

    def start(self) -> None:
        """Connect in the background. Does nothing in a kernel that has no agent."""
        if self.address is not None:
            threading.Thread(target=self._run, name="gpushare-connection", daemon=True).start()

    def stop(self) -> None:
        """Close the connection and do not reopen it."""
        self._stopping.set()
        self._close()

    def send(self, message: Json) -> bool:
        """Whether the operating system accepted the message. Never raises."""
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

    def next_number(self) -> int:
        """A number for a request that expects no reply."""
        return next(self._numbers)

    @contextlib.contextmanager
    def open_request(self, replies: Replies | None = None) -> Iterator[tuple[int, Replies]]:
        """A new request number, and the queue that receives the messages with this number (None: a
        new one).
        """
        n = self.next_number()
        replies = queue.SimpleQueue() if replies is None else replies
        self._replies[n] = replies
        try:
            yield n, replies
        finally:
            self._replies.pop(n, None)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            if self._connect_and_receive():
                pause_s = FIRST_PAUSE_S
            # Kernels that lost the same agent must not all come back in the same moment.
            jittered_s = pause_s * random.uniform(0.5, 1.0)
            self._stopping.wait(REFUSED_PAUSE_S if self.is_refused else jittered_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _connect_and_receive(self) -> bool:
        """One connection from hello to its end; whether the agent welcomed this kernel."""
        assert self.address is not None
        welcomed = False
        try:
            hello = self._hello(self.address)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(SEND_TIMEOUT_S)
                sock.connect(self.address.socket)
                sock.sendall(hello)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_TIMEOUT_S))
                sock.settimeout(None)
                self._socket = sock
                for message in _messages(sock):
                    self._receive(message)
                    welcomed = welcomed or self.welcomed.is_set()
        except (OSError, ValueError):
            pass  # no agent, or invalid JSON: try again after a pause
        finally:
            self._handle_loss()
        return welcomed

    def _hello(self, address: AgentAddress) -> bytes:
        token = ""
        if address.token_file:
            with open(address.token_file, encoding="utf-8") as file:
                token = file.read().strip()
        hello = {
            "type": "kernel_hello",
            "kernel_id": address.kernel_id,
            "token": token,
            "pid": os.getpid(),
            "proxy": self._is_proxy,
            "protocol": PROTOCOL,
        }
        return json.dumps(hello).encode() + b"\n"

    def _receive(self, message: Json) -> None:
        kind = message.get("type")
        if kind == "kernel_refused":
            self._refused(mismatch_text(PROTOCOL, message["protocol"]))
            return
        if kind == "refused":
            if not self.is_refused:  # its reason is better known
                self._problem = f"the node agent refuses this kernel: {message['message']}"
            return
        if kind == "kernel_welcome":
            self.is_refused = False
            self.node, self.simulated = message["node"], message["simulated"]
            self.kernel = message["kernel"]
            self.ever_welcomed = True
            self.welcomed.set()
            self._start_pings()
        elif kind == "kernel":
            self.kernel, self.cap_mib = message["kernel"], message.get("cap_mib", 0)
        if "n" not in message:
            self._on_message(message)
            return
        replies = self._replies.get(message["n"])
        if replies is not None:
            replies.put(message)

    def _refused(self, problem: str) -> None:
        is_new, self._problem, self.is_refused = not self.is_refused, problem, True
        if is_new:
            self._on_message({"type": "told", "message": f"No GPU is available: {problem}."})

    def _start_pings(self) -> None:
        """A driver call can block the interpreter while its GPU memory is saved. When the pings
        stop, the agent restores the memory. Simulated GPUs do not block.
        """
        is_interpreter = not self.simulated and not self._is_proxy
        if is_interpreter and not self._sends_pings:
            self._sends_pings = True
            threading.Thread(target=self._send_pings, name="gpushare-ping", daemon=True).start()

    def _send_pings(self) -> None:
        while not self._stopping.wait(PING_S):
            self.send({"type": "ping"})

    def _handle_loss(self) -> None:
        was_welcomed = self.welcomed.is_set()
        if was_welcomed:
            self.lost_at = time.monotonic()
        self.welcomed.clear()
        self._socket = None
        for replies in list(self._replies.values()):
            replies.put({"type": "away"})
        if was_welcomed:
            self._on_message({"type": "away"})

    def _close(self) -> None:
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _timeval(seconds: float) -> bytes:
    import struct

    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _messages(sock: socket.socket) -> Iterator[Json]:
    rest = b""
    while received := sock.recv(1 << 16):
        rest += received
        *lines, rest = rest.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if isinstance(message, dict):
                yield message
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line from the agent is longer than {MAX_LINE_BYTES} bytes")
