"""Limits of the names and labels of a new workload, which the database stores.

Requests that are already in the database are not checked: version 0.1.0 accepted more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.labels import check_label_key, check_label_value

__all__ = ["check_limits"]

MAX_LABELS: Final = 64
"""Labels of one pod, and likewise entries of its node selector."""
MAX_POD_NAME: Final = 253
MAX_NODES: Final = 10_000
"""Node names of one workload."""
MAX_LABEL_BYTES: Final = 64 * 1024
"""Labels and node selectors of all pods of a workload."""


def check_limits(request: m.WorkloadRequest) -> None:
    """Checks ids, names and labels. Raises InvalidInput with the field."""
    for field in ("id", "kernel_id"):
        if not (getattr(request, field) or "").isprintable():
            raise InvalidInput(f"{field} must have printable characters only", field=field)
    label_bytes = nodes = 0
    for i, pod in enumerate(request.pods):
        where = f"pods[{i}]." if len(request.pods) > 1 else ""
        _check_name(pod.name, f"{where}name")
        _check_name(pod.group, f"{where}group")
        for name in pod.nodes:
            _check_name(name, f"{where}nodes")
        for field, labels in (("labels", pod.labels), ("node_selector", pod.node_selector)):
            label_bytes += _check_labels(labels, f"{where}{field}")
        nodes += len(pod.nodes)
    if label_bytes > MAX_LABEL_BYTES:
        text = f"the labels of a workload have at most {MAX_LABEL_BYTES} bytes, got {label_bytes}"
        raise InvalidInput(text, field="pods")
    if nodes > MAX_NODES:
        raise InvalidInput(f"a workload names at most {MAX_NODES} nodes, got {nodes}", field="pods")
    for group in _groups(request.groups):
        _check_name(group.name, "groups")


def _check_name(name: str, field: str) -> None:
    if len(name) > MAX_POD_NAME or not name.isprintable():
        leaf = field.rpartition(".")[2]
        text = f"{leaf} must have at most {MAX_POD_NAME} printable characters, got {name[:80]!r}"
        raise InvalidInput(text, field=field)


def _check_labels(labels: dict[str, str], field: str) -> int:
    """Returns the size in bytes."""
    if len(labels) > MAX_LABELS:
        leaf = field.rpartition(".")[2]
        raise InvalidInput(
            f"{leaf} has at most {MAX_LABELS} entries, got {len(labels)}", field=field
        )
    for key, value in labels.items():
        try:
            check_label_key(key)
            check_label_value(value)
        except InvalidInput as error:
            raise InvalidInput(error.message, field=field) from None
    return sum(len(key) + len(value) for key, value in labels.items())


def _groups(groups: list[m.GroupRequest]) -> Iterator[m.GroupRequest]:
    waiting = list(groups)
    while waiting:
        group = waiting.pop()
        yield group
        waiting += group.groups
