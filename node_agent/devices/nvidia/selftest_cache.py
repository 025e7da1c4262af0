"""What the self-test has proven on this machine since it was started, kept for an agent that starts
again.

An agent that comes back while the GPUs are full cannot try anything: a test process needs room, and
would take it from people who compute. What was proven with the same driver, GPUs and user since the
machine was started is believed then; a machine that was restarted, or whose driver was updated, is
tested anew.
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
    """One file of the agent's state directory."""

    def __init__(self, path: Path, driver: str, uuids: Sequence[str]) -> None:
        self._path = path
        self._machine = [_boot(), driver, os.geteuid(), *uuids]

    def read(self) -> frozenset[str]:
        """The tiers that were proven here; none when the file is missing, damaged, or tells of
        another machine.
        """
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
            same = body["machine"] == self._machine
            return frozenset(str(tier) for tier in body["tiers"]) if same else frozenset()
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def write(self, tiers: Iterable[str]) -> None:
        """Replaced as a whole. A directory that cannot be written to costs a test at the next
        start, no more.
        """
        fresh = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            fresh.write_text(
                json.dumps({"machine": self._machine, "tiers": sorted(tiers)}), encoding="utf-8"
            )
            fresh.replace(self._path)


def _boot() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
