"""Batch work: what the agents say of commands, kept and told; a workload is over when its pods are.

One command that fails ends its workload: the others would wait for it in vain. Without a failure it
is over when every pod that has begun is, and the minimum is among them; what is still pending then
was only wanted for speed. A pod that has succeeded counts towards the minimum: one that lost its
place comes back without it.
"""

from __future__ import annotations

import logging
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.events import PodEnded

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["PAGE", "BatchCommands", "cursor_in"]

log = logging.getLogger("gpushare.scheduler")
LONGEST_LOG: Final = 16 * 2**20
"""Bytes that are kept of what one pod prints under one lease; what comes after is dropped, and the
log says so.
"""
LONGEST_CHUNK: Final = 2**17
PAGE: Final = 2**18
"""Characters that one question for logs is answered with at most (and one chunk more)."""


class BatchCommands:
    """On one ledger."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self._kept: dict[str, int] = {}
        """Lease -> up to which byte its log is kept."""

    def printed(
        self, node: str, record: WorkloadRecord, body: m.LeaseBody, chunk: m.LogChunk
    ) -> None:
        """Keeps a piece of a log, once, and tells the agent how far it has come. Raises
        InvalidInput.
        """
        if not 0 <= chunk.start <= chunk.stop or len(chunk.text) > LONGEST_CHUNK:
            raise InvalidInput(
                f"a piece of a log from {chunk.start} to {chunk.stop} with {len(chunk.text)} characters",
                field="stop",
            )
        kept = self._kept_of(body.id)
        if chunk.start == kept and chunk.stop > kept:
            text = chunk.text.replace(
                "\x00", "\N{REPLACEMENT CHARACTER}"
            )  # PostgreSQL has no place for it
            if kept >= LONGEST_LOG:
                text = ""
            elif chunk.stop >= LONGEST_LOG:
                text += f"\n[the first {LONGEST_LOG // 2**20} MiB are kept; what follows is not]\n"
            if text:
                with self.unit_of_work.store.transaction() as write:
                    write.logged(record.id, body.id, body.pod, chunk.stop, text)
            kept = self._kept[body.id] = chunk.stop
        self.unit_of_work.fleet.send(node, m.LogAcknowledged(lease=body.id, stop=kept))

    def _kept_of(self, lease: str) -> int:
        if lease not in self._kept:
            self._kept[lease] = self.unit_of_work.store.logged_up_to(lease)
        return self._kept[lease]

    def over(self, record: WorkloadRecord, body: m.LeaseBody, exit_code: int, message: str) -> None:
        """One pod's command has ended."""
        unit_of_work = self.unit_of_work
        self._kept.pop(body.id, None)
        with unit_of_work.transaction() as write:
            unit_of_work.cluster.apply(
                PodEnded(record.id, body.pod, "succeeded" if exit_code == 0 else "failed")
            )
            write.lease_ended(body.id, unit_of_work.clock())
            write.outcome(record.id, body.pod, exit_code, unit_of_work.clock())
            unit_of_work.event(
                write,
                record,
                "released",
                message or f"Pod {body.pod} ended with exit code {exit_code}.",
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
            unit_of_work.changed(record)
            unit_of_work.wake()


def cursor_in(text: str | None) -> int:
    """The cursor in `?cursor=`; 0, the beginning, when none is given. Raises InvalidInput."""
    if text is None or text == "":
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput(
            f"cursor must be what an earlier answer gave, got {text!r}", field="cursor"
        )
    return int(text)


def _least(record: WorkloadRecord) -> int:
    pods = len(record.workload.pods)
    return pods if record.request.min_pods is None else min(pods, record.request.min_pods)
