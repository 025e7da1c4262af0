"""The life of a lease: every state, every fact, and which state follows. Everything about
transitions is in the one table below.

Two rules of the house. First: the table is the truth; the scheduler, the agent and the notebook's
provisioner read it, and the diagram in the docs is drawn from it. Second: a fact that a state has
no place for is refused (`OutOfTurn`), counted by the caller, and never ignored; a repeated message
is therefore visible, and the sender decides whether it is harmless.

What the table cannot say: the ladder of a reclaim (notice, suspend, kill, move) is the node
agent's, the table only knows how it ended. And messages cross on the wire: an agent may suspend a
kernel by itself while the order to reclaim it is on its way, and then answers that order when the
lease is already `suspended`. So `suspended` has a place for the answers `move` and `release`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from .errors import OutOfTurn

__all__ = ["HOLDING", "TRANSITIONS", "LeaseFact", "LeaseState", "diagram", "step"]


class LeaseState(StrEnum):
    """Where a lease is in its life."""

    PENDING = "pending"
    """Asked for; no GPU yet (or not any more)."""
    GRANTED = "granted"
    """Committed by the scheduler; the kernel does not have it yet."""
    ATTACHED = "attached"
    """The kernel has its GPU."""
    SUSPENDED = "suspended"
    """Still holds its share in the plan; its GPU state is in host memory."""
    RECLAIMING = "reclaiming"
    """Ordered to let go or to move; the ladder is running."""
    LOST = "lost"
    """Its agent is silent for longer than the grace time; still booked until the policy says
    otherwise.
    """
    ENDED = "ended"
    """Over for good."""


class LeaseFact(StrEnum):
    """What can happen to a lease. Facts are reported after they happened, or decided by the
    scheduler after it committed them.
    """

    GRANT = "grant"
    """The scheduler has committed a spot."""
    WITHDRAW = "withdraw"
    """A grant that no kernel has taken up is void: the plan changed, or the agent refused it."""
    ATTACH = "attach"
    """The kernel process runs with its GPU."""
    SUSPEND = "suspend"
    """The GPU state was saved to host memory and the device memory is free."""
    RESUME = "resume"
    """The GPU state is back on a device."""
    RECLAIM = "reclaim"
    """The scheduler takes the spot away, or the agent must move it."""
    MOVE = "move"
    """It carries on, on another GPU."""
    RELEASE = "release"
    """Everything was let go because of a reclaim; it asks again with its age."""
    KERNEL_DIED = "kernel_died"
    """The process is gone by itself; a restart keeps the spot."""
    AGENT_LOST = "agent_lost"
    """The agent was silent for the grace time."""
    AGENT_BACK = "agent_back"
    """The agent answers again and still finds the process."""
    REQUEUE = "requeue"
    """The policy gives up on a silent agent: asked for again elsewhere."""
    END = "end"
    """The kernel was shut down, or its owner gave the GPU back."""


S, F = LeaseState, LeaseFact

TRANSITIONS: Final[Mapping[LeaseState, Mapping[LeaseFact, LeaseState]]] = {
    S.PENDING: {F.GRANT: S.GRANTED, F.END: S.ENDED},
    S.GRANTED: {
        F.ATTACH: S.ATTACHED,
        F.WITHDRAW: S.PENDING,
        F.RECLAIM: S.RECLAIMING,
        F.AGENT_LOST: S.LOST,
        F.END: S.ENDED,
    },
    S.ATTACHED: {
        F.SUSPEND: S.SUSPENDED,
        F.RECLAIM: S.RECLAIMING,
        F.MOVE: S.ATTACHED,
        F.KERNEL_DIED: S.GRANTED,
        F.AGENT_LOST: S.LOST,
        F.END: S.ENDED,
    },
    S.SUSPENDED: {
        F.RESUME: S.ATTACHED,
        F.RECLAIM: S.RECLAIMING,
        F.MOVE: S.SUSPENDED,
        F.RELEASE: S.PENDING,
        F.KERNEL_DIED: S.GRANTED,
        F.AGENT_LOST: S.LOST,
        F.END: S.ENDED,
    },
    # A kernel that dies while it is asked to let go has let go: nothing is left to take, so it asks
    # again like one that was killed.
    S.RECLAIMING: {
        F.MOVE: S.ATTACHED,
        F.SUSPEND: S.SUSPENDED,
        F.RELEASE: S.PENDING,
        F.KERNEL_DIED: S.PENDING,
        F.AGENT_LOST: S.LOST,
        F.END: S.ENDED,
    },
    # The agent reports afresh what it finds: attached is what it says by default, anything else
    # follows as a fact of its own.
    S.LOST: {F.AGENT_BACK: S.ATTACHED, F.REQUEUE: S.PENDING, F.END: S.ENDED},
    S.ENDED: {},
}

HOLDING: Final = frozenset({S.GRANTED, S.ATTACHED, S.SUSPENDED, S.RECLAIMING, S.LOST})
"""States in which the lease has a spot in the plan: these count against quota, and their GPU is not
free.
"""


def step(state: LeaseState, fact: LeaseFact) -> LeaseState:
    """The state that follows. Raises OutOfTurn, naming both, when the state has no place for the
    fact; nothing has changed then.
    """
    following = TRANSITIONS[state].get(fact)
    if following is None:
        raise OutOfTurn(f"a lease that is {state} has no place for the fact {fact}", field="fact")
    return following


def diagram() -> str:
    """The table as a Mermaid state diagram; facts that lead from one state to the same other share
    an arrow.
    """
    lines = ["stateDiagram-v2", "    [*] --> pending"]
    for state, row in TRANSITIONS.items():
        for following in LeaseState:
            facts = [fact for fact, target in row.items() if target is following]
            if facts:
                lines.append(f"    {state} --> {following}: {', '.join(facts)}")
    lines.append("    ended --> [*]")
    return "\n".join(lines)
