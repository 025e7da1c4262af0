"""Stores what the self-test has proven since this machine was started, for an agent that restarts.

An agent that restarts while the GPUs are full cannot test: a test process needs memory, which it
would take from users. Results with the same driver, GPUs and user since the machine was started
remain valid; after a restart of the machine or an update of the driver, everything is tested again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["SelfTestCache"]

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class SelfTestCache:
    """A file in the agent's state directory."""

    def __init__(self, path: Path, driver: str, uuids: Sequence[str]) -> None:
        self._path = path
        self._machine = [_boot_id(), driver, os.geteuid(), *uuids]

    def read(self) -> frozenset[str]:
        """The proven tiers; none when the file is missing, damaged, or of another machine."""
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
            same = body["machine"] == self._machine
            return frozenset(str(tier) for tier in body["tiers"]) if same else frozenset()
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def write(self, tiers: Iterable[str]) -> None:
        """Replaces the file. Without a writable directory, the next start tests again."""
        fresh = self._path.with_suffix(".new")
        body = {"machine": self._machine, "tiers": sorted(tiers)}
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(body), encoding="utf-8")
            fresh.replace(self._path)


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
