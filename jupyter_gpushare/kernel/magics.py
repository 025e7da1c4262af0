"""`%gpu` and `%%gpu`: parsing and showing. What they do is in `gpu`; how it reads is in `view` and
`cards`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser

from . import gpu
from .connection import Json
from .display import charts
from .display import text as text_view
from .display.html import DisplayValue, card_html, events_html, table_html
from .rpc import GpuError, ask, ask_for, request_body
from .session import current

__all__ = ["GpuMagics"]

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


def _parser(verb: str, about: str) -> MagicArgumentParser:
    return MagicArgumentParser(prog=f"%gpu {verb}".strip(), description=about, add_help=False)


def _asking(verb: str, about: str) -> MagicArgumentParser:
    parser = _parser(verb, about)
    parser.add_argument("gpu", nargs="?", help="GPUs: 0.5, 2")
    parser.add_argument("--memory", help="GPU memory instead of a fraction: 20GiB")
    parser.add_argument("--limit", help="burst ceiling in GPUs; default: the whole GPU")
    parser.add_argument("--project")
    parser.add_argument("--pool", help="node pools in order: A,B")
    parser.add_argument("--priority", help="priority class")
    if verb == "request":
        parser.add_argument(
            "--no-wait", action="store_true", help="return at once; later cells wait for the GPU"
        )
    return parser


def _body(given: Any) -> Json:
    return request_body(
        given.gpu, given.memory, given.limit, given.project, given.pool, given.priority
    )


def _status(_: Any) -> Json:
    return gpu.status()


def _request(given: Any) -> Json:
    body = _body(given)
    ask_for(body)
    return gpu.status() if given.no_wait else gpu.wait()


def _release(_: Any) -> str:
    if gpu.status()["state"] == "detached":
        return "This notebook has no share of a GPU."
    gpu.release()
    return "The GPU was given back."


def _wait(_: Any) -> Json:
    return gpu.wait()


def _why(_: Any) -> str:
    answer = gpu.why()
    if answer.get("reason"):
        return text_view.reason_text(
            answer["reason"], answer.get("queue_position"), answer.get("expected_wait")
        )
    if answer.get("state") == "detached":
        return "Nothing waits: this notebook asked for no GPU."
    return f"Nothing waits: this notebook's GPU is {answer.get('state')}."


def _what_if(given: Any) -> str:
    return text_view.what_if_text(ask("what-if", _body(given)))


def _queue(_: Any) -> DisplayValue:
    rows = [row for row in gpu.queue() if row["resource"] == "gpu"]
    return DisplayValue(text_view.table(rows, QUEUE_COLUMNS), table_html(rows, QUEUE_COLUMNS))


def _nodes(_: Any) -> DisplayValue:
    found = gpu.nodes()
    rows = [_device_row(node, device) for node in found for device in node["devices"]]
    label = "These GPUs are simulated." if any(node["simulated"] for node in found) else ""
    return DisplayValue(
        f"{text_view.table(rows, DEVICE_COLUMNS)}\n{label}".rstrip(),
        table_html(rows, DEVICE_COLUMNS) + label,
    )


def _device_row(node: Json, device: Json) -> Json:
    memory = {name: round(mib / 1024, 1) for name, mib in device["memory_mib"].items()}
    who = {"kernels": len(device["kernels"]), "status": node["status"]}
    return {"node": node["name"], "gpu": device["uuid"], "model": device["model"], **memory, **who}


def _history(given: Any) -> DisplayValue:
    samples, events = gpu.samples(given.minutes), gpu.history()
    picture = charts.history_html(samples, given.minutes) + events_html(events)
    return DisplayValue(
        f"{charts.history_text(samples, given.minutes)}\n{text_view.events_text(events)}", picture
    )


def _history_parser() -> MagicArgumentParser:
    parser = _parser("history", "what happened to this notebook's share")
    parser.add_argument("--minutes", type=int, default=60, help="how far back, 1 to 1440")
    return parser


Verb = tuple[MagicArgumentParser, Callable[[Any], Json | str | DisplayValue]]
VERBS: Final[dict[str, Verb]] = {
    "status": (_parser("status", "this notebook's share"), _status),
    "request": (_asking("request", "ask for a share"), _request),
    "release": (_parser("release", "give the GPU back"), _release),
    "wait": (_parser("wait", "wait for the GPU"), _wait),
    "why": (_parser("why", "why this notebook waits"), _why),
    "what-if": (_asking("what-if", "would such a request start now"), _what_if),
    "suspend": (_parser("suspend", "save GPU memory to host memory"), lambda _: gpu.suspend()),
    "resume": (_parser("resume", "bring saved GPU memory back"), lambda _: gpu.resume()),
    "pin": (_parser("pin", "do not suspend while idle"), lambda _: gpu.pin()),
    "unpin": (_parser("unpin", "suspend while idle when needed"), lambda _: gpu.unpin()),
    "queue": (_parser("queue", "the queues"), _queue),
    "nodes": (_parser("nodes", "the nodes and their GPUs"), _nodes),
    "history": (_history_parser(), _history),
}
CELL: Final = _asking("", "run one cell with a share and give it back")


@magics_class
class GpuMagics(Magics):
    """`%gpu …`; the verbs are in `VERBS`."""

    @line_cell_magic("gpu")
    def gpu(self, line: str, cell: str | None = None) -> DisplayValue | None:
        """`%gpu` shows this notebook's share; `%gpu request 0.5` asks for one; `%%gpu 1.0` runs one
        cell with one.

        Verbs: status, request, release, wait, why, what-if, suspend, resume, pin, unpin, queue,
        nodes, history.
        """
        try:
            if cell is not None:
                self._run_cell_with(_body(_parsed(CELL, line)), cell)
                return None
            return _shown(line)
        except GpuError as error:
            raise UsageError(_one_line(str(error))) from None

    def _run_cell_with(self, body: Json, cell: str) -> None:
        before = gpu.status()
        answer = ask_for(body)
        try:
            gpu.wait()
            _run(self.shell, cell)
        finally:
            _give_back(before, answer.get("previous"))


def _parsed(parser: MagicArgumentParser, line: str) -> Any:
    try:
        return parser.parse_argstring(line)
    except ValueError as error:  # an open quotation mark
        raise UsageError(f"{_one_line(str(error)).lower()}, got {line.strip()}") from None


def _shown(line: str) -> DisplayValue:
    verb, _, rest = line.strip().partition(" ")
    if (verb or "status") not in VERBS:
        raise UsageError(f"%gpu has no {verb!r}; it has {', '.join(VERBS)}")
    parser, act = VERBS[verb or "status"]
    result = act(_parsed(parser, rest))
    if isinstance(result, DisplayValue):
        return result
    if isinstance(result, str):
        return DisplayValue(result)
    link = current().link
    away = link.address is not None and not link.welcomed.is_set()
    return DisplayValue(text_view.kernel_text(result, away=away), card_html(result, away=away))


def _give_back(before: Json, previous: Json | None) -> None:
    """Restore what was held before the cell, or nothing."""
    if before["state"] == "detached":
        gpu.release()
        return
    share = before["request"]
    asked = (
        {"gpu": share["gpu"]}
        if share["gpu"] is not None
        else {"gpu_memory": share["gpu_memory_mib"]}
    )
    ask_for(previous or {**asked, "project": before["project"]})


def _run(shell: Any, cell: str) -> None:
    """Run the cell as if it stood alone, and fail as it failed, shown once: by the outer cell."""
    shown = {name: getattr(shell, name) for name in ("showtraceback", "showsyntaxerror")}
    try:
        for name in shown:
            setattr(shell, name, lambda *_, **__: None)
        result = shell.run_cell(cell, store_history=False)
    finally:
        for name in shown:
            delattr(shell, name)
    result.raise_error()


def _one_line(text: str) -> str:
    return " ".join(text.split())
