"""Messages in the terms of the person: the options of `%gpu` or of the command line in place of
the field names of a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["COMMAND_OPTIONS", "MAGIC_OPTIONS", "with_options"]

MAGIC_OPTIONS: Final = {
    "gpu": "SHARE",
    "gpu_memory": "--memory",
    "gpu_limit": "--limit",
    "node_pools": "--pool",
    "priority_class": "--priority",
}
"""Field of a request -> option of `%gpu request`."""
COMMAND_OPTIONS: Final = {
    "gpu": "--gpu",
    "gpu_memory": "--gpu-memory",
    "gpu_limit": "--gpu-limit",
    "node_pools": "--pool",
    "priority_class": "--priority",
    "min_pods": "--min-pods",
}
"""Field of a request -> option of `jupyter gpushare run` and `what-if`."""


def with_options(message: str, options: Mapping[str, str]) -> str:
    """The message with options in place of field names."""
    names = "|".join(map(re.escape, options))
    return re.sub(rf"(?<![%\w./-])({names})(?![\w./-])", lambda found: options[found[1]], message)
