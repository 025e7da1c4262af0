"""Which subshells the kernel has, as its own replies on the control channel say."""

from __future__ import annotations

from collections import deque
from typing import Final

from .messages import Reply, Request

__all__ = ["REPLIES", "REQUESTS", "Subshells"]

REQUESTS: Final = ("delete_subshell_request",)
REPLIES: Final = ("create_subshell_reply", "delete_subshell_reply")
MAX_UNANSWERED: Final = 100


class Subshells:
    """A kernel has none at first. Some kernels answer nothing to a request for one that they do
    not have (ipykernel before 7.4), so that such a request must not count as running.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._deletions: deque[tuple[str, str]] = deque(maxlen=MAX_UNANSWERED)
        """Requests without a reply yet: id of the message, id of the subshell."""

    def __contains__(self, subshell: str | None) -> bool:
        """The main shell (None) is always there."""
        return subshell is None or subshell in self._known

    def requested(self, request: Request) -> None:
        """A client has asked to delete one."""
        self._deletions.append((request.msg_id, str(request.content.get("subshell_id"))))

    def replied(self, reply: Reply) -> list[str]:
        """Learn from a reply of the kernel; returns the subshells that have ended."""
        if reply.status != "ok":
            return []
        if reply.msg_type == "create_subshell_reply":
            self._known.add(str(reply.content.get("subshell_id")))
            return []
        return self._end({one for msg_id, one in self._deletions if msg_id == reply.parent_id})

    def clear(self) -> list[str]:
        """Another process of the kernel has none; returns those that have ended."""
        return self._end(set(self._known))

    def _end(self, subshells: set[str]) -> list[str]:
        ended = sorted(subshells & self._known)
        self._known -= subshells
        return ended
