"""The words for the states of a kernel, the same as in JupyterLab
(`labextension/src/stateLabels.ts`; compared in `tests/kernel/test_text.py`).
"""

from __future__ import annotations

from typing import Final

from ..kernel_body import Json

__all__ = ["STATE_WORDS", "state_word"]

STATE_WORDS: Final = {
    "detached": "no GPU",
    "pending": "waiting",
    "granted": "starting",
    "attached": "running",
    "suspended": "suspended",
    "reclaiming": "giving back",
    "lost": "unknown",
}
IDLE: Final = "idle"
"""In place of `running` while no cell runs."""


def state_word(kernel: Json) -> str:
    """The word for the state of a kernel, or of one sample of its history."""
    if kernel["state"] == "attached" and kernel.get("busy") is False:
        return IDLE
    return STATE_WORDS.get(kernel["state"], "unknown")
