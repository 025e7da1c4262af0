"""Schemas of bookings in the policy file, and what the scheduler makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jupyter_gpushare.core.bookings.recurrence import BookedTimes
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.model import DEFAULT_POOL

from ..config.booked_times import booked_times, read_day, read_wall_time, read_zone
from ..config.fields import Duration, Gpus, Name, Text, refused
from ..config.schemas import StrictSchema

__all__ = [
    "BookableSchema",
    "BookingPolicy",
    "BookingRules",
    "BookingRulesSchema",
    "BookingSchema",
    "PolicyBooking",
]

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class BookingRules(NamedTuple):
    """How far ahead (ms), and how many hours a week, a member of a project may book. None:
    unlimited.
    """

    max_ahead: int | None
    max_hours_per_week: float | None


@dataclass(frozen=True, slots=True)
class PolicyBooking:
    """A booking of the policy, for all members of its project. `no_show` in ms."""

    name: str
    project: str
    pool: str
    gpu: int
    times: BookedTimes
    source: Literal["quota", "bookable"] | None
    no_show: int


@dataclass(frozen=True, slots=True)
class BookingPolicy:
    """What the policy says about bookings."""

    bookable: Mapping[str, int] = field(default_factory=dict)
    """Milli-GPU of each node pool that belong to no quota."""
    rules: Mapping[str, BookingRules] = field(default_factory=dict)
    """By project; members of other projects cannot book."""
    booked: tuple[PolicyBooking, ...] = ()


class BookableSchema(StrictSchema):
    """The part of a node pool that can be booked. It is no part of anybody's quota."""

    gpu: Gpus = 0


class BookingRulesSchema(StrictSchema):
    """What members of a project may book. Managers may always book."""

    max_ahead: Duration | None = None
    """How far ahead a booking may begin; absent: any time."""
    max_hours_per_week: Annotated[float, Field(ge=0, le=168)] | None = None
    """Hours that one member may book per calendar week; absent: unlimited."""

    def to_rules(self) -> BookingRules:
        return BookingRules(self.max_ahead, self.max_hours_per_week)


def _checked(read: Any, field_name: str) -> AfterValidator:
    def check(text: str) -> str:
        try:
            read(text, field=field_name)
        except InvalidInput as error:
            raise refused(error.message) from None
        return text

    return AfterValidator(check)


def _day(value: object) -> int:
    word = str(value).lower()
    found = [i for i, name in enumerate(DAYS) if len(word) >= 3 and name.startswith(word)]
    if len(found) != 1:
        raise refused(f"must be a day of the week such as monday, got {value!r}")
    return found[0]


class BookingSchema(StrictSchema):
    """A booking for all members of a project: once, daily or weekly."""

    name: Name
    project: Name
    pool: Name = DEFAULT_POOL
    gpu: Gpus
    start: Annotated[Text, _checked(read_wall_time, "from")] = Field(alias="from")
    """The wall time of the first start, such as 2026-12-01 14:00."""
    duration: Duration = Field(alias="for")
    """How long it lasts, such as 2h; also when the clock changes."""
    repeat: Literal["daily", "weekly"] | None = None
    days: list[Annotated[int, BeforeValidator(_day)]] = []
    """Days of a weekly booking, such as [tuesday, thursday]; absent: the day of its start."""
    until: Annotated[Text, _checked(read_day, "until")] | None = None
    """Its last day; absent: it does not end."""
    times: Annotated[int, Field(strict=True, ge=1)] | None = None
    """How often it takes place, instead of `until`."""
    time_zone: Annotated[Text, _checked(read_zone, "time_zone")] = "UTC"
    """Such as Europe/Berlin."""
    source: Literal["quota", "bookable"] | None = None
    """The project's quota, or the bookable part of the pool; absent: the bookable part if the pool
    has one.
    """
    no_show: Duration = 600_000
    """Unused for so long after its start, it is given back; default 10m, 0 for never."""

    @model_validator(mode="after")
    def _has_times(self) -> BookingSchema:
        if self.gpu <= 0:
            raise refused("gpu must be more than 0")
        try:
            self.to_booking()
        except InvalidInput as error:
            raise refused(error.message) from None
        return self

    def to_booking(self) -> PolicyBooking:
        """The booking. Raises InvalidInput for times that cannot be booked."""
        times = booked_times(
            read_wall_time(self.start, field="from"),
            read_zone(self.time_zone, field="time_zone"),
            self.duration,
            self.repeat,
            self.days,
            self.times,
            None if self.until is None else read_day(self.until, field="until"),
        )
        return PolicyBooking(
            self.name, self.project, self.pool, self.gpu, times, self.source, self.no_show
        )
