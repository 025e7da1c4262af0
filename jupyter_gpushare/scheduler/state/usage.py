"""GPU-hours by project, user and notebook: summed per hour as agents report, and by the database
for queries.

Periods are whole hours of the wall clock: a started hour counts with its usage so far. Callers'
permissions are not checked here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sql

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_duration

from ..store import schema as s
from ..store.database import translated_errors
from ..store.store import Store

__all__ = [
    "BY",
    "HOUR_MS",
    "REPORTED",
    "UsageAccounting",
    "UsageTotals",
    "by_in",
    "moment_in",
    "period_in",
    "report",
]

BY: Final[dict[str, tuple[str, ...]]] = {
    "project": ("project",),
    "person": ("project", "user"),
    "notebook": ("project", "user", "notebook"),
}
HOUR_MS: Final = 3_600_000
KINDS: Final = ("held", "used", "borrowed", "lent")
MOST: Final = 10_000
LEDGER: Final = ("held_ms", "busy_ms", "used_mib_ms", "borrowed_mib_ms")
REPORTED: Final = (*LEDGER, "lent_mib_ms")


@dataclass(slots=True)
class UsageTotals:
    """GPU-ms."""

    held: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0


@dataclass(slots=True)
class _UnwrittenUsage:
    """Reported usage of one lease that is not written yet. `device_mib`: the size of the GPU, of
    which memory counts as a fraction.
    """

    project: str
    user: str
    notebook: str
    request_mib: int
    device_mib: int
    sums: dict[str, int]

    def gpu_ms(self) -> UsageTotals:
        if self.device_mib <= 0:
            return UsageTotals()
        share = min(1.0, self.request_mib / self.device_mib)
        held = round(self.sums["held_ms"] * share)
        used = min(held, round(self.sums["busy_ms"] * share))
        return UsageTotals(
            held,
            used,
            self.sums["borrowed_mib_ms"] // self.device_mib,
            self.sums["lent_mib_ms"] // self.device_mib,
        )


@dataclass(slots=True)
class _NodeUsage:
    """Reported usage of one node that is not written yet, up to this report."""

    leases: dict[str, _UnwrittenUsage] = field(default_factory=dict)
    last: tuple[str, int] = ("", 0)

    def add(self, body: m.LeaseBody, user: str, device_mib: int, row: m.LeaseUsage) -> None:
        known = self.leases.get(row.lease)
        if known is None:
            sums = dict.fromkeys(REPORTED, 0)
            known = self.leases[row.lease] = _UnwrittenUsage(
                body.project, user, body.name, body.request_mib, device_mib, sums
            )
        for kind in REPORTED:
            known.sums[kind] += getattr(row, kind)


class UsageAccounting:
    """Reported usage that is not written yet, by node; the oldest is written first. A report counts
    once, however often it is sent: its number is written together with its contents.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, _NodeUsage] = {}
        self._written = store.usage_taken()
        """Node -> its last written report."""

    def is_written(self, node: str, report: m.UsageReport) -> bool:
        """Whether the report has been written."""
        return report.number > 0 and _is_in(report, self._written.get(node))

    def add(
        self,
        node: str,
        report: m.UsageReport,
        whose: Mapping[str, tuple[m.LeaseBody, str]],
        device_mib: int,
    ) -> None:
        """Adds a report once. `whose`: leases of this node and their users; others are ignored."""
        known = self._open.get(node)
        if self.is_written(node, report) or (
            report.number and known is not None and _is_in(report, known.last)
        ):
            return
        known = self._open.setdefault(node, _NodeUsage())
        if report.number:
            known.last = report.life, report.number
        for row in report.rows:
            if row.lease in whose:
                known.add(*whose[row.lease], device_mib, row)

    def write(self, now: int, most: int | None = None) -> list[tuple[str, m.UsageAcknowledged]]:
        """Writes the reports of up to `most` leases (whole nodes, at least one; None: all) in one
        transaction; on failure they are kept. Returns the answers to send to nodes.

        Raises StoreUnavailable.
        """
        batch = self._next(most)
        if not batch:
            return []
        leases = {lease: one for node in batch.values() for lease, one in node.leases.items()}
        last = {name: node.last for name, node in batch.items() if node.last[1]}
        with self._store.transaction() as write:
            write.used_in_hours(_hour_rows(leases.values(), now // HOUR_MS * HOUR_MS))
            write.used(
                {
                    lease: (one.project, {kind: one.sums[kind] for kind in LEDGER})
                    for lease, one in leases.items()
                }
            )
            write.usage_taken(
                [
                    {"node": name, "life": life, "number": number}
                    for name, (life, number) in last.items()
                ]
            )
        for name in batch:
            del self._open[name]
        self._written |= last
        return [
            (name, m.UsageAcknowledged(life=life, number=number))
            for name, (life, number) in last.items()
        ]

    def _next(self, most: int | None) -> dict[str, _NodeUsage]:
        batch, count = {}, 0
        for name, node in self._open.items():
            batch[name], count = node, count + len(node.leases)
            if most is not None and count >= most:
                break
        return batch


def _is_in(report: m.UsageReport, last: tuple[str, int] | None) -> bool:
    return last is not None and report.life == last[0] and report.number <= last[1]


def _hour_rows(batch: Iterable[_UnwrittenUsage], hour: int) -> list[dict[str, Any]]:
    """A row per project, user and notebook of this hour."""
    found: dict[tuple[int, str, str, str], UsageTotals] = {}
    for one in batch:
        sums, more = (
            found.setdefault((hour, one.project, one.user, one.notebook), UsageTotals()),
            one.gpu_ms(),
        )
        for kind in KINDS:
            setattr(sums, kind, getattr(sums, kind) + getattr(more, kind))
    return [
        {
            "key": hashlib.sha256(repr(key).encode()).hexdigest(),
            "hour_ms": key[0],
            "project": key[1],
            "user": key[2],
            "notebook": key[3],
            **{kind: getattr(sums, kind) for kind in KINDS},
        }
        for key, sums in found.items()
    ]


def report(
    store: Store, by: str, since: int, until: int, may_see: Callable[[Mapping[str, str]], bool]
) -> list[m.UsageRow]:
    """Sums of the hours that begin in the period, the largest first. `may_see` gets project and
    user of each row.
    """
    columns = [s.usage_hours.c[name] for name in BY[by]]
    everybody = [
        s.usage_hours.c.project,
        s.usage_hours.c.user,
        *(column for column in columns if column.name == "notebook"),
    ]
    query = (
        sql.select(*everybody, *(sql.func.sum(s.usage_hours.c[kind]).label(kind) for kind in KINDS))
        .where(
            s.usage_hours.c.hour_ms >= since // HOUR_MS * HOUR_MS, s.usage_hours.c.hour_ms < until
        )
        .group_by(*everybody)
    )
    found: dict[tuple[str, ...], UsageTotals] = {}
    with translated_errors(), store.engine.connect() as connection:
        for row in connection.execute(query):
            if may_see({"project": row.project, "user": row.user}):
                sums = found.setdefault(tuple(getattr(row, name) for name in BY[by]), UsageTotals())
                for kind in KINDS:
                    setattr(sums, kind, getattr(sums, kind) + int(getattr(row, kind)))
    rows = [_row(dict(zip(BY[by], key, strict=True)), sums) for key, sums in found.items()]
    return sorted(rows, key=lambda row: (-row.held, row.project, row.user, row.notebook))[:MOST]


def period_in(since: str | None, until: str | None, now: int) -> tuple[int, int]:
    """Both ends in ms. Each is a time (ISO 8601) or an age (`7d`); default: the last seven days.
    Raises InvalidInput.
    """
    first, last = (
        moment_in(since or "7d", now, "since"),
        moment_in(until, now, "until") if until else now + 1,
    )
    if first >= last:
        raise InvalidInput("the period ends before it begins", field="since")
    return first, last


def moment_in(text: str, now: int, what: str) -> int:
    """A time (ISO 8601) or an age (`7d`) in ms since the epoch. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - read_duration(text, what=what)
        except InvalidInput:
            raise InvalidInput(
                f"{what} must be a time (2026-11-21T08:00) or an age (5m, 7d), got {text!r}",
                field=what,
            ) from None
    return round((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)


def by_in(text: str | None) -> str:
    """Raises InvalidInput."""
    if text is None or text in BY:
        return text or "project"
    raise InvalidInput(f"by must be one of {', '.join(BY)}, got {text!r}", field="by")


def _row(who: Mapping[str, str], sums: UsageTotals) -> m.UsageRow:
    hours = {kind: round(getattr(sums, kind) / HOUR_MS, 4) for kind in KINDS}
    idle = round((sums.held - sums.used) / HOUR_MS, 4)
    return m.UsageRow(
        project=who.get("project", ""),
        user=who.get("user", ""),
        notebook=who.get("notebook", ""),
        idle=idle,
        **hours,
    )
