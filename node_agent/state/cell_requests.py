"""The cells of one kernel: which run, and which wait at the gate. Owners: `api.cell_handlers` for
the kernel's messages, `reconcile` for admission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["UNGATED_MS", "CellRequests", "GateRequest"]

UNGATED_MS: Final = 15_000
"""A kernel that has not connected after this time has no gate: it counts as running."""


@dataclass(slots=True)
class GateRequest:
    """A cell that waits at the gate: its number, since when, and the text that it shows."""

    n: int
    since: int
    text: str = ""


@dataclass(slots=True)
class CellRequests:
    """Several cells of one kernel may wait at once (main shell, subshells, widget messages)."""

    connected: bool = False
    ever_connected: bool = False
    proxied: bool = False
    """Its connection is that of a proxy process, which outlives the kernel's process."""
    running: set[int] = field(default_factory=set)
    """Numbers of the cells that were admitted and have not ended."""
    waiting: dict[int, GateRequest] = field(default_factory=dict)
    unsure_until: int = 0
    """After a restart of the agent: until then an unknown cell may be running."""
    gave_up: bool = False
    """Its user stopped waiting for a GPU: cells run without one until the next request."""
    idle_since: int = 0

    @property
    def waits_since(self) -> int | None:
        """When the oldest waiting cell asked; None: no cell waits."""
        return min((request.since for request in self.waiting.values()), default=None)

    @property
    def asked_at(self) -> int | None:
        """When the newest waiting cell asked; None: no cell waits."""
        return max((request.since for request in self.waiting.values()), default=None)

    @property
    def text(self) -> str:
        """What the oldest waiting cell shows; "" when none waits."""
        return next((request.text for request in self.waiting.values()), "")

    def ask(self, n: int, now: int) -> GateRequest:
        """A cell waits; asking again keeps its place."""
        return self.waiting.setdefault(n, GateRequest(n, now))

    def admit(self, n: int) -> GateRequest | None:
        """The cell runs; None when it no longer waits."""
        request = self.waiting.pop(n, None)
        if request is not None:
            self.running.add(n)
        return request

    def end(self, n: int, now: int) -> None:
        """The cell is over, or its wait is."""
        self.waiting.pop(n, None)
        self.running.discard(n)
        self.unsure_until = 0
        if not self.running:
            self.idle_since = now

    def connect(self, now: int, settle_ms: int) -> None:
        """The kernel is connected. Cells that run are reported again now: what ended while the
        connection was broken was reported to no one.
        """
        self.connected = self.ever_connected = True
        if self.unsure_until or self.running:
            self.running, self.unsure_until = set(), now + settle_ms

    def disconnect(self) -> None:
        """The connection broke; the process may live, and cells may run."""
        self.connected, self.waiting = False, {}

    def process_started(self, now: int) -> CellRequests:
        """The state for a new process of the same kernel. What waits in a connected proxy has not
        reached any process.
        """
        return CellRequests(
            connected=self.connected,
            ever_connected=self.connected,
            proxied=self.proxied and self.connected,
            waiting=self.waiting if self.proxied and self.connected else {},
            unsure_until=self.unsure_until,
            gave_up=self.gave_up,
            idle_since=now,
        )

    def process_exited(self) -> None:
        """Nothing runs or waits any more."""
        self.running = set()
        if not self.proxied:
            self.waiting, self.connected = {}, False
