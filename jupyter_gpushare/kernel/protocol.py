"""The version of the messages between a kernel and its node agent.

The provisioner hands its own copy of this package to a kernel. A kernel may have another version
loaded before (`pip install jupyter-gpushare` and an IPython configuration that loads it).
"""

from __future__ import annotations

from typing import Final

__all__ = ["PROTOCOL", "mismatch_text"]

PROTOCOL: Final = 1
"""Increased by a change that the other side cannot ignore. A peer that does not state a number has
protocol 1.
"""


def mismatch_text(kernel: int, agent: int) -> str:
    """One sentence about a kernel and an agent that do not understand each other."""
    older = "this kernel's environment" if kernel < agent else "the node agent of this machine"
    return (
        f"jupyter-gpushare of this kernel (protocol {kernel}) does not match the node agent"
        f" (protocol {agent}); update jupyter-gpushare of {older}, then restart the kernel"
    )
