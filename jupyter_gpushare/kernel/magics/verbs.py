"""What each verb of `%gpu` does and shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Union

from .. import gpu
from ..display import text as text_view
from ..display.charts import history_text
from ..display.html import DisplayValue, lines_html, preformatted_html, table_html
from ..display.state_words import state_word
from ..grant_wait import request_share
from ..kernel_body import Json
from ..rpc import act, call, kernel_in, request_body
from ..session import current
from .parsers import history_parser, plain_parser, request_parser

__all__ = ["DEVICE_COLUMNS", "QUEUE_COLUMNS", "VERBS", "body_of"]

Result = Union[Json, str, DisplayValue]
"""A kernel's status, a sentence, or a text with its HTML."""

QUEUE_COLUMNS: Final = {
    "queue": "queue",
    "kind": "kind",
    "pool": "pool",
    "quota": "quota",
    "fair_share": "fair share",
    "allocated": "allocated",
    "requested": "requested",
    "limit": "limit",
}
DEVICE_COLUMNS: Final = {
    "node": "node",
    "gpu": "GPU",
    "model": "model",
    "total": "GiB",
    "guaranteed": "guaranteed",
    "used": "used",
    "kernels": "kernels",
    "status": "status",
}


class Verb(NamedTuple):
    """The options of a verb, and the function that takes them."""

    parser: Any
    run: Callable[[Any], Result]


def body_of(options: Any) -> Json:
    """The body of a request."""
    return request_body(
        options.gpu,
        options.memory,
        options.limit,
        options.project,
        options.pool,
        options.priority,
        queue_anyway=getattr(options, "queue_anyway", False),
    )


def _status(_: Any) -> Result:
    return gpu.status()


def _request(options: Any) -> Result:
    reply = request_share(body_of(options), wait=not options.no_wait)
    return _without_events(kernel_in(current(), reply)) if options.no_wait else gpu.status()


def _without_events(kernel: Json) -> Json:
    """The event of a request arrives after its reply: the last one is older."""
    return {**kernel, "events": []}


def _cancel(_: Any) -> Result:
    return _without_events(gpu.cancel())


def _release(_: Any) -> Result:
    before = gpu.status()
    if before["state"] == "detached":
        return "This notebook has no GPU."
    gpu.release()
    if before["state"] == "pending":
        return "The request was cancelled."
    change = " The pending request was cancelled too." if before.get("pending_change") else ""
    return f"The GPU was released.{change}"


def _wait(_: Any) -> Result:
    return gpu.wait()


def _why(_: Any) -> Result:
    answer = gpu.why()
    if answer["reason"]:
        position, expected = answer["queue_position"], answer["expected_wait"]
        return text_view.reason_text(answer["reason"], position, expected)
    if answer["state"] == "detached":
        return "Not waiting: this notebook has not requested a GPU."
    return f"Not waiting: this notebook is {state_word(answer)}."


def _what_if(options: Any) -> Result:
    return text_view.what_if_text(call("what-if", body_of(options)))


def _suspend(_: Any) -> Result:
    return act("suspend")


def _resume(_: Any) -> Result:
    return act("resume")


def _pin(_: Any) -> Result:
    return act("pin")


def _unpin(_: Any) -> Result:
    return act("unpin")


def _queue(_: Any) -> Result:
    rows = [row for row in gpu.queue() if row["resource"] == "gpu"]
    return DisplayValue(text_view.table(rows, QUEUE_COLUMNS), table_html(rows, QUEUE_COLUMNS))


def _nodes(_: Any) -> Result:
    nodes = gpu.nodes()
    rows = [_device_row(node, device) for node in nodes for device in node["devices"]]
    label = "These GPUs are simulated." if any(node["simulated"] for node in nodes) else ""
    text = f"{text_view.table(rows, DEVICE_COLUMNS)}\n{label}".rstrip()
    return DisplayValue(text, table_html(rows, DEVICE_COLUMNS) + label)


def _device_row(node: Json, device: Json) -> Json:
    memory = {name: round(mib / 1024, 1) for name, mib in device["memory_mib"].items()}
    return {
        "node": node["name"],
        "gpu": device["uuid"],
        "model": device["model"],
        **memory,
        "kernels": len(device["kernels"]),
        "status": node["status"],
    }


def _history(options: Any) -> Result:
    chart = history_text(gpu.samples(options.minutes), options.minutes)
    events = text_view.events_text(gpu.history())
    return DisplayValue(f"{chart}\n{events}", preformatted_html(chart) + lines_html(events))


VERBS: Final[dict[str, Verb]] = {
    "status": Verb(plain_parser("status"), _status),
    "request": Verb(request_parser("request"), _request),
    "cancel": Verb(plain_parser("cancel"), _cancel),
    "release": Verb(plain_parser("release"), _release),
    "wait": Verb(plain_parser("wait"), _wait),
    "why": Verb(plain_parser("why"), _why),
    "what-if": Verb(request_parser("what-if"), _what_if),
    "suspend": Verb(plain_parser("suspend"), _suspend),
    "resume": Verb(plain_parser("resume"), _resume),
    "pin": Verb(plain_parser("pin"), _pin),
    "unpin": Verb(plain_parser("unpin"), _unpin),
    "queue": Verb(plain_parser("queue"), _queue),
    "nodes": Verb(plain_parser("nodes"), _nodes),
    "history": Verb(history_parser(), _history),
}
