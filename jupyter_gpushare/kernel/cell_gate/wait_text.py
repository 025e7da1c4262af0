"""The sentences under a waiting cell, and in the error of a cell that did not run. Pure."""

from __future__ import annotations

import math
from typing import Final

from ..kernel_body import Json

__all__ = [
    "agent_lost_text",
    "end_of_wait_text",
    "refusal_after_interrupt",
    "timeout_text",
    "wait_text",
    "without_agent_text",
]

HAS_LEASE: Final = ("attached", "reclaiming")


def agent_lost_text(seconds_left: float, problem: str) -> str:
    """While a cell waits for the node agent."""
    if problem:
        return f"No GPU is available: {problem}."
    if seconds_left == math.inf:
        return "The node agent is not reachable. The cell waits until it is back."
    return (
        "The node agent is not reachable. Borrowed memory cannot be reclaimed meanwhile."
        f" The cell runs in at most {max(1, round(seconds_left))} s."
    )


def without_agent_text(state: str, problem: str, waited_s: float) -> str:
    """When a cell runs although the node agent did not answer."""
    if problem:
        return f"The cell runs without a GPU: {problem}."
    if state not in HAS_LEASE:
        return "The node agent did not answer. The cell runs without a GPU."
    return (
        f"The node agent did not come back within {waited_s:.0f} s."
        " The cell runs with the GPU memory that is free."
    )


def wait_text(sentence: str, message: Json, kernel: Json) -> str:
    """The agent's sentence, and the queue position where the sentence does not have it."""
    position = message.get("position") or kernel.get("queue_position")
    if not position or "osition" in sentence:
        return sentence
    return f"{sentence} Queue position: {position}."


def end_of_wait_text(state: str, waited_s: float, *, without_gpu: bool) -> str:
    """When a cell that waited runs. The agent decides whether it has a GPU: its update of the state
    may arrive after its permission.
    """
    if without_gpu or state == "detached":
        return "The cell runs without a GPU."
    return f"GPU ready after {waited_s:.1f} s."


def refusal_after_interrupt(*, has_lease: bool, agent_lost: bool) -> str:
    """Why a cell did not run whose wait was interrupted."""
    if has_lease and agent_lost:
        return "the wait for the node agent was stopped. Later cells do not wait for it."
    return (
        "the wait for the GPU was stopped. Later cells run without a GPU until it is granted;"
        " `%gpu wait` waits again."
    )


def timeout_text(waited_s: float, sentence: str) -> str:
    """Why `gpu.wait(timeout=…)` failed."""
    return f"no GPU after {waited_s:.0f} s: {sentence or 'the node agent gave no reason'}"
