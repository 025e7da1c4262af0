"""The rule for a workload and its place in the policy: per key, the most specific place wins.

From the most specific: `projects[].pools.<pool>.rules`, `projects[].rules`, `node_pools[].rules`,
`defaults.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jupyter_gpushare import messages as m

from .rule_schemas import IDLE_STEPS, RulesSchema

__all__ = ["Rule", "RuleSet"]

KEYS: Final = ("max_running", "max_waiting", *(f"idle.{step}" for step in IDLE_STEPS))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in force. `ms` None: never. `place`: `projects.vision.rules.max_running`."""

    ms: int | None
    place: str


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The stated rules by place (`defaults`, `node_pools.a100`, `projects.vision`,
    `projects.vision.pools.a100`), each by key.
    """

    stated: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, shapes: Mapping[str, RulesSchema]) -> RuleSet:
        """From the parts of a file."""
        return cls({place: stated for place, shape in shapes.items() if (stated := _stated(shape))})

    def rule(self, key: str, project: str, pool: str) -> Rule | None:
        """The rule for this project in this pool; None: no rule."""
        for place in (
            f"projects.{project}.pools.{pool}",
            f"projects.{project}",
            f"node_pools.{pool}",
            "defaults",
        ):
            stated = self.stated.get(place, {})
            if key in stated:
                return Rule(stated[key], f"{place}.rules.{key}")
        return None

    def max_running(self, project: str, pools: Iterable[str]) -> int | None:
        """How long (ms) a workload of this project may run in whichever of these pools it starts;
        None: unlimited.
        """
        rules = [self.rule("max_running", project, pool) for pool in pools]
        times = [rule.ms for rule in rules if rule is not None and rule.ms is not None]
        return max(times) if times and len(times) == len(rules) else None

    def lease_rules(self, project: str, pool: str) -> m.LeaseRules:
        """The time limits of a lease of this project in this pool."""
        found = {
            key: rule
            for key in KEYS
            if (rule := self.rule(key, project, pool)) is not None and rule.ms is not None
        }
        times = {
            f"{key.replace('.', '_')}_ms": rule.ms
            for key, rule in found.items()
            if key != "max_waiting"
        }
        return m.LeaseRules(
            **times, places={key: rule.place for key, rule in found.items() if key != "max_waiting"}
        )

    def all(self) -> Iterator[tuple[str, int | None]]:
        """(place of the rule, ms), in the order of the file."""
        for place, stated in self.stated.items():
            for key, ms in stated.items():
                yield f"{place}.rules.{key}", ms


def _stated(shape: RulesSchema) -> dict[str, int | None]:
    given = shape.given()
    idle = shape.idle.given() if "idle" in given else {}
    plain = {key: given[key] for key in ("max_running", "max_waiting") if key in given}
    return plain | {f"idle.{step}": idle[step] for step in IDLE_STEPS if step in idle}
