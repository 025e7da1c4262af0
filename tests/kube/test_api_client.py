"""Requests over HTTP, with a server that answers as its script says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.kube.api_client import ApiError, ClusterApi, Resource
from jupyter_gpushare.kube.objects import key_of
from jupyter_gpushare.kube.reflector import Reflector

from .api_objects import node

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def listed(*raw: dict[str, Any], version: str = "1") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert "watch" not in request.query
        return web.json_response({"items": list(raw), "metadata": {"resourceVersion": version}})

    return answer


def refused(status: int, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": status, "message": f"refused with {status}"}
        return web.json_response(body, status=status, headers=headers)

    return answer


def watched(
    *chunks: bytes, since: str | None = None, then: str = "end", seen: asyncio.Event | None = None
) -> Answer:
    """A watch that sends these bytes, and then ends, breaks or falls silent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "true"
        assert request.query["allowWatchBookmarks"] == "true"
        if since is not None:
            assert request.query["resourceVersion"] == since
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if seen is not None:
            seen.set()
        if then == "break":
            assert request.transport is not None
            request.transport.abort()
        if then == "silence":
            await asyncio.sleep(3600)
        return response

    return answer


def event(kind: str, raw: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


@asynccontextmanager
async def scripted(
    folder: Path, script: Sequence[Answer], **options: Any
) -> AsyncIterator[tuple[ClusterApi, list[str]]]:
    """The client of a server, and the Authorization headers that it has seen."""
    answers, seen = list(script), []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    api = ClusterApi(kubeconfig=str(kubeconfig(folder, port, "first")), **options)
    await api.open()
    try:
        yield api, seen
    finally:
        await api.close()
        await runner.cleanup()


def kubeconfig(folder: Path, port: int, token: str) -> Path:
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(body))
    return path


@asynccontextmanager
async def reflecting(api: ClusterApi) -> AsyncIterator[dict[str, str]]:
    copy: dict[str, str] = {}

    def put(key: str, version: str | None) -> None:
        if version is None:
            del copy[key]
        else:
            copy[key] = version

    def read(raw: Any) -> str:
        version: str = raw["metadata"]["resourceVersion"]
        return version

    task = asyncio.create_task(Reflector(api, Resource("nodes"), read, put, pause_s=0.01).run())
    try:
        yield copy
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_copy(copy: dict[str, str], expected: dict[str, str]) -> None:
    async with asyncio.timeout(120):
        while copy != expected:
            await asyncio.sleep(0.01)


EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
MARK = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
A1, A2, B3 = node("a", version=1), node("a", version=2), node("b", version=3)
LAST = watched(then="silence")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([listed(A1), watched(event("MODIFIED", A2), since="1"), LAST], {"a": "2"}),
        ([listed(A1), watched(MARK, since="1"), watched(since="9"), LAST], {"a": "1"}),
        ([listed(A1), watched(EXPIRED), listed(B3, version="3"), LAST], {"b": "3"}),
        ([listed(A1), refused(410), listed(B3, version="3"), LAST], {"b": "3"}),
        ([refused(429, **{"Retry-After": "0"}), listed(A1), LAST], {"a": "1"}),
        ([refused(500), refused(503), listed(A1), LAST], {"a": "1"}),
        ([listed(A1), watched(b"<html>\n"), listed(A2, version="2"), LAST], {"a": "2"}),
        ([listed(A1), watched(event("DELETED", A2), then="break"), watched(since="2"), LAST], {}),
        (
            [listed(A1), watched(event("ADDED", B3)[:20], event("ADDED", B3)[20:]), LAST],
            {"a": "1", "b": "3"},
        ),
        (
            [listed(A1), watched(then="silence"), watched(event("ADDED", B3), since="1"), LAST],
            {"a": "1", "b": "3"},
        ),
    ],
    ids=[
        *("event", "bookmark", "410 event", "410", "429", "500", "garbage", "broken", "chunks"),
        "silence",
    ],
)
def test_watches_over_http(tmp_path: Path, script: list[Answer], expected: dict[str, str]) -> None:
    async def run() -> None:
        async with scripted(tmp_path, script, silence_s=0.5) as (api, _), reflecting(api) as copy:
            await until_copy(copy, expected)

    asyncio.run(run())


def test_new_credentials_are_read_after_a_401(tmp_path: Path) -> None:
    async def run() -> None:
        async def expired(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            port = request.transport.get_extra_info("sockname")[1]
            kubeconfig(tmp_path, port, "second")
            return await refused(401)(request)

        script = [expired, listed(A1), LAST]
        async with scripted(tmp_path, script) as (api, seen), reflecting(api) as copy:
            await until_copy(copy, {"a": "1"})
            assert seen[:2] == ["Bearer first", "Bearer second"]

    asyncio.run(run())


def test_an_answer_that_does_not_come_is_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        async def silent(_: web.Request) -> web.StreamResponse:
            await asyncio.sleep(3600)
            raise AssertionError

        async with scripted(tmp_path, [silent], request_s=0.2) as (api, _):
            with pytest.raises(ApiError, match=r"has not responded for 0\.2 s"):
                await api.page(Resource("nodes"), "", 500)

    asyncio.run(run())


def test_pages_are_put_together(tmp_path: Path) -> None:
    async def run() -> None:
        async def first(request: web.Request) -> web.StreamResponse:
            assert request.query["limit"] == "250"
            meta = {"resourceVersion": "5", "continue": "more"}
            return web.json_response({"items": [A1], "metadata": meta})

        async def second(request: web.Request) -> web.StreamResponse:
            assert request.query["continue"] == "more"
            return web.json_response({"items": [B3], "metadata": {"resourceVersion": "5"}})

        script = [first, second, watched(since="5", then="silence")]
        async with scripted(tmp_path, script) as (api, _), reflecting(api) as copy:
            await until_copy(copy, {"a": "1", "b": "3"})

    asyncio.run(run())


@pytest.mark.parametrize("text", ["", "[]", "clusters: 7", "{", "a: b"])
def test_an_unusable_kubeconfig_is_invalid_input(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="the kubeconfig cannot be used"):
        asyncio.run(ClusterApi(kubeconfig=str(path)).open())


def test_keys() -> None:
    assert key_of(A1) == "a"
