"""A JupyterLab server whose `gpushare/api/` returns what a browser test configured.

`POST gpushare/script` sets the status and sends it to every open stream; `{"down": true}` makes the
API answer 503 and closes the streams; `{"kernel": {...}}` sends one kernel frame; `{"tables":
{"projects": [...]}}` and `{"what_if": {...}}` set the answers of those routes. `GET
gpushare/script` returns the calls of the page since the last time, and the number of open streams.
Bodies are converted to the real messages: missing fields have their defaults, and invalid ones are
errors.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyterlab.labapp import LabApp
from tornado import web, websocket

from jupyter_gpushare.messages import (
    Kernel,
    Status,
    StreamKernel,
    WhatIfAnswer,
    convert,
    encode,
    to_json,
)

FIELDS = {"history/queues": "samples"}
"""The field of the rows where it differs from the path."""
UP = {"reachable": True, "version": "0.0.0", "problem": None}


class Script:
    """The configured responses, the open streams, and the recorded calls."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {
            "mode": "embedded",
            "simulated": True,
            "scheduler": UP,
            "agent": UP,
            "node": "n0",
            "user": "ada",
            "projects": ["vision", "language"],
            "node_pools": ["default"],
            "priority_classes": ["interactive", "train"],
            "presets": [
                {"name": "¼ GPU", "request": {"gpu": 0.25}},
                {"name": "½ GPU", "request": {"gpu": 0.5}},
                {
                    "name": "large",
                    "description": "For training runs",
                    "request": {"gpu": 2, "priority_class": "train"},
                },
            ],
            "kernels": [],
        }
        self.tables: dict[str, list[dict[str, Any]]] = {"projects": []}
        self.what_if: dict[str, Any] = {"starts_now": True, "node": "n0"}
        self.calendar: dict[str, Any] = {"pool": "default", "entries": [], "free": []}
        self.fit: dict[str, Any] = {"fits": True, "message": "It fits.", "booking": None}
        self.down = False
        self.refusal: dict[str, Any] | None = None
        self.revision = 0
        self.streams: set[Stream] = set()
        self.calls: list[dict[str, Any]] = []

    def configure(self, body: dict[str, Any]) -> None:
        self.down = body.get("down", False)
        self.refusal = body.get("refusal")
        self.status |= body.get("status", {})
        self.tables |= body.get("tables", {})
        self.what_if = body.get("what_if", self.what_if)
        self.calendar, self.fit = body.get("calendar", self.calendar), body.get("fit", self.fit)
        self.revision += 1
        for stream in list(self.streams):
            if self.down:
                stream.close()
            elif "kernel" in body:
                stream.send_kernel(body["kernel"])
            else:
                stream.send_state()


SCRIPT = Script()


def status_json() -> Any:
    """The status as JSON."""
    return to_json(convert(Status, SCRIPT.status))


class ScriptHandler(JupyterHandler):
    def post(self) -> None:
        SCRIPT.configure(json.loads(self.request.body))

    def get(self) -> None:
        self.finish(json.dumps({"calls": SCRIPT.calls, "streams": len(SCRIPT.streams)}))
        SCRIPT.calls.clear()

    def check_xsrf_cookie(self) -> None:
        """The test calls it from outside of the page."""


class Api(APIHandler):
    """Status, tables and actions; calls are recorded, and refused if so configured."""

    def prepare(self) -> Any:
        if SCRIPT.down:
            raise web.HTTPError(503)
        return super().prepare()

    @web.authenticated
    def get(self, path: str) -> None:
        if path == "status":
            self.finish(json.dumps(status_json()))
        elif path == "bookings/calendar":
            self.finish(json.dumps(SCRIPT.calendar))
        elif path in SCRIPT.tables:
            self.finish(json.dumps({FIELDS.get(path, path): SCRIPT.tables[path]}))
        else:
            raise web.HTTPError(404)

    @web.authenticated
    def post(self, path: str) -> None:
        self.answer(path)

    @web.authenticated
    def delete(self, path: str) -> None:
        self.answer(path)

    def answer(self, path: str) -> None:
        body = json.loads(self.request.body) if self.request.body else None
        SCRIPT.calls.append({"method": self.request.method, "path": path, "body": body})
        if path == "what-if" and SCRIPT.refusal is None:
            self.finish(json.dumps(to_json(convert(WhatIfAnswer, SCRIPT.what_if))))
        elif path == "bookings" and SCRIPT.refusal is None:
            self.finish(json.dumps(SCRIPT.fit))
        elif SCRIPT.refusal is not None:
            self.set_status(400)
            self.finish(json.dumps({"error": SCRIPT.refusal}))


class Stream(websocket.WebSocketHandler):
    def open(self) -> None:
        if SCRIPT.down:
            self.close()
            return
        SCRIPT.calls.append(
            {"method": "WS", "path": "stream", "since": self.get_query_argument("since", None)}
        )
        SCRIPT.streams.add(self)
        self.send_state()

    def on_close(self) -> None:
        SCRIPT.streams.discard(self)

    def send_kernel(self, kernel: dict[str, Any]) -> None:
        frame = StreamKernel(
            revision=SCRIPT.revision, kernel_id=kernel["kernel_id"], kernel=convert(Kernel, kernel)
        )
        self.write_message(encode(frame).decode())

    def send_state(self) -> None:
        self.write_message({"type": "state", "revision": SCRIPT.revision, "status": status_json()})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "scripted_server"}]


def _load_jupyter_server_extension(app: Any) -> None:
    base = app.web_app.settings["base_url"].rstrip("/")
    app.web_app.add_handlers(
        ".*$",
        [
            (f"{base}/gpushare/script", ScriptHandler),
            (f"{base}/gpushare/api/stream", Stream),
            (f"{base}/gpushare/api/(.*)", Api),
        ],
    )


if __name__ == "__main__":
    LabApp.launch_instance(sys.argv[1:])
