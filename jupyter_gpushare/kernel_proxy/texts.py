"""Sentences under a cell, for kernels whose language has no `%gpu`. Pure."""

from __future__ import annotations

from typing import Final

__all__ = [
    "NOTICE_ADVICE",
    "RESTART_TO_ATTACH",
    "SHUTDOWN",
    "no_subshell",
    "refusal_after_interrupt",
]

NOTICE_ADVICE: Final = "Until then you can free memory yourself, or release the GPU in the sidebar."
RESTART_TO_ATTACH: Final = (
    "The GPU is available. This kernel chose its GPUs when it started: restart it to use this one."
)
SHUTDOWN: Final = "the kernel was shut down before the cell could run."


def no_subshell(subshell: str) -> str:
    """Why a cell did not run whose subshell the kernel does not have, or not any more."""
    return f"the kernel has no subshell {subshell}."


def refusal_after_interrupt(*, agent_lost: bool) -> str:
    """Why a cell did not run whose wait was interrupted."""
    if agent_lost:
        return "the wait for the node agent was stopped. Later cells do not wait for it."
    return "the wait for the GPU was stopped. Later cells run without a GPU until it is granted."
