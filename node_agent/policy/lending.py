"""How much each tenant lends: on one GPU, memory that some hold above their share is what others
leave unused of theirs. Pure arithmetic in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["lent"]


def lent(held: Mapping[str, int], shares: Mapping[str, int]) -> dict[str, int]:
    """MiB that each owner of a share lends on one GPU. `held`: memory of each tenant there;
    `shares`: its guaranteed memory.

    All memory above a share counts as borrowed, and as lent by the owners of unused shares, in
    proportion to what they leave unused, rounded down. So no more is lent than is borrowed, and no
    owner lends more than it leaves. (Memory outside of all shares could be lent first; but memory
    has no names, and a returning owner has to wait for any of it.)
    """
    borrowed = sum(max(0, mib - shares.get(name, 0)) for name, mib in held.items())
    unused: dict[str, int] = {}
    for name, share in shares.items():
        if share > held.get(name, 0):
            unused[name] = share - held.get(name, 0)
    total = sum(unused.values())
    if not total or not borrowed:
        return {}
    return {name: min(mib, mib * borrowed // total) for name, mib in unused.items()}
