"""Anything at all on the WebSockets: whatever is said there, the service goes on, and its other
callers notice nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import websocket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.scheduler.auth.rate_limits import RateLimits
from tests.example_counts import examples
from tests.scheduler.agents import node
from tests.scheduler.server_thread import ServerThread, server_in_thread
from tests.scheduler.test_arbitrary_input import ODD

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
FRAME = 100_000
LIMITS = RateLimits(calls_per_s=0, frame_bytes=FRAME)
BOUNDED = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)

HELLO = m.AgentHello(version="1", node=node("fuzz"))
USAGE = m.LeaseUsage(lease="w@1", held_ms=1, busy_ms=1, used_mib_ms=1, borrowed_mib_ms=1)
SAID: list[dict[str, Any]] = [
    json.loads(m.encode(frame))
    for frame in (
        HELLO,
        m.NodeChangedReport(node=node("fuzz")),
        m.LeaseChanged(report=m.LeaseReport(lease="w@1", state="attached")),
        m.LeaseReleased(lease="w@1", ended=False),
        m.LeaseReleased(lease="kept@1", ended=True),
        m.LeaseEvent(lease="w@1", event=m.Event(time=m.stamp(0), kind="notice", message="x")),
        m.UsageReport(since_ms=1, rows=[USAGE]),
        m.UsageReport(since_ms=1, life="x", number=1, rows=[USAGE]),
    )
]
ANY_JSON = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every part of a body."""
    yield path
    for key, part in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(part, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = replaced(value[path[0]], path[1:], by)
    return made


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """A real frame with one odd value in it, or cut off."""
    frame = draw(st.sampled_from(SAID))
    odd = replaced(frame, draw(st.sampled_from(list(places(frame)))), draw(ODD))
    text = json.dumps(odd).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


FRAMES = st.one_of(
    nearly_right(),
    ANY_JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    st.sampled_from(
        [
            b"",
            b"[" * 50_000,
            b'{"a":' * 20_000,
            b'{"type": "agent_hello"}',
            b"\x00" * 1000,
            b"9" * 90_000,
            b'"' + b"x" * 90_000 + b'"',
        ]
    ),
    st.sampled_from([b" " * (FRAME + 1), b"{" + b" " * 3 * FRAME]),
)


class Complaints(logging.Handler):
    """What the service says went wrong on its own side."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.getMessage()} {record.exc_info}")


@pytest.fixture(scope="module")
def complaints() -> Iterator[list[str]]:
    handler = Complaints()
    for name in ("gpushare.scheduler", "tornado"):
        logging.getLogger(name).addHandler(handler)
    yield handler.said
    for name in ("gpushare.scheduler", "tornado"):
        logging.getLogger(name).removeHandler(handler)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, complaints: list[str], module_db_url: str | None
) -> Iterator[ServerThread]:
    with server_in_thread(
        tmp_path_factory.mktemp("sockets"), limits=LIMITS, db_url=module_db_url
    ) as made:
        body = m.WorkloadRequest(id="kept", project="vision", pods=[m.PodRequest(gpu=0.5)])
        made.run(made.running.admin.submit(body))
        yield made


def say(
    server: ServerThread, socket_path: str, frames: list[bytes], *, text: bool, hello: bool
) -> None:
    """Says all of it, as long as it is listened to, and reads what is answered while there is
    something.
    """
    url = f"ws{server.url[4:]}/api/v1/{socket_path}"
    wire = websocket.create_connection(
        url,
        timeout=60,
        header={"Authorization": f"Bearer {server.admin_token}"},
        suppress_origin=True,
    )
    try:
        if hello:
            wire.send(m.encode(HELLO))
            wire.recv()
        for frame in frames:
            wire.send(
                frame,
                websocket.ABNF.OPCODE_TEXT
                if text and _is_text(frame)
                else websocket.ABNF.OPCODE_BINARY,
            )
        wire.ping(
            "still there?"
        )  # its answer, or the end of the link, comes after everything was heard
        while wire.recv_data(control_frame=True)[0] not in (
            websocket.ABNF.OPCODE_PONG,
            websocket.ABNF.OPCODE_CLOSE,
        ):
            pass
    except (websocket.WebSocketException, ConnectionError):
        pass  # cut off: that is its right
    finally:
        wire.shutdown()


def _is_text(frame: bytes) -> bool:
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def unharmed(server: ServerThread) -> bool:
    """It answers and decides, its real agent is linked, and what was granted before is in force."""
    view = server.run(server.running.admin.workload("kept"))
    return (
        "n0" in server.run(server.running.admin.status()).agents and view.pods[0].lease is not None
    )


@pytest.mark.parametrize("hello", [False, True], ids=["first frame", "after a hello"])
@BOUNDED
@given(frames=st.lists(FRAMES, min_size=1, max_size=6), text=st.booleans())
def test_anything_an_agent_may_say(
    server: ServerThread, hello: bool, frames: list[bytes], text: bool
):
    say(server, "agent", frames, text=text, hello=hello)
    assert unharmed(server)


@BOUNDED
@given(frames=st.lists(FRAMES, min_size=1, max_size=6), text=st.booleans())
def test_anything_a_listener_may_say(server: ServerThread, frames: list[bytes], text: bool):
    say(server, "stream", frames, text=text, hello=False)
    assert unharmed(server)


def test_what_is_nested_too_deeply_is_a_mistake_of_the_sender():
    for text in (b"[" * 50_000, b'{"a":' * 50_000, b'{"type":"usage","x":' + b"[" * 50_000):
        with pytest.raises(InvalidInput):
            m.decode(m.FromAgent, text)


def test_a_workload_is_granted_after_all_that(server: ServerThread, complaints: list[str]):
    """And nothing of it was a surprise."""
    asked = m.WorkloadRequest(
        id="after", project="vision", pods=[m.PodRequest(gpu=0.25, nodes=["n0"])]
    )
    server.run(server.running.admin.submit(asked))
    for _ in range(200):
        if server.run(server.running.admin.workload("after")).state == "running":
            assert complaints == []
            return
    raise AssertionError(server.run(server.running.admin.workload("after")))
