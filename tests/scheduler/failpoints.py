"""Named points in a scheduler's work, without a hook in the program: each is a place where kill -9
may strike.

Installed in a scheduler's process before it starts. A point is named by what is being done and how
far it is: `submit: before INSERT workloads`, `cycle: after commit`, `before lease_wanted goes out`.
`points` appends every name that is passed to a file; `die_at` ends the process at the first passing
of a name, as the machine would.
"""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.api.event_stream import EventStream
from jupyter_gpushare.scheduler.service.reports import AgentReports
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.state.nodes import NodeRegistry

_WRITE = re.compile(r'\s*(INSERT INTO|UPDATE|DELETE FROM)\s+"?(\w+)')
_TYPE = re.compile(rb'"type":"(\w+)"')


class Points:
    """Passes points. Commands of the service run one at a time and wait for nothing: what is being
    done is never in doubt.
    """

    def __init__(self, passed: Path | None, die_at: str | None) -> None:
        self._passed, self._die_at = passed, die_at
        self.doing: list[str] = []
        self._written: dict[str, None] = {}
        """Tables that the open transaction wrote to, in order."""

    def at(self, moment: str) -> None:
        name = f"{self.doing[-1]}: {moment}" if self.doing else moment
        if self._passed is not None:
            with self._passed.open("a") as file:
                file.write(f"{name}\n")
        if name == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(
        self, owner: type, method: str, name: Callable[..., str], *, is_command: bool = False
    ) -> None:
        """A point before and after each call; `is_command`: points inside are named after it."""
        real = getattr(owner, method)

        @functools.wraps(real)
        def passing(*args: Any, **more: Any) -> Any:
            what = name(*args)
            if is_command:
                self.doing.append(what)
            self.at("begins" if is_command else f"before {what}")
            try:
                done = real(*args, **more)
                self.at("is done" if is_command else f"after {what}")
                return done
            finally:
                if is_command:
                    self.doing.pop()

        setattr(owner, method, passing)

    def in_transactions(self, engine: sql.Engine) -> None:
        """Before and after every write, and every commit of a command's."""

        def write(statement: str) -> str | None:
            found = _WRITE.match(statement)
            return f"{found[1].split()[0]} {found[2]}" if found else None

        @sql.event.listens_for(engine, "before_cursor_execute")
        def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if self.doing and (what := write(statement)):
                self.at(f"before {what}")

        @sql.event.listens_for(engine, "after_cursor_execute")
        def after(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if self.doing and (what := write(statement)):
                self._written[what.split()[1]] = None
                self.at(f"after {what}")

        real = engine.dialect.do_commit

        def commit(connection: Any) -> None:
            written, self._written = ", ".join(self._written) or "nothing", {}
            if self.doing:
                self.at(f"before the commit of {written}")
            real(connection)
            if self.doing:
                self.at(f"after the commit of {written}")

        # the event "commit" comes before it only
        engine.dialect.do_commit = commit  # type: ignore[method-assign]


def install(*, points: str | None = None, die_at: str | None = None) -> None:
    """In this process, for good."""
    made = Points(Path(points) if points else None, die_at)
    for method in ("submit", "end", "run_cycle", "agent_hello"):
        made.around(SchedulerService, method, lambda *_args, name=method: name, is_command=True)
    made.around(
        SchedulerService,
        "agent_report",
        lambda _self, _node, said: f"agent says {_name(said)}",
        is_command=True,
    )
    made.around(AgentReports, "write_usage", lambda *_args: "usage", is_command=True)
    made.around(NodeRegistry, "send", lambda _self, _node, order: f"{_name(order)} is handed on")
    made.around(EventStream, "publish", lambda _self, frame, *_who: f"{_name(frame)} is published")
    made.around(
        WebSocketHandler, "write_message", lambda _self, frame, *_more: f"{_type(frame)} goes out"
    )
    made.around(
        RequestHandler,
        "finish",
        lambda handler, *_more: f"the answer to {handler.request.method} goes out",
    )
    sql.event.listen(sql.Engine, "engine_connect", functools.partial(_once, made, set()))


def _once(points: Points, seen: set[int], connection: sql.Connection) -> None:
    if id(connection.engine) not in seen:
        seen.add(id(connection.engine))
        points.in_transactions(connection.engine)


def _name(body: object) -> str:
    # the bodies of streams are tagged
    return str(type(body).__struct_config__.tag)  # type: ignore[attr-defined]


def _type(frame: object) -> str:
    found = _TYPE.search(frame if isinstance(frame, bytes) else m.encode(frame))
    return found[1].decode() if found else "a frame"
