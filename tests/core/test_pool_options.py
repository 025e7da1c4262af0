"""The registry of node pool options: each is complete, and its value survives the way through
files.
"""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.model import NodePool
from jupyter_gpushare.core.model.pool_option import (
    Choice,
    Duration,
    Hook,
    OptionValue,
    PoolOption,
    Settings,
    Switch,
    WholeNumber,
)
from jupyter_gpushare.core.pool_options import chosen, registered
from jupyter_gpushare.scheduler.config.serialize import pool_body
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy, policy_schema


def another_value(option: PoolOption[object]) -> OptionValue:
    """A value that is not the default."""
    if isinstance(option.values, Settings):
        return tuple((key, another(kind, part)) for key, kind, part in option.values.parts)
    return another(option.values, option.default)


def another(values: object, default: object) -> str | int | bool | None:
    match values:
        case Choice(words):
            return next(word for word in words if word != default)
        case Duration():
            return 90_000
        case Switch():
            return not default
        case WholeNumber(minimum, maximum):
            return maximum if default == minimum else minimum
    raise AssertionError(values)


@pytest.mark.parametrize("option", registered().values(), ids=lambda option: option.key)
def test_an_option_is_documented_and_survives_the_way_through_a_file(
    option: PoolOption[object],
) -> None:
    properties = policy_schema()["$defs"]["NodePoolSchema"]["properties"]
    assert properties[option.key]["description"] == option.documentation
    pool = NodePool("default", options=chosen(**{option.key: another_value(option)}))
    assert option.of(pool) == another_value(option)
    (read,) = parse_policy(
        f"node_pools: [{pool_body(pool)}]".replace("None", "null")
    ).policy.node_pools
    assert read == pool


@pytest.mark.parametrize("option", registered().values(), ids=lambda option: option.key)
def test_a_default_supplies_nothing(option: PoolOption[object]) -> None:
    assert chosen(**{option.key: option.default}) == ()
    assert option.supply(option.default) is None
    assert option.hook.first(NodePool("default")) is None


def test_a_hook_gets_what_its_options_supply() -> None:
    for option in registered().values():
        pool = NodePool("default", options=chosen(**{option.key: another_value(option)}))
        assert option.hook.first(pool) is not None
        assert Hook[object]("another place").first(pool) is None


def test_two_options_with_one_key_are_refused() -> None:
    taken = next(iter(registered().values()))
    with pytest.raises(ValueError, match="defined twice"):
        PoolOption(taken.key, Switch(), False, "Again.", taken.hook, lambda value: value)


def test_an_unknown_option_cannot_be_chosen() -> None:
    with pytest.raises(KeyError):
        chosen(colour="red")
