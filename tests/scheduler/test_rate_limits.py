"""Rate limits: how a token bucket refills, and how callers over a limit are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.scheduler.auth.rate_limits import (
    RateLimited,
    RateLimits,
    TokenBucket,
    TokenBuckets,
)
from tests.scheduler.agents import node
from tests.scheduler.running_server import RunningServer, asking, open_server

PATIENT = RateLimits(calls_per_s=0.001, calls_at_once=3)
"""Three calls, and then none for as long as a test lasts."""


@given(st.lists(st.floats(0, 10), max_size=50), st.integers(1, 10), st.floats(0.1, 100))
def test_never_more_than_the_size_and_the_rate_allow(pauses: list[float], size: int, rate: float):
    bucket, now, taken = TokenBucket(rate, size, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.take(now)
        taken += wait == 0
        assert taken <= size + rate * now + 1e-6
        assert wait <= 1 / rate + 1e-9


def test_a_caller_that_waits_as_long_as_asked_is_served():
    bucket = TokenBucket(2.0, 1, 0.0)
    assert bucket.take(0.0) == 0
    wait = bucket.take(0.1)
    assert wait == pytest.approx(0.4)
    assert bucket.take(0.1 + wait) == 0


def test_a_rate_of_nothing_is_no_limit():
    bucket = TokenBucket(0, 1, 0.0)
    assert not any(bucket.take(0.0) for _ in range(1000))


def test_each_caller_has_a_bucket_and_those_who_were_here_last_are_remembered():
    buckets = TokenBuckets(1.0, 1, clock=lambda: 0.0, most=2)
    for caller in "ab":
        buckets.take(caller)
        with pytest.raises(RateLimited) as refused:
            buckets.take(caller)
        assert refused.value.after == 1
    buckets.take("c")  # `a` is forgotten and begins anew
    buckets.take("a")


async def status(
    running: RunningServer, token: str | None, path: str = "/api/v1/status"
) -> tuple[int, str | None, dict]:
    answer = await running.raw("GET", path, None, token)
    return (
        answer.code,
        answer.headers.get("Retry-After"),
        json.loads(answer.body) if answer.body[:1] == b"{" else {},
    )


def test_a_caller_who_is_too_fast_gets_a_retry_time_and_nobody_else_does(tmp_path: Path):
    async def story():
        async with open_server(tmp_path, limits=PATIENT) as running:
            alice, bob = running.token("alice"), running.token("bob")
            assert [(await status(running, alice))[0] for _ in range(3)] == [200, 200, 200]
            code, after, body = await status(running, alice)
            assert (code, body["error"]["code"]) == (429, "too-many-requests")
            assert after is not None
            assert int(after) >= 1
            assert (await status(running, running.token("alice")))[
                0
            ] == 429  # another token of the same person is the same caller
            assert (await status(running, bob))[0] == 200
            assert [(await status(running, None))[0] for _ in range(4)] == [401, 401, 401, 429]
            assert [(await status(running, None, "/healthz"))[0] for _ in range(5)] == [200] * 5

    asyncio.run(story())


def test_our_client_waits_as_long_as_asked(tmp_path: Path):
    async def story():
        async with open_server(
            tmp_path, limits=RateLimits(calls_per_s=20, calls_at_once=1)
        ) as running:
            alice = running.of("alice")
            assert [(await alice.status()).user for _ in range(3)] == ["alice"] * 3

    asyncio.run(story())


def test_our_client_gives_up_in_time(tmp_path: Path):
    async def story():
        async with open_server(tmp_path, limits=PATIENT) as running:
            alice = SchedulerClient(HttpTransport(running.url, running.token("alice"), call_s=2))
            for _ in range(3):
                await alice.status()
            with pytest.raises(GpuShareError) as refused:
                await alice.status()
            assert refused.value.status_hint == 429

    asyncio.run(story())


def test_a_body_has_the_size_that_was_configured(tmp_path: Path):
    async def story():
        async with open_server(tmp_path, limits=RateLimits(body_bytes=2000)) as running:
            for padding, code in ((0, 200), (2000, 413)):
                body = m.encode(asking("a")) + b" " * padding
                assert (
                    await running.raw("POST", "/api/v1/workloads", body, running.token("alice"))
                ).code == code

    asyncio.run(story())


@asynccontextmanager
async def speaking(
    running: RunningServer, name: str = "n0"
) -> AsyncIterator[WebSocketClientConnection]:
    request = HTTPRequest(
        f"ws{running.url[4:]}/api/v1/agent",
        headers={"Authorization": f"Bearer {running.token('*', 'agent')}"},
    )
    wire = await websocket_connect(request)
    await wire.write_message(m.encode(m.AgentHello(version="1", node=node(name))))
    assert await wire.read_message() is not None
    try:
        yield wire
    finally:
        wire.close()


async def ended(wire: WebSocketClientConnection) -> int | None:
    while await wire.read_message() is not None:
        pass
    return wire.close_code


def test_a_link_that_says_too_much_is_ended_and_the_service_is_not(tmp_path: Path):
    async def story():
        async with open_server(
            tmp_path, limits=RateLimits(frames_per_s=0.001, frames_at_once=10)
        ) as running:
            async with speaking(running) as wire:
                for _ in range(10):
                    await wire.write_message(m.encode(m.UsageReport(since_ms=1, rows=[])))
                assert await ended(wire) == 1008
            async with speaking(running):
                assert (await running.admin.status()).agents == ["n0"]

    asyncio.run(story())


def test_a_caller_has_so_many_links_and_may_close_some(tmp_path: Path):
    async def story():
        async with open_server(tmp_path, limits=RateLimits(links=2)) as running:
            for _ in range(3):
                async with speaking(running), speaking(running, "n1"):
                    with pytest.raises(HTTPClientError) as refused:
                        async with speaking(running, "n2"):
                            pass
                    assert refused.value.code == 429
                    assert (await status(running, running.token("n0")))[0] == 200
                    frames = running.of("alice").changes()
                    assert isinstance(await anext(frames), m.SchedulerState)
                    await frames.aclose()
                async with asyncio.timeout(60):
                    while (await running.admin.status()).agents:
                        await asyncio.sleep(0.02)

    asyncio.run(story())


def test_a_frame_has_the_size_that_was_configured(tmp_path: Path):
    async def story():
        async with open_server(tmp_path, limits=RateLimits(frame_bytes=4000)) as running:
            async with speaking(running) as wire:
                await wire.write_message(b" " * 5000)
                assert await ended(wire) in (
                    1009,
                    1006,
                    None,
                )  # too big to be read: tornado cuts it off
            assert (await running.admin.status()).version

    asyncio.run(story())
