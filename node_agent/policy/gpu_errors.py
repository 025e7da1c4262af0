"""Classifies GPU errors and words them. Pure tables.

An XID is the driver's number for an error. Some are caused by a program: its kernel is notified,
and the GPU stays healthy. Others mean that the GPU is unhealthy: nothing new is placed on it. The
rest is only logged: a GPU is not declared unhealthy on a guess.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HARDWARE_XIDS", "PROGRAM_XIDS", "health_problem", "program_error", "recovery_problem"]

PROGRAM_XIDS: Final = {
    13: "the GPU stopped at an illegal instruction or address",
    31: "it used GPU memory that is not its own",
    43: "the GPU stopped working for it",
    45: "its work was removed from the GPU after an earlier error",
}
"""XIDs that a program causes: https://docs.nvidia.com/deploy/xid-errors."""
HARDWARE_XIDS: Final = {
    48: "uncorrectable memory error (double bit)",
    63: "broken memory, to be replaced at the next reset",
    64: "broken memory that could not be replaced",
    74: "the link to other GPUs (NVLink) failed",
    79: "the GPU has fallen off the bus",
    94: "uncorrectable memory error (contained)",
    95: "uncorrectable memory error (not contained)",
}
EVENT_TEXTS: Final = {
    "ecc": "uncorrectable memory error",
    "unavailable": "the driver reports the GPU as unavailable",
    "mig": "the MIG instances of the GPU changed",
}
RECOVERY_ACTIONS: Final = {
    1: "reset it (`nvidia-smi --gpu-reset`)",
    2: "restart the machine",
    3: "stop its work that communicates with other GPUs",
    4: "stop all its work, then reset it",
    5: "recover the IMEX domain",
    6: "reset its bus",
    7: "restart the machine",
}
REMEDY: Final = "; reset it or restart the machine, then restart the agent"


def health_problem(kind: str, data: int) -> str:
    """One sentence when this event means that the GPU is unhealthy; "" otherwise."""
    if kind == "xid" and data in HARDWARE_XIDS:
        return f"XID {data}: {HARDWARE_XIDS[data]}{REMEDY}."
    if kind == "mig":
        return f"{_capitalized(EVENT_TEXTS[kind])}; restart the agent to use the new instances."
    return f"{_capitalized(EVENT_TEXTS[kind])}{REMEDY}." if kind in EVENT_TEXTS else ""


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def program_error(xid: int) -> str:
    """What a program did, when programs cause this XID; "" otherwise."""
    return PROGRAM_XIDS.get(xid, "")


def recovery_problem(action: int) -> str:
    """One sentence when the driver requests a recovery action for the GPU; "" when it does not."""
    if not action:
        return ""
    text = RECOVERY_ACTIONS.get(action, f"recovery action {action}")
    return f"The driver requests recovery: {text}."
