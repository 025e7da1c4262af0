"""Names of the gateway's kernels: only this server knows which notebooks they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["with_names"]


def with_names(text: str | bytes, names: Mapping[str, str]) -> str | bytes:
    """JSON of the gateway's server, in which kernels without a name have that of `names`, by the
    kernel's id.
    """
    if not names or '"name":""' not in (text if isinstance(text, str) else text.decode()):
        return text
    return json.dumps(_named(json.loads(text), names))


def _named(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _named(one, names) for key, one in value.items()}
    if found.get("name") == "" and found.get("kernel_id") in names:
        found["name"] = names[found["kernel_id"]]
    return found
