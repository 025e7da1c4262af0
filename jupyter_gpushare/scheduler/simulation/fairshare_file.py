"""The fair share file: divides resources among queues, without a cluster.

Format: docs/reference/files.md, Fair share.

Amounts are read to the millionth, so that decimal amounts are divided exactly. The division itself
is in whole GPUs, milli-cores and MiB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

from jupyter_gpushare.core.fairness.fairshare import Claim, divide
from jupyter_gpushare.core.model.amounts import MILLI, UNLIMITED
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import exact_cpu, exact_gpu, exact_memory

from ..config.consistency import entries, names, twice
from ..config.diagnostics import refuse_if, unknown_name, validated
from ..config.documents import Document, FileError, read
from ..config.fields import Age, Name, Whole, refused
from ..config.schemas import StrictSchema

__all__ = ["fair_shares", "fair_shares_of"]


class _ResourceScale(NamedTuple):
    """The integer scale of a resource: `scale` parts per unit of the file; surplus is rounded down
    to `unit` parts.
    """

    scale: int
    unit: int
    exact: Callable[..., Decimal | None]


RESOURCES: Final = {
    "gpu": _ResourceScale(1_000_000, 1_000_000, exact_gpu),
    "cpu": _ResourceScale(1_000_000, 1_000, exact_cpu),
    "memory": _ResourceScale(1_000, 1_000, exact_memory),
}
MILLIONTHS: Final = 1_000_000


def _amount(resource: str, *, unlimited: bool = False) -> BeforeValidator:
    scale, _, exact = RESOURCES[resource]

    def validate(value: object) -> int:
        try:
            amount = exact(value, what="", unlimited=unlimited)
        except InvalidInput as error:
            raise refused(error.message.strip()) from None
        return UNLIMITED if amount is None else int(amount * scale)

    return BeforeValidator(validate)


def _number(scale: int) -> BeforeValidator:
    """A number without a unit: a weight, usage, or k."""

    def validate(value: object) -> int:
        try:
            number = exact_gpu(value, what="")
        except InvalidInput as error:
            raise refused(
                error.message.strip().replace(" of GPUs", "").replace("GPUs", "is allowed")
            ) from None
        return int((number or Decimal(0)) * scale)

    return BeforeValidator(validate)


_ANY: Final = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})
_Number = Annotated[int, _number(MILLIONTHS), _ANY]


class _ClaimSchema(StrictSchema):
    """One queue's settings for one resource. `requested` None: the sum of its children."""

    over_quota_weight: _Number = MILLIONTHS
    usage: _Number = 0


class GpuClaimSchema(_ClaimSchema):
    """GPUs."""

    quota: Annotated[int, _amount("gpu", unlimited=True), _ANY] = 0
    limit: Annotated[int, _amount("gpu", unlimited=True), _ANY] = UNLIMITED
    requested: Annotated[int, _amount("gpu"), _ANY] | None = None


class CpuClaimSchema(_ClaimSchema):
    """Cores; without a value unlimited."""

    quota: Annotated[int, _amount("cpu", unlimited=True), _ANY] = UNLIMITED
    limit: Annotated[int, _amount("cpu", unlimited=True), _ANY] = UNLIMITED
    requested: Annotated[int, _amount("cpu"), _ANY] | None = None


class MemoryClaimSchema(_ClaimSchema):
    """Memory; without a value unlimited."""

    quota: Annotated[int, _amount("memory", unlimited=True), _ANY] = UNLIMITED
    limit: Annotated[int, _amount("memory", unlimited=True), _ANY] = UNLIMITED
    requested: Annotated[int, _amount("memory"), _ANY] | None = None


class FairShareQueueSchema(StrictSchema):
    """One queue."""

    name: Name
    parent: Name | None = None
    rank: Whole = 100
    created: Age = 0
    gpu: GpuClaimSchema = GpuClaimSchema()
    cpu: CpuClaimSchema = CpuClaimSchema()
    memory: MemoryClaimSchema = MemoryClaimSchema()


class TotalSchema(StrictSchema):
    """The resources to divide."""

    gpu: Annotated[int, _amount("gpu"), _ANY] = 0
    cpu: Annotated[int, _amount("cpu"), _ANY] = 0
    memory: Annotated[int, _amount("memory"), _ANY] = 0


