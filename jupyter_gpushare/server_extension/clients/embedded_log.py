"""Log records of the embedded scheduler and agent, in the log of the Jupyter server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

__all__ = ["in_server_log"]

ROOT: Final = "gpushare"
POLICY: Final = "gpushare.scheduler.policy"
"""Changes of the policy are logged with level INFO, as the service does; of all others only
warnings: events of kernels are on screen already.
"""


class _ForwardHandler(logging.Handler):
    def __init__(self, target: logging.Logger) -> None:
        super().__init__()
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        self._target.handle(record)


@contextlib.contextmanager
def in_server_log(log: logging.Logger) -> Iterator[None]:
    """Forwards the records while the embedded services run."""
    root, policy = logging.getLogger(ROOT), logging.getLogger(POLICY)
    handler, levels = _ForwardHandler(log), (root.level, policy.level)
    root.addHandler(handler)
    if not root.level:
        root.setLevel(logging.WARNING)
    policy.setLevel(min(root.level, logging.INFO))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        policy.setLevel(levels[1])
