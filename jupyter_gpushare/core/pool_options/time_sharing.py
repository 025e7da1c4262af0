"""Option `time_sharing`: workloads take turns. Idle ones give their share to waiting cells; the
action is `rotate` (`eviction.rotation`).
"""

from __future__ import annotations

from typing import Any

from ..cluster.time_sharing import TIME_SHARING, TimeSharing
from ..model.pool_option import Duration, PoolOption, Settings, Switch

__all__ = ["TIME_SHARING_OPTION"]


def _rules(value: Any) -> TimeSharing | None:
    rules = dict(value or ())
    if not rules.get("enabled"):
        return None
    return TimeSharing(rules["min_turn"] or 0, rules["max_turn"])


TIME_SHARING_OPTION = PoolOption(
    key="time_sharing",
    values=Settings(
        (
            ("enabled", Switch(), False),
            ("min_turn", Duration(), 1000),
            ("max_turn", Duration(), None),
        )
    ),
    default=None,
    documentation=(
        "Workloads take turns: a waiting cell gets the share of an idle notebook at once, whose"
        " memory is saved. A turn is protected for `min_turn`; after `max_turn` a running cell is"
        " suspended if equals wait (off: never)."
    ),
    hook=TIME_SHARING,
    supply=_rules,
)
