"""Whose trouble an error of a GPU is, and in which words. Pure tables.

An XID is the driver's number for an error. Some are caused by a program: then its kernel hears of
it, and the GPU is well. Others mean that the GPU is not: nothing new is placed there. The rest is
only logged: nobody is told that a GPU is broken on a guess.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GPUS_OWN", "KERNELS_OWN", "blamed", "needs_recovery", "unwell"]

KERNELS_OWN: Final = {
    13: "the GPU stopped at an illegal instruction or address",
    31: "it used GPU memory that is not its own",
    43: "the GPU stopped working for it",
    45: "its work was taken off the GPU after an earlier error",
}
"""XIDs that a program causes by itself: https://docs.nvidia.com/deploy/xid-errors."""
GPUS_OWN: Final = {
    48: "a memory error that cannot be corrected (two bits)",
    63: "a part of its memory broke, and is to be replaced at the next reset",
    64: "a part of its memory broke, and could not be replaced",
    74: "its link to other GPUs (NVLink) failed",
    79: "it has fallen off the bus",
    94: "a memory error that cannot be corrected (contained)",
    95: "a memory error that cannot be corrected (not contained)",
}
OTHERS: Final = {
    "ecc": "a memory error that cannot be corrected",
    "unavailable": "the driver says that it is not available",
    "mig": "its division into instances (MIG) changed",
}
RECOVERY: Final = {
    1: "reset it (`nvidia-smi --gpu-reset`)",
    2: "restart the machine",
    3: "take the work off it that talks to other GPUs",
    4: "take all work off it, then reset it",
    5: "recover the IMEX domain",
    6: "reset its bus",
    7: "restart the machine",
}
THEN: Final = "; reset it or restart the machine, then restart the agent"


def unwell(kind: str, data: int) -> str:
    """One sentence about the GPU when this event means that it is not well; "" otherwise."""
    if kind == "xid" and data in GPUS_OWN:
        return f"XID {data}: {GPUS_OWN[data]}{THEN}."
    if kind == "mig":
        return f"{_capital(OTHERS[kind])}; restart the agent to see the new instances."
    return f"{_capital(OTHERS[kind])}{THEN}." if kind in OTHERS else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def blamed(xid: int) -> str:
    """What a program did, when this XID is a program's own doing; "" otherwise."""
    return KERNELS_OWN.get(xid, "")


def needs_recovery(action: int) -> str:
    """One sentence when the driver says that something has to be done about the GPU; "" when
    nothing has.
    """
    return (
        f"The driver asks for it: {RECOVERY.get(action, f'recovery action {action}')}."
        if action
        else ""
    )
