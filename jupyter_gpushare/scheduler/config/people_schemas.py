"""Schema of the rules between the members of a project, and how more specific places override
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from jupyter_gpushare.core.model.model import MembersPolicy, PersonLimit

from .fields import Duration, Gpus, Id, Weight, refused
from .schemas import StrictSchema

__all__ = [
    "MembersPolicySchema",
    "PersonLimitSchema",
    "PoolMembersPolicySchema",
    "members_policies",
]


def _positive(weight: int) -> int:
    if weight <= 0:
        raise refused("must be more than 0")
    return weight


Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]


class PersonLimitSchema(StrictSchema):
    """What one person may have in a project. Without a value: unlimited."""

    gpu: Gpus | None = None
    """GPUs that a person holds at a time; further requests wait."""
    notebooks: Count | None = None
    """Notebooks and other workloads of a person, running or waiting; further ones are refused."""
    pending: Count | None = None
    """Workloads of a person that wait at a time; further ones are refused."""


class MembersPolicySchema(StrictSchema):
    """Rules between the members of a project. Keys that are absent are taken from the project, then
    from `defaults`.
    """

    fairness: Literal["equal", "none"] | None = None
    """`equal`: people are served in the order of the GPU time that they have used; `none`, the
    default: requests are served in the order of their age.
    """
    half_life: Duration | None = None
    """Used GPU time counts half after this time; default 1d, 0 for no decay."""
    weights: dict[Id, Annotated[Weight, AfterValidator(_positive)]] | None = None
    """Weights of people with another part than 1, by user name."""
    limit: PersonLimitSchema = PersonLimitSchema()


class PoolPersonLimitSchema(PersonLimitSchema):
    """What one person may have in a project in one node pool."""

    notebooks: None = None
    """Only for all pools together."""
    pending: None = None
    """Only for all pools together."""


class PoolMembersPolicySchema(MembersPolicySchema):
    """Rules between the members of a project in one node pool."""

    limit: PoolPersonLimitSchema = PoolPersonLimitSchema()


def members_policies(
    project: MembersPolicySchema | None,
    pools: Mapping[str, MembersPolicySchema | None],
    defaults: MembersPolicySchema | None = None,
    *,
    has_managers: bool = False,
) -> tuple[MembersPolicy | None, dict[str, MembersPolicy]]:
    """The rules of a project for all pools, and for pools with rules of their own, whose limits
    are those stated for the pool alone. A project with managers has rules, if only empty ones.
    """
    above = [each for each in (project, defaults) if each is not None]
    everywhere = _merged(above, _limit(above)) if above or has_managers else None
    own = {
        pool: _merged([stated, *above], _limit([stated]))
        for pool, stated in pools.items()
        if stated is not None
    }
    return everywhere, own


def _merged(places: list[MembersPolicySchema], limit: PersonLimit) -> MembersPolicy:
    """Each key from the first place that states it."""
    stated = {
        key: value
        for place in reversed(places)
        for key in ("fairness", "half_life", "weights")
        if (value := getattr(place, key)) is not None
    }
    return MembersPolicy(**stated, limit=limit)


def _limit(places: list[MembersPolicySchema]) -> PersonLimit:
    stated = {
        key: value
        for place in reversed(places)
        for key in PersonLimit._fields
        if (value := getattr(place.limit, key)) is not None
    }
    return PersonLimit(**stated)
