"""Batch work: handles agents' reports about commands. A workload ends when its pods have.

One failed command ends its workload, since the other pods would wait for it in vain. Otherwise it
ends when all started pods have, and at least the minimum succeeded; pods that are still pending
then were only wanted for speed. A pod that has succeeded counts towards the minimum.
"""

from __future__ import annotations

import logging
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.events import PodEnded

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord
from .output_budget import OutputBudget

__all__ = ["PAGE", "BatchCommands", "cursor_in"]

log = logging.getLogger("gpushare.scheduler")
LONGEST_LOG: Final = 16 * 2**20
"""Bytes of a pod's output that are kept per lease; the rest is dropped, and the log says so."""
CUT_OFF: Final = "\n[output dropped: the limit of stored output per user is reached]\n"
LONGEST_CHUNK: Final = 2**17
PAGE: Final = 2**18
"""Characters in one response to a query for logs, at most (and one chunk more)."""


class BatchCommands:
    """Batch work of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork, output_budget: OutputBudget) -> None:
        self.unit_of_work, self._budget = unit_of_work, output_budget
        self._kept: dict[str, int] = {}
        """Lease -> number of bytes of its log that are stored."""
        self._cut_off: set[str] = set()
        """Leases of whose output something was dropped."""

    def printed(
        self, node: str, record: WorkloadRecord, body: m.LeaseBody, chunk: m.LogChunk
    ) -> None:
        """Stores a chunk of a log once, and acknowledges it to the agent. Raises InvalidInput."""
        if not 0 <= chunk.start <= chunk.stop or len(chunk.text) > LONGEST_CHUNK:
            raise InvalidInput(
                f"a log chunk from {chunk.start} to {chunk.stop} has {len(chunk.text)} characters",
                field="stop",
            )
        kept = self._kept_of(body.id)
        if chunk.start == kept and chunk.stop > kept:
            text = chunk.text.replace(
                "\x00", "\N{REPLACEMENT CHARACTER}"
            )  # PostgreSQL cannot store it
            if kept >= LONGEST_LOG:
                text = ""
            elif chunk.stop >= LONGEST_LOG:
                text += f"\n[only the first {LONGEST_LOG // 2**20} MiB are kept]\n"
            if text and not self._budget.make_room(
                record.user, len(text), self.unit_of_work.clock()
            ):
                text = "" if body.id in self._cut_off else CUT_OFF
                self._cut_off.add(body.id)
            if text:
                with self.unit_of_work.store.transaction() as write:
                    write.logged(record.id, body.id, body.pod, chunk.stop, text)
            kept = self._kept[body.id] = chunk.stop
        self.unit_of_work.nodes.send(node, m.LogAcknowledged(lease=body.id, stop=kept))

    def _kept_of(self, lease: str) -> int:
        if lease not in self._kept:
            self._kept[lease] = self.unit_of_work.store.logged_up_to(lease)
        return self._kept[lease]

    def over(self, record: WorkloadRecord, body: m.LeaseBody, exit_code: int, message: str) -> None:
        """One pod's command has ended."""
        unit_of_work = self.unit_of_work
        self._kept.pop(body.id, None)
        self._cut_off.discard(body.id)
        with unit_of_work.transaction() as write:
            unit_of_work.cluster.apply(
                PodEnded(record.id, body.pod, "succeeded" if exit_code == 0 else "failed")
            )
            write.lease_ended(body.id, unit_of_work.clock())
            write.outcome(record.id, body.pod, exit_code, unit_of_work.clock())
            unit_of_work.event(
                record, "released", message or f"Pod {body.pod} ended with exit code {exit_code}."
            )
        del record.leases[body.pod]
        record.reports.pop(body.id, None)
        record.started.pop(body.id, None)
        record.exits[body.pod] = exit_code
        if exit_code:
            unit_of_work.finish(
                record, "released", message or f"Pod {body.pod} failed with exit code {exit_code}."
            )
        elif not record.leases and len(record.exits) >= _least(record):
            unit_of_work.finish(
                record,
                "released",
                "All pods have succeeded." if len(record.exits) > 1 else "It has succeeded.",
            )
        else:
            unit_of_work.publish_change(record)
            unit_of_work.wake()


def cursor_in(text: str | None) -> int:
    """The cursor in `?cursor=`; without one 0, the beginning. Raises InvalidInput."""
    if text is None or text == "":
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput(
            f"cursor must be the cursor of an earlier response, got {text!r}", field="cursor"
        )
    return int(text)


def _least(record: WorkloadRecord) -> int:
    pods = len(record.workload.pods)
    return pods if record.request.min_pods is None else min(pods, record.request.min_pods)
