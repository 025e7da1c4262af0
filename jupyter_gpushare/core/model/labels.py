"""The syntax of label keys and values, as in Kubernetes
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/).
"""

from __future__ import annotations

import re
from typing import Final

from .errors import InvalidInput

__all__ = ["check_label_key", "check_label_value"]

MAX_NAME: Final = 63
MAX_PREFIX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    "must begin and end with a letter or digit, with only letters, digits, '-', '_' and '.' between"
)


def check_label_key(key: str) -> None:
    """Checks a key such as `rack` or `topology.kubernetes.io/zone`. Raises InvalidInput."""
    if not key:
        raise InvalidInput("a label key must not be empty")
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        raise InvalidInput(f"a label key has at most one '/', got {_shown(key)}")
    if len(prefix) > MAX_PREFIX:
        raise InvalidInput(f"the prefix of a label key has at most {MAX_PREFIX} characters")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        text = f"the prefix of a label key must be a DNS subdomain, got {_shown(prefix)}"
        raise InvalidInput(text)
    if len(name) > MAX_NAME:
        raise InvalidInput(f"the name of a label key has at most {MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"the name of a label key {_NAME_RULE}, got {_shown(name)}")


def check_label_value(value: str) -> None:
    """Checks a value such as `A100`; it may be empty. Raises InvalidInput."""
    if len(value) > MAX_NAME:
        raise InvalidInput(f"a label value has at most {MAX_NAME} characters, got {len(value)}")
    if value and not _NAME.fullmatch(value):
        raise InvalidInput(f"a label value {_NAME_RULE}, got {_shown(value)}")


def _shown(text: str) -> str:
    return repr(text[:80])
