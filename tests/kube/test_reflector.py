"""The copy of a reflector equals a fresh list, whatever the API server's answers were like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.kube.api_client import ApiError, ClusterApi, Resource
from jupyter_gpushare.kube.objects import key_of
from jupyter_gpushare.kube.reflector import Reflector
from tests.example_counts import examples

from .api_objects import node

LIST_FAULTS: Final = ("429", "500", "401", "silence", "bad list", "lost page", "")
WATCH_FAULTS: Final = (
    *("429", "500", "401", "410", "late 410", "eof", "silence"),
    *("garbage", "no json", "unknown", "truncated", "twice", "reordered", ""),
)
Change = tuple[str, bool]
"""Name of a node, and whether it is deleted."""


class ScriptedAnswers(ClusterApi):
    """Answers of an API server to lists and watches: what happened up to each request, with one
    fault each; without faults when the script is over.
    """

    def __init__(
        self,
        changes: list[Change],
        per_answer: int = 1,
        list_faults: Sequence[str] = (),
        watch_faults: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.changes, self.per_answer = changes, per_answer
        self.list_faults, self.watch_faults = list(list_faults), list(watch_faults)
        self.happened = 0
        """How many of the changes have happened."""
        self.reloads = self.lists = self.watches = 0
        self.over = asyncio.Event()
        """A watch has delivered everything, and the script is over."""

    def objects(self, until: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for version, (name, is_gone) in enumerate(self.changes[:until], start=1):
            found.pop(name, None)
            if not is_gone:
                found[name] = self.raw(version)
        return found

    def raw(self, version: int) -> dict[str, Any]:
        name, _ = self.changes[version - 1]
        return node(name, labels={"version": str(version)}, version=version)

    def event(self, version: int) -> dict[str, Any]:
        _, is_gone = self.changes[version - 1]
        return {"type": "DELETED" if is_gone else "MODIFIED", "object": self.raw(version)}

    def _go_on(self) -> None:
        self.happened = min(len(self.changes), self.happened + self.per_answer)

    async def reload(self) -> None:
        self.reloads += 1

    async def page(self, resource: Resource, continue_: str, limit: int) -> Any:
        assert str(resource) == "nodes"
        fault = self.list_faults.pop(0) if self.list_faults else ""
        if fault in ("429", "500", "401"):
            raise ApiError("refused", int(fault), 0.0 if fault == "429" else None)
        if fault == "silence":
            raise ApiError("the API server has not responded for 15 s")
        if fault == "bad list":
            return {"items": "none", "metadata": []}
        if fault == "lost page" and continue_:
            raise ApiError("the continue token is too old", 410)
        if not continue_:
            self.lists += 1
            self._go_on()
            self._listed = self.happened
        items = list(self.objects(self._listed).values())
        start = int(continue_ or 0)
        more = {"continue": str(start + 2)} if start + 2 < len(items) else {}
        version = str(self._listed)
        return {"items": items[start : start + 2], "metadata": {"resourceVersion": version, **more}}

    @asynccontextmanager
    async def watch(
        self, resource: Resource, version: str, timeout_s: int
    ) -> AsyncGenerator[Any, None]:
        self.watches += 1
        assert 200 < timeout_s < 300
        fault = self.watch_faults.pop(0) if self.watch_faults else ""
        if fault in ("429", "500", "401", "410"):
            raise ApiError("refused", int(fault), 0.0 if fault == "429" else None)
        self._go_on()
        events = [self.event(v) for v in range(int(version) + 1, self.happened + 1)]
        is_over = not self.watch_faults and not fault and self.happened == len(self.changes)
        yield Lines(events, fault, self.over if is_over else None)


class Lines:
    """The lines of one watch."""

    def __init__(
        self, events: list[dict[str, Any]], fault: str, over: asyncio.Event | None
    ) -> None:
        self.events, self.fault, self.over = events, fault, over

    async def lines(self) -> AsyncGenerator[bytes, None]:
        events = self.events
        if self.fault == "twice":
            events = [event for event in events for _ in range(2)]
        if self.fault == "reordered":
            events = _reordered(events)
        middle = len(events) // 2
        for i, event in enumerate(events):
            if i == middle and self.fault in ("garbage", "no json", "unknown", "truncated"):
                yield _garbage(self.fault, event)
                continue  # what the line should have said is lost
            if i == middle and self.fault == "eof":
                return
            yield json.dumps(event).encode()
        if self.fault == "late 410":
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            yield json.dumps({"type": "ERROR", "object": status}).encode()
        if self.fault == "silence":
            raise ApiError("the API server has not responded for 90 s")
        if self.over is not None:
            mark = {"metadata": {"resourceVersion": str(_last(events)), "uid": ""}}
            if _last(events):
                yield json.dumps({"type": "BOOKMARK", "object": mark}).encode()
            self.over.set()
            await asyncio.Event().wait()


def _last(events: list[dict[str, Any]]) -> int:
    return max((int(event["object"]["metadata"]["resourceVersion"]) for event in events), default=0)


def _reordered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Late duplicates of earlier states, as a cache behind a load balancer might send them."""
    found = []
    for i, event in enumerate(events):
        found.append(event)
        found += reversed(events[max(0, i - 2) : i])
    return [*found, *events[-1:]]


