"""Checks a database: its version, the integrity of the file, and the consistency of leases and
usage. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import sqlalchemy as sql

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput

from . import schema as s
from .database import NEWEST, found_version, translated_errors

__all__ = ["problems_in"]


def problems_in(engine: sql.Engine) -> list[str]:
    """One sentence per problem, in a stable order. Raises StoreUnavailable."""
    with translated_errors(), engine.connect() as connection:
        found = found_version(connection)
        if found is None:
            return ["The database has no tables."]
        if found != NEWEST:
            return [f"The database has version {found}; this program needs {NEWEST}."]
        return [*_broken_file(connection), *_leases(connection), *_usage(connection)]


def _broken_file(connection: sql.Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for line in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
            if line != "ok":
                yield f"The file is damaged: {line}."


def _leases(connection: sql.Connection) -> Iterator[str]:
    alive = set(
        connection.execute(
            sql.select(s.workloads.c.id).where(s.workloads.c.ended_ms.is_(None))
        ).scalars()
    )
    nodes: dict[str, m.NodeReport] = {}
    for text in connection.execute(sql.select(s.nodes.c.report)).scalars():
        report = m.decode(m.NodeReport, text)
        nodes[report.name] = report
    leases = []
    for row in connection.execute(
        sql.select(s.leases).where(s.leases.c.ended_ms.is_(None)).order_by(s.leases.c.id)
    ):
        try:
            leases.append(m.decode(m.LeaseBody, row.body))
        except InvalidInput as error:
            yield f"Lease {row.id} cannot be read: {error.message}."
    for lease in leases:
        if lease.workload not in alive:
            yield f"Lease {lease.id} is in force, but its workload {lease.workload} has ended."
        if lease.node not in nodes:
            yield f"Lease {lease.id} is on the unknown node {lease.node}."
    for (workload, pod), count in sorted(
        Counter((lease.workload, lease.pod) for lease in leases).items()
    ):
        if count > 1:
            yield f"Pod {pod} of workload {workload} has {count} leases."
    yield from _overcommitted(leases, nodes)


def _overcommitted(leases: list[m.LeaseBody], nodes: Mapping[str, m.NodeReport]) -> Iterator[str]:
    """GPUs whose guarantees exceed their memory."""
    guaranteed: Counter[tuple[str, int]] = Counter()
    for lease in leases:
        guaranteed.update({(lease.node, gpu): lease.request_mib for gpu in lease.planned_gpus})
    for (name, gpu), mib in sorted(guaranteed.items()):
        devices = {device.index: device for device in nodes[name].devices} if name in nodes else {}
        if gpu in devices and mib > devices[gpu].total_mib:
            total = devices[gpu].total_mib
            yield f"GPU {gpu} of node {name} is overcommitted: {mib} of {total} MiB are guaranteed."


def _usage(connection: sql.Connection) -> Iterator[str]:
    orphans = (
        sql.select(s.usage.c.lease)
        .where(~sql.exists().where(s.leases.c.id == s.usage.c.lease))
        .order_by(s.usage.c.lease)
    )
    for lease in connection.execute(orphans).scalars():
        yield f"Usage of the unknown lease {lease} is recorded."
    sums = [column for column in s.usage.columns if column.name not in ("lease", "project")]
    negative = (
        sql.select(s.usage.c.lease)
        .where(sql.or_(*(column < 0 for column in sums)))
        .order_by(s.usage.c.lease)
    )
    for lease in connection.execute(negative).scalars():
        yield f"The recorded usage of lease {lease} is negative."
