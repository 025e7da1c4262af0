"""The Jupyter wire protocol, as far as the proxy reads and writes it."""

from __future__ import annotations

import hmac
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import zmq

__all__ = ["Frames", "Request", "Reply", "Signer", "read_reply", "read_request"]

Frames = Sequence[zmq.Frame]
DELIMITER: Final = b"<IDS|MSG>"
PROTOCOL: Final = "5.3"
SIGNED_PARTS: Final = 4
"""Header, parent header, metadata, content."""


@dataclass(frozen=True)
class Request:
    """A message of a client. `idents` route its reply; `raw_header` is the parent header of
    everything that belongs to it.
    """

    idents: tuple[bytes, ...]
    raw_header: bytes
    msg_id: str
    msg_type: str
    subshell: str | None
    """Id of the subshell that executes it; None: the main shell."""
    content: Mapping[str, Any]
    """Empty if it is no JSON object."""


@dataclass(frozen=True)
class Reply:
    """A reply of the kernel."""

    parent_id: str
    msg_type: str
    content: Mapping[str, Any]
    """Empty if it is no JSON object."""

    @property
    def status(self) -> str:
        """`ok`, `error` or `aborted`."""
        return str(self.content.get("status", ""))

    @property
    def execution_count(self) -> int | None:
        """Of the cell, if the reply has it."""
        count = self.content.get("execution_count")
        return count if isinstance(count, int) else None


class Signer:
    """Signs added messages, and checks those that the proxy acts on."""

    def __init__(self, key: bytes, digest: str) -> None:
        self._key, self._digest = key, digest
        self._session = uuid.uuid4().hex

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """The signature of header, parent header, metadata and content."""
        if not self._key:
            return b""
        signature = hmac.new(self._key, digestmod=self._digest)
        for part in parts:
            signature.update(part)
        return signature.hexdigest().encode()

    def is_valid(self, frames: Frames) -> bool:
        """Whether the message is signed with the key of the connection file."""
        start = _delimiter_at(frames)
        if start is None or len(frames) < start + 2 + SIGNED_PARTS:
            return False
        parts = [frame.bytes for frame in frames[start + 2 : start + 2 + SIGNED_PARTS]]
        return hmac.compare_digest(self.sign(parts), frames[start + 1].bytes)

    def message(
        self, idents: Sequence[bytes], msg_type: str, content: dict[str, Any], raw_parent: bytes
    ) -> list[bytes]:
        """The frames of a new message."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "session": self._session,
            "username": "gpushare",
            "date": datetime.now(UTC).isoformat(),
            "msg_type": msg_type,
            "version": PROTOCOL,
        }
        parts = [json.dumps(header).encode(), raw_parent, b"{}", json.dumps(content).encode()]
        return [*idents, DELIMITER, self.sign(parts), *parts]


def read_request(frames: Frames, *kinds: str) -> Request | None:
    """A client's message of one of these types; None if it is another or malformed, which is left
    to the kernel. Its signature must have been checked.
    """
    start = _delimiter_at(frames)
    if start is None or len(frames) < start + 2 + SIGNED_PARTS:
        return None
    raw_header = frames[start + 2].bytes
    if not any(kind.encode() in raw_header for kind in kinds):
        return None
    header = _object(raw_header)
    msg_id, msg_type = header.get("msg_id"), header.get("msg_type")
    if not isinstance(msg_id, str) or msg_type not in kinds:
        return None
    subshell = header.get("subshell_id")
    return Request(
        idents=tuple(frame.bytes for frame in frames[:start]),
        raw_header=raw_header,
        msg_id=msg_id,
        msg_type=msg_type,
        subshell=subshell if isinstance(subshell, str) else None,
        content=_object(frames[start + 5].bytes),
    )


def read_reply(frames: Frames, *kinds: str) -> Reply | None:
    """A reply of one of these types; None for every other message."""
    start = _delimiter_at(frames)
    if start is None or len(frames) < start + 2 + SIGNED_PARTS:
        return None
    raw_header = frames[start + 2].bytes
    if not any(kind.encode() in raw_header for kind in kinds):
        return None
    msg_type = _object(raw_header).get("msg_type")
    if msg_type not in kinds:
        return None
    return Reply(
        parent_id=str(_object(frames[start + 3].bytes).get("msg_id", "")),
        msg_type=str(msg_type),
        content=_object(frames[start + 5].bytes),
    )


def _delimiter_at(frames: Frames) -> int | None:
    for i, frame in enumerate(frames):
        if len(frame) == len(DELIMITER) and frame.bytes == DELIMITER:
            return i
    return None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
