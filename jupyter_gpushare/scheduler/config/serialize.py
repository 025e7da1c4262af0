"""Writes the core's options, node pools and quotas in the format of files. Reading the result gives
the same values.

All keys are written, since a snapshot must not depend on defaults, and policies are compared key by
key.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpushare.core.model.amounts import MILLI, is_unlimited
from jupyter_gpushare.core.model.model import MembersPolicy, NodePool, Options, Quota, TimeBased
from jupyter_gpushare.core.model.pool_option import Duration, PoolOption, Settings
from jupyter_gpushare.core.pool_options import registered

__all__ = ["Body", "members_policy_body", "options_body", "pool_body", "quota_body", "seconds"]

Body = dict[str, Any]


def options_body(options: Options) -> Body:
    """The mapping under `options:`."""
    victims, grace = options.max_consolidation_victims, options.staleness_grace
    return {
        "max_consolidation_victims": "unlimited" if victims is None else victims,
        "staleness_grace": "unlimited" if is_unlimited(grace) or grace < 0 else seconds(grace),
        "saturation_multiplier": options.saturation_multiplier / MILLI,
        "allow_consolidating_reclaim": options.allow_consolidating_reclaim,
        "preempt_min_runtime": seconds(options.preempt_min_runtime),
        "reclaim_min_runtime": seconds(options.reclaim_min_runtime),
    }


def pool_body(pool: NodePool) -> Body:
    """One entry of `node_pools:`."""
    return {
        "name": pool.name,
        "label": {"key": pool.label[0], "value": pool.label[1]} if pool.label else None,
        "placement": {
            "gpu": "defragment" if pool.defragment else pool.gpu,
            "cpu": pool.cpu,
            "gpu_device": pool.gpu_device,
        },
        "workloads_per_gpu": pool.workloads_per_gpu,
        "time_based_fairshare": _time_based(pool.time_based),
        "topology": pool.topology,
        **{key: _option(option, pool) for key, option in registered().items()},
    }


def _option(option: PoolOption[Any], pool: NodePool) -> object:
    value = option.of(pool)
    if isinstance(option.values, Settings):
        if not isinstance(value, tuple):
            return None
        kinds = {key: kind for key, kind, _ in option.values.parts}
        return {key: _written(kinds[key], part) for key, part in value}
    return _written(option.values, value)


def _written(kind: object, value: object) -> object:
    if isinstance(kind, Duration) and isinstance(value, int):
        return seconds(value)
    return value


def _time_based(timed: TimeBased | None) -> Body | None:
    if timed is None:
        return None
    return {
        "enabled": True,
        "k": timed.k / MILLI,
        "window": seconds(timed.window),
        "half_life": seconds(timed.half_life),
    }


def quota_body(quota: Quota) -> Body:
    """The settings of a queue in one pool: `gpu:`, `cpu:`, `memory:`, rank and minimum runtimes."""
    blocks = {
        resource: {
            "quota": _amount(resource, getattr(quota.quota, resource)),
            "limit": _amount(resource, getattr(quota.limit, resource)),
            "over_quota_weight": getattr(quota.weight, resource) / MILLI,
        }
        for resource in ("gpu", "cpu", "memory")
    }
    runtimes = {
        key: None if value is None else seconds(value)
        for key, value in (
            ("preempt_min_runtime", quota.preempt_min_runtime),
            ("reclaim_min_runtime", quota.reclaim_min_runtime),
        )
    }
    return {**blocks, "rank": quota.rank, **runtimes}


def members_policy_body(policy: MembersPolicy) -> Body:
    """The mapping under `members_policy:`."""
    limit = policy.limit
    return {
        "fairness": policy.fairness,
        "half_life": seconds(policy.half_life),
        "weights": {user: weight / MILLI for user, weight in sorted(policy.weights.items())},
        "limit": {
            "gpu": None if limit.gpu is None else limit.gpu / MILLI,
            "notebooks": limit.notebooks,
            "pending": limit.pending,
        },
    }


def _amount(resource: str, amount: int) -> float | str:
    if is_unlimited(amount):
        return "unlimited"
    return f"{amount}MiB" if resource == "memory" else amount / MILLI


def seconds(ms: int) -> float:
    """A duration or time in the unit of files."""
    return ms / 1000