def _garbage(fault: str, event: dict[str, Any]) -> bytes:
    if fault == "truncated":
        return json.dumps(event).encode()[:-20]
    if fault == "unknown":
        return json.dumps({"type": "RENAMED", "object": event["object"]}).encode()
    return b"[]" if fault == "garbage" else b"\x00\xff<html>"


def labels_of(raw: Any) -> str | None:
    version: str | None = raw["metadata"]["labels"]["version"]
    return version


async def read_all(api: ScriptedAnswers) -> tuple[dict[str, str], Reflector[str]]:
    """The copy when the script is over."""
    copy: dict[str, str] = {}

    def put(key: str, value: str | None) -> None:
        if value is None:
            del copy[key]
        else:
            copy[key] = value

    reflector = Reflector(api, Resource("nodes"), labels_of, put, pause_s=0.0001)
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(120):
        await api.over.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return copy, reflector


CHANGES = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), min_size=1, max_size=40)


@settings(max_examples=examples(400), deadline=None)
@given(
    CHANGES,
    st.integers(1, 10),
    st.lists(st.sampled_from(LIST_FAULTS), max_size=6),
    st.lists(st.sampled_from(WATCH_FAULTS), max_size=8),
)
def test_the_copy_equals_a_fresh_list(
    changes: list[Change], per_answer: int, list_faults: list[str], watch_faults: list[str]
) -> None:
    async def run() -> None:
        api = ScriptedAnswers(changes, per_answer, list_faults, watch_faults)
        copy, reflector = await read_all(api)
        fresh = api.objects(len(changes))
        assert copy == {key_of(raw): labels_of(raw) for raw in fresh.values()}
        assert reflector.problem == ""
        assert api.reloads <= (list_faults + watch_faults).count("401")

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_missing_permission_names_verb_and_resource() -> None:
    class Forbidden(ScriptedAnswers):
        async def page(self, resource: Resource, continue_: str, limit: int) -> Any:
            raise ApiError("pods is forbidden", 403)

    async def run() -> None:
        api = Forbidden([("a", False)])
        pods = Resource("pods", "gpushare")
        reflector = Reflector(api, pods, labels_of, lambda _key, _value: None, pause_s=0.001)
        task = asyncio.create_task(reflector.run())
        await until(lambda: reflector.is_forbidden)
        expected = 'no permission: verb "list", resource "pods" in namespace "gpushare"'
        assert reflector.problem == expected
        assert reflector.away_since is None, "the API server answers"
        task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["silence", "500"])
def test_the_copy_stays_while_the_api_server_is_away(fault: str) -> None:
    class Away(ScriptedAnswers):
        is_away = False

        @asynccontextmanager
        async def watch(
            self, resource: Resource, version: str, timeout_s: int
        ) -> AsyncGenerator[Any, None]:
            self.is_away = True
            raise ApiError("it is away", 0 if fault == "silence" else 500)
            yield

    async def run() -> None:
        api, copy = Away([("a", False)]), {}
        reflector = Reflector(
            api, Resource("nodes"), labels_of, copy.__setitem__, pause_s=0.001, clock=lambda: 77
        )
        task = asyncio.create_task(reflector.run())
        await until(lambda: reflector.problem != "")
        assert reflector.away_since == 77
        assert reflector.is_synced
        assert copy == {"a": "1"}
        assert api.lists == 1, "what is known needs no list"
        task.cancel()

    asyncio.run(run())
