"""A front end without a browser: REST calls, and one WebSocket per notebook."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil
import websocket

TOKEN = "story"


TIMEOUT_S = 60.0


class RestError(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


PROXY = "jupyter_gpushare.kernel_proxy"
"""Module of the process that stands between a server and kernels of other languages."""


def eventually(condition: Callable[[], object], what: str, within: float = TIMEOUT_S) -> object:
    """The first true result; a failure shows the last false one, or the last error."""
    deadline, answer = time.monotonic() + within, None
    while time.monotonic() < deadline:
        try:
            if answer := condition():
                return answer
        except (OSError, RestError, KeyError, StopIteration) as error:
            answer = error
        time.sleep(0.05)
    raise AssertionError(f"not within {within:.0f} s: {what}; last result: {answer!r}")


@dataclass
class Result:
    """Reply and outputs of one cell."""

    reply: dict
    outputs: list[dict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.reply["status"] == "ok"

    @property
    def ename(self) -> str:
        return self.reply.get("ename", "")

    @property
    def text(self) -> str:
        return "\n".join(shown(one) for one in self.outputs)


def shown(message: dict) -> str:
    content = message["content"]
    if message["msg_type"] == "error":
        return "\n".join(content["traceback"])
    return content.get("text") or content.get("data", {}).get("text/plain", "")


def kernel_processes() -> Iterator[psutil.Process]:
    yield from (
        p
        for p in psutil.process_iter(["cmdline", "status"])
        if p.info["status"] != psutil.STATUS_ZOMBIE
    )


def kernel_pid(kernel_id: str) -> int:
    """The kernel's main process."""
    for process in kernel_processes():
        line = " ".join(process.info["cmdline"] or [])
        if kernel_id in line and PROXY not in line:
            return process.pid
    raise StopIteration


