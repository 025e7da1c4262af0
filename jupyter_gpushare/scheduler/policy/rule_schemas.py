"""Schemas of the rules in a policy: running time, waiting time, the idle rule, and pressure on
nodes.

In rules, null means "never" and overrides a less specific place; an absent key inherits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import read_duration

from ..config.fields import Bytes, Whole, refused
from ..config.schemas import StrictSchema

__all__ = ["IDLE_STEPS", "IdleRuleSchema", "PressureSchema", "RulesSchema"]

SHORTEST: Final = 1_000
"""ms. Shorter times are most likely mistakes (`30ms` for `30m`)."""
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
    """Null is kept, since it means "never"."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, value: object) -> object:
        return value

    def given(self) -> dict[str, Any]:
        """The keys that were set, also to null."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set
        }


class IdleRuleSchema(_NullMeansNever):
    """Steps for a kernel without GPU work: its owner is warned (`warn`), its GPU memory is saved to
    host memory (`suspend`), its GPU is released until its next cell (`release`), and the kernel is
    shut down (`end`).
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
                raise refused(f"{later} cannot be earlier than {earlier}")
        return self


class RulesSchema(_NullMeansNever):
    """How long a workload may run on a GPU or be pending, and the idle rule."""

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
    """When a node gets no new workloads: with less than this free, or when its processes stall for
    memory for a larger share of the time (per cent).
    """

    disk: Bytes = m.Pressure().disk_mib
    memory: Bytes = m.Pressure().memory_mib
    memory_stall: Annotated[float, Field(ge=0, le=100)] = m.Pressure().memory_stall_percent
    pids: Annotated[Whole, Field(ge=0)] = m.Pressure().pids

    def to_body(self) -> m.Pressure:
        """The thresholds as sent to agents."""
        return m.Pressure(
            disk_mib=self.disk,
            memory_mib=self.memory,
            memory_stall_percent=self.memory_stall,
            pids=self.pids,
        )
