"""What the rules of a policy look like: how long something may run or wait, what happens to the
idle, when a node is under pressure.

Here alone null says something: "never", which overrides what a less specific place states. A key
that is absent inherits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_duration

from ..config.schemas import Bytes, StrictSchema, Whole, refused

__all__ = ["IDLE_STEPS", "IdleRuleSchema", "PressureSchema", "RulesSchema"]

SHORTEST: Final = 1_000
"""ms. A rule that acts within less than a second is a slip of the pen (`30` for `30m`)."""
IDLE_STEPS: Final = ("warn", "suspend", "release", "end")
"""The steps of the idle rule, mildest first."""


def _rule_time(value: object) -> int | None:
    """ms; None: never."""
    if value is None or value == "never":
        return None
    try:
        duration = read_duration(value, what="")
    except InvalidInput as error:
        raise refused(f"{error.message.strip()}; `never` (or null) switches the rule off") from None
    if duration < SHORTEST:
        raise refused(f"must be at least 1s, got {value}; `never` (or null) switches the rule off")
    return duration


RuleTime = Annotated[
    int | None,
    BeforeValidator(_rule_time),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 1},
                {"type": "string", "pattern": "^([0-9.]+(ms|s|m|h|d|w)?|never)$"},
                {"type": "null"},
            ]
        }
    ),
]


class _NullMeansNever(StrictSchema):
    """Null is kept: it says "never" here."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, value: object) -> object:
        return value

    def given(self) -> dict[str, Any]:
        """What was stated, null included."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set
        }


class IdleRuleSchema(_NullMeansNever):
    """What happens to a kernel that has done no GPU work for so long: its owner is told (`warn`),
    its GPU memory is saved to host memory (`suspend`), its GPU is given back until its next cell
    (`release`), and at last the kernel itself is shut down (`end`).
    """

    warn: RuleTime = None
    suspend: RuleTime = None
    release: RuleTime = None
    end: RuleTime = None

    @model_validator(mode="after")
    def _in_order(self) -> IdleRuleSchema:
        stated = [(step, time) for step in IDLE_STEPS if (time := getattr(self, step)) is not None]
        for (earlier, before), (later, after) in pairwise(stated):
            if after < before:
                raise refused(f"{later} comes after {earlier} and cannot be earlier")
        return self


class RulesSchema(_NullMeansNever):
    """How long a workload may hold a GPU, or wait for one, and the idle rule."""

    max_running: RuleTime = None
    max_waiting: RuleTime = None
    idle: IdleRuleSchema = IdleRuleSchema()

    @model_validator(mode="before")
    @classmethod
    def _no_idle_is_none(cls, value: object) -> object:
        """`idle: null` switches all its steps off."""
        if isinstance(value, Mapping) and "idle" in value and value["idle"] in (None, "never"):
            return {**value, "idle": dict.fromkeys(IDLE_STEPS)}
        return value


class PressureSchema(StrictSchema):
    """When a node takes nothing new: with less than this left, or when its processes stall for
    memory for more than so many per cent of the time.
    """

    disk: Bytes = m.Pressure().disk_mib
    memory: Bytes = m.Pressure().memory_mib
    memory_stall: Annotated[float, Field(ge=0, le=100)] = m.Pressure().memory_stall_percent
    pids: Annotated[Whole, Field(ge=0)] = m.Pressure().pids

    def to_body(self) -> m.Pressure:
        """As agents are told."""
        return m.Pressure(
            disk_mib=self.disk,
            memory_mib=self.memory,
            memory_stall_percent=self.memory_stall,
            pids=self.pids,
        )
