"""Who lends to whom: on one GPU, what some hold above their share is what others leave unused of
theirs. Pure arithmetic in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["lent"]


def lent(held: Mapping[str, int], shares: Mapping[str, int]) -> dict[str, int]:
    """MiB that each owner of a share lends on one GPU. `held`: what each holds there; `shares`:
    what each may hold for sure.

    All that is held above a share counts as borrowed, and as lent by the owners of unused shares,
    in proportion to what they leave and rounded down. So no more is lent than is borrowed, and
    nobody lends more than they leave. (What nobody has a share of could be lent first; but memory
    has no names, and an owner who comes back has to wait for any of it.)
    """
    borrowed = sum(max(0, mib - shares.get(name, 0)) for name, mib in held.items())
    left = {
        name: share - held.get(name, 0)
        for name, share in shares.items()
        if share > held.get(name, 0)
    }
    total = sum(left.values())
    if not total or not borrowed:
        return {}
    return {name: min(mib, mib * borrowed // total) for name, mib in left.items()}
