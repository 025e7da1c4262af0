"""The proxy's connection to the node agent: the kernel's own client, whose messages are handled in
the event loop of the proxy.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Mapping

from ..kernel.connection import AgentAddress, AgentConnection
from ..kernel.kernel_body import Json

__all__ = ["ProxyAgentLink"]


class _Inbox(queue.SimpleQueue[Json]):
    """Wakes the event loop for every message."""

    def __init__(self) -> None:
        super().__init__()
        self.readable, self._writable = os.pipe()
        os.set_blocking(self.readable, False)
        os.set_blocking(self._writable, False)

    def put(self, item: Json, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        with contextlib.suppress(BlockingIOError):  # the loop is about to wake up already
            os.write(self._writable, b"\0")

    def take_all(self) -> list[Json]:
        """All messages; empties the pipe first, so that none is left without a wake-up."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.readable, 1 << 16)
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self.get_nowait())
        return taken


class ProxyAgentLink:
    """Requests of cells, and messages of the agent."""

    def __init__(self, address: AgentAddress | None, *, problem: str = "") -> None:
        """`problem`: why there was no agent when the kernel was launched."""
        self._inbox = _Inbox()
        self._connection = AgentConnection(address, self._inbox.put, problem=problem, is_proxy=True)
        self._open: dict[int, contextlib.ExitStack] = {}

    @property
    def fileno(self) -> int:
        """Readable when `receive` has messages."""
        return self._inbox.readable

    @property
    def kernel(self) -> Mapping[str, object]:
        """The kernel as the agent sent it last."""
        return self._connection.kernel

    @property
    def state(self) -> str:
        """The state of the kernel."""
        return str(self._connection.kernel["state"])

    @property
    def is_connected(self) -> bool:
        """Whether the agent is connected."""
        return self._connection.welcomed.is_set()

    @property
    def has_address(self) -> bool:
        """Whether there is an agent at all."""
        return self._connection.address is not None

    @property
    def ever_connected(self) -> bool:
        """Whether an agent has ever answered."""
        return self._connection.ever_welcomed

    @property
    def lost_at(self) -> float:
        """When the connection was last lost (monotonic seconds)."""
        return self._connection.lost_at

    def problem(self) -> str:
        """Why no agent has ever answered, if that was known at launch; otherwise ""."""
        return self._connection.problem()

    def start(self) -> None:
        """Connect in the background."""
        self._connection.start()

    def stop(self) -> None:
        """Disconnect."""
        self._connection.stop()

    def receive(self) -> list[Json]:
        """Messages that have arrived."""
        return self._inbox.take_all()

    def ask(self) -> int | None:
        """Request permission for a cell: the number of the request; None: not connected."""
        opened = contextlib.ExitStack()
        n, _ = opened.enter_context(self._connection.open_request(self._inbox))
        if self._send({"type": "cell_start", "n": n, "exempt": False, "wait": False}):
            self._open[n] = opened
            return n
        opened.close()
        return None

    def report_running(self, n: int | None, *, needs_memory: bool) -> int | None:
        """A cell runs already: its number; None: not connected."""
        n = self._connection.next_number() if n is None else n
        start = {"type": "cell_start", "n": n, "exempt": False, "running": True}
        return n if self._send({**start, "wait": needs_memory}) else None

    def decided(self, n: int) -> None:
        """No more messages about this request are expected."""
        opened = self._open.pop(n, None)
        if opened is not None:
            opened.close()

    def withdraw(self, n: int) -> None:
        """Its user stopped the wait."""
        self.decided(n)
        self._send({"type": "cell_cancel", "n": n})

    def end(self, n: int) -> None:
        """The cell has ended, or does not run after all."""
        self.decided(n)
        self._send({"type": "cell_end", "n": n})

    def caches_dropped(self) -> None:
        """There are no caches that the proxy could drop."""
        self._send({"type": "caches_dropped"})

    def _send(self, message: Json) -> bool:
        return self._connection.send(message)