class FairShareSchema(StrictSchema):
    """The whole file. `k` is in thousandths here."""

    name: Name | None = None
    total: TotalSchema
    k: Annotated[int, _number(MILLI), _ANY] = MILLI
    queues: list[FairShareQueueSchema]


def fair_shares(path: str | Path) -> dict[str, Any]:
    """The division of a file. Raises FileErrors."""
    return fair_shares_of(read(path))


def fair_shares_of(document: Document) -> dict[str, Any]:
    """`{"name"?, "fair_share": {queue: {resource: amount}}, "unallocated": {resource: amount}}` in
    GPUs, cores and MiB.
    """
    shape, problems = validated(document, FairShareSchema)
    problems.extend(_problems(document))
    refuse_if(problems)
    assert shape is not None
    shares: dict[str, dict[str, float | int]] = {queue.name: {} for queue in shape.queues}
    unallocated: dict[str, float | int] = {}
    for resource, (scale, unit, _) in RESOURCES.items():
        total, claims = getattr(shape.total, resource), _claims(shape.queues, resource)
        given = divide(total, claims, unit=unit, k=shape.k)
        for queue, amount in given.items():
            shares[queue][resource] = _out(resource, amount, scale)
        rest = total - sum(given[claim.name] for claim in claims if claim.parent is None)
        unallocated[resource] = _out(resource, max(0, rest), scale)
    head = {} if shape.name is None else {"name": shape.name}
    return {**head, "fair_share": shares, "unallocated": unallocated}


def _claims(queues: list[FairShareQueueSchema], resource: str) -> list[Claim]:
    wanted = _wanted(queues, resource)
    claims = []
    for queue in queues:
        claim = getattr(queue, resource)
        rules = (claim.quota, claim.limit, claim.over_quota_weight)
        claims.append(
            Claim(
                queue.name,
                queue.parent,
                queue.rank,
                queue.created,
                *rules,
                wanted[queue.name],
                claim.usage,
            )
        )
    return claims


def _wanted(queues: list[FairShareQueueSchema], resource: str) -> dict[str, int]:
    """What each queue requests: its own value, else the sum of its children. Limits apply in the
    division.
    """
    children: defaultdict[str | None, list[FairShareQueueSchema]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    order: list[FairShareQueueSchema] = list(children[None])
    for queue in order:  # grows during iteration: parents before children
        order.extend(children.get(queue.name, ()))
    wanted: dict[str, int] = {}
    for queue in reversed(order):
        stated = getattr(queue, resource).requested
        wanted[queue.name] = (
            sum(wanted[child.name] for child in children.get(queue.name, ()))
            if stated is None
            else stated
        )
    return wanted


def _out(resource: str, amount: int, scale: int) -> float | int:
    """GPUs and cores as floats, MiB as integers if whole."""
    return amount // scale if resource == "memory" and amount % scale == 0 else amount / scale


def _problems(document: Document) -> list[FileError]:
    """Duplicate names, unknown parents, and cycles."""
    problems = list(twice(document, entries(document, "queues"), "queue"))
    known = names(document, "queues")
    above: dict[str, str] = {}
    for place, entry in entries(document, "queues"):
        parent = entry.get("parent")
        if parent is None:
            continue
        if str(parent) not in known:
            problems.append(
                document.problem((*place, "parent"), unknown_name(parent, known, "queue"))
            )
        above[str(entry.get("name"))] = str(parent)
    return [*problems, *_cycles(document, above)]


def _cycles(document: Document, above: dict[str, str]) -> list[FileError]:
    problems: list[FileError] = []
    reported: set[str] = set()
    for place, entry in entries(document, "queues"):
        start = str(entry.get("name"))
        path = [start]
        while path[-1] in above and above[path[-1]] not in path:
            path.append(above[path[-1]])
        if above.get(path[-1]) == start and start not in reported:
            reported.update(path)
            problems.append(
                document.problem(
                    (*place, "parent"), f"the queues {' -> '.join([*path, start])} form a cycle"
                )
            )
    return problems