class Notebook:
    """A session and the WebSocket of its page."""

    def __init__(self, server: Rest, spec: str, path: str) -> None:
        self.server, self.path = server, path
        session = server.rest(
            "POST",
            "api/sessions",
            {"path": path, "name": path, "type": "notebook", "kernel": {"name": spec}},
        )
        self.kernel_id = session["kernel"]["id"]
        self.session_id = session["id"]
        self.all: list[dict] = []
        self.ws: websocket.WebSocket | None = None
        self.connect()

    def connect(self) -> None:
        """As a page does when it opens, and again after a restart by the user: Jupyter's own
        connections to the new process may be ready only after the first reply was sent.
        """
        if self.ws is not None:
            self.ws.close()
        root = f"ws://127.0.0.1:{self.server.port}{self.server.base}"
        url = f"{root}api/kernels/{self.kernel_id}/channels?session_id={uuid.uuid4().hex}"
        # In a header: JupyterHub accepts no token in the URL.
        header = {"Authorization": f"token {self.server.token}"}
        self.ws = websocket.create_connection(url, timeout=TIMEOUT_S, header=header)
        weakref.finalize(self, self.ws.shutdown)  # a test may leave it open

    def create_subshell(self) -> str:
        """A second thread of the kernel that runs cells; its id."""
        msg_id = self.send("create_subshell_request", {}, channel="control")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self.next(deadline - time.monotonic())
            if message["parent_header"].get("msg_id") == msg_id and message["channel"] == "control":
                return message["content"]["subshell_id"]

    def submit(self, code: str, subshell: str | None = None) -> str:
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
        }
        return self.send("execute_request", content, subshell=subshell)

    def send(
        self, kind: str, content: dict, *, channel: str = "shell", subshell: str | None = None
    ) -> str:
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": kind,
            "username": "",
            "session": "s",
            "version": "5.3",
            "date": "",
        }
        if subshell is not None:
            header["subshell_id"] = subshell
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": channel,
            "buffers": [],
        }
        self.ws.send(json.dumps(message))
        return msg_id

    def next(self, within: float) -> dict:
        self.ws.settimeout(max(0.01, within))
        message = json.loads(self.ws.recv())
        message["parent_header"] = message["parent_header"] or {}  # xeus-python: None at its start
        self.all.append(message)
        return message

    def collect(self, msg_id: str, within: float = TIMEOUT_S) -> Result:
        """Reply and outputs of one cell, once it is idle."""
        deadline, outputs, reply, idle = time.monotonic() + within, [], None, False
        for message in [m for m in self.all if m["parent_header"].get("msg_id") == msg_id]:
            reply, idle = self._take(message, outputs, reply, idle)
        while reply is None or not idle:
            left = deadline - time.monotonic()
            texts = [shown(output) for output in outputs]
            assert left > 0, f"the cell did not end within {within:.0f} s; it showed {texts}"
            with contextlib.suppress(websocket.WebSocketTimeoutException):
                message = self.next(left)
                if message["parent_header"].get("msg_id") == msg_id:
                    reply, idle = self._take(message, outputs, reply, idle)
        return Result(reply, outputs)

    @staticmethod
    def _take(
        message: dict, outputs: list[dict], reply: dict | None, idle: bool
    ) -> tuple[dict | None, bool]:
        match message["msg_type"]:
            case "execute_reply":
                reply = message["content"]
            case "status":
                idle = idle or message["content"]["execution_state"] == "idle"
            case "stream" | "display_data" | "update_display_data" | "execute_result" | "error":
                outputs.append(message)
        return reply, idle

    def run(self, code: str, within: float = TIMEOUT_S) -> Result:
        return self.collect(self.submit(code), within)

    def ok(self, code: str, within: float = TIMEOUT_S) -> str:
        """The output of a cell that must succeed."""
        result = self.run(code, within)
        assert result.ok, (result.reply, result.text)
        return result.text

    def until_shown(self, msg_id: str, words: str, within: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + within
        while not any(
            words in shown(m)
            for m in self.all
            if m["parent_header"].get("msg_id") == msg_id and m["channel"] == "iopub"
        ):
            left = deadline - time.monotonic()
            assert left > 0, f"{words!r} was not shown; {[shown(m) for m in self.all[-5:]]}"
            with contextlib.suppress(websocket.WebSocketTimeoutException):
                self.next(left)

    def interrupt(self) -> None:
        self.server.rest("POST", f"api/kernels/{self.kernel_id}/interrupt")

    def shut_down(self) -> None:
        """Repeated while Jupyter restarts the kernel: jupyter_client answers 500 until then."""
        self.ws.close()
        eventually(self._delete_session, f"{self.path} is shut down")

    def _delete_session(self) -> bool:
        try:
            self.server.rest("DELETE", f"api/sessions/{self.session_id}")
        except RestError as error:
            return error.status == 404
        return True

    @property
    def view(self) -> dict:
        return self.server.rest("GET", f"gpushare/api/kernels/{self.kernel_id}")

    def until(self, *states: str, within: float = TIMEOUT_S) -> dict:
        return eventually(
            lambda: (view := self.view)["state"] in states and view,
            f"{self.path} in {states}",
            within,
        )

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.view["events"]]

    @property
    def pid(self) -> int:
        return kernel_pid(self.kernel_id)

    def saw(self, execution_state: str) -> bool:
        """Whether the page has received this execution state so far."""
        with contextlib.suppress(websocket.WebSocketTimeoutException):
            while True:
                self.next(0.01)
        return any(
            m["msg_type"] == "status" and m["content"]["execution_state"] == execution_state
            for m in self.all
        )


class Rest:
    """REST calls of a front end to a running server."""

    def __init__(self, port: int, token: str = TOKEN, base: str = "/") -> None:
        self.port, self.token, self.base = port, token, base
        self.notebooks: list[Notebook] = []

    def rest(self, verb: str, path: str, body: object = None, *, raw: bool = False) -> object:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{self.base}{path}",
            method=verb,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RestError(error.code, error.read().decode()) from None
        return text if raw else json.loads(text) if text else None

    def status(self) -> dict:
        return self.rest("GET", "gpushare/api/status")

    def devices(self) -> list[dict]:
        return [
            device
            for node in self.rest("GET", "gpushare/api/nodes")["nodes"]
            for device in node["devices"]
        ]

    def allocated(self) -> float:
        return sum(
            node["gpu_allocated"] for node in self.rest("GET", "gpushare/api/nodes")["nodes"]
        )

    def notebook(self, spec: str, path: str) -> Notebook:
        made = Notebook(self, spec, path)
        self.notebooks.append(made)
        return made
