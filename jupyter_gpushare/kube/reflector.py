"""Keeps a copy of one kind of objects: a list in pages, then a watch that is resumed for ever.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from jupyter_gpushare.aio import Backoff

from .api_client import ApiError, ClusterApi, Resource
from .objects import key_of, version_of

__all__ = ["Reflector"]

log = logging.getLogger("gpushare.kubernetes")

PAGE: Final = 250
WATCH_S: Final = (240, 285)
"""Seconds of a watch, chosen at random: three watches make less than one request a minute."""
SHORT_S: Final = 1.0
"""A watch that ends sooner has failed; otherwise it is resumed at once."""
LONGEST_PAUSE_S: Final = 60.0
AGAIN_S: Final = 10.0
"""An expired version that follows another one within this time waits like other failures."""
EXPIRED: Final = 410
"""Status of a resource version that the API server no longer has."""


T = TypeVar("T")


class Reflector(Generic[T]):
    """`put` is called with each object that was added or changed, and with None when it is gone."""

    def __init__(
        self,
        api: ClusterApi,
        resource: Resource,
        read: Callable[[Any], T | None],
        put: Callable[[str, T | None], None],
        *,
        pause_s: float = 1.0,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`pause_s`: the first pause after a failure; the longest is 10 times that. `clock` returns
        wall-clock ms.
        """
        self.api, self.resource = api, resource
        self._read, self._put, self._clock = read, put, clock
        self._backoff = Backoff(pause_s, 10.0 * pause_s)
        self._version = ""
        """Where the watch continues; "": a list is needed."""
        self._known: dict[str, tuple[str, str]] = {}
        """uid and version of each object."""
        self._gone: dict[str, str] = {}
        """Versions of objects that were deleted since the last list."""
        self._verb = "list"
        self.is_synced = False
        """Whether a list has been complete once."""
        self.problem = ""
        """Why the copy may be outdated; "": it is current."""
        self.is_forbidden = False
        self._heard = self._clock()
        self._expired = float("-inf")
        self.lists = 0
        """Complete lists since the start."""

    @property
    def away_since(self) -> int | None:
        """Since when (ms) the API server has not responded; None: it does."""
        return self._heard if self.problem and not self.is_forbidden else None

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                if not self._version:
                    self._verb = "list"
                    await self._list()
                self._verb = "watch"
                await self._follow()
            except ApiError as error:
                await asyncio.sleep(await self._failed(error))
            except Exception:
                log.exception("%s cannot be read; they are listed again", self.resource)
                self._version = ""
                await self._backoff.sleep()

    # -- failures --

    async def _failed(self, error: ApiError) -> float:
        """Seconds until the next attempt."""
        if error.status == EXPIRED:
            self._version = ""
            log.info("%s are listed again: %s", self.resource, error.message)
            is_first = time.monotonic() - self._expired > AGAIN_S
            self._expired = time.monotonic()
            return 0.0 if is_first else self._backoff.next_s()
        self._set_problem(error)
        if error.status == 401:
            await self.api.reload()
        if error.retry_after_s is not None:
            return min(error.retry_after_s, LONGEST_PAUSE_S)
        return self._backoff.next_s()

    def _set_problem(self, error: ApiError) -> None:
        self.is_forbidden = error.status == 403
        if self.is_forbidden:
            text = f'no permission: verb "{self._verb}", resource "{self.resource.plural}"'
            place = self.resource.namespace
            text += f' in namespace "{place}"' if place else " of the cluster"
        else:
            text = error.message
        if text != self.problem:
            log.error("Kubernetes: %s: %s", self.resource, text)
        self.problem = text

    def _hear(self) -> None:
        self._heard = self._clock()
        if self.problem:
            log.info("Kubernetes: %s are read again", self.resource)
            self.problem, self.is_forbidden = "", False

    # -- list --

    async def _list(self) -> None:
        items, version, next_page = [], "", ""
        while True:
            page = await self.api.page(self.resource, next_page, PAGE)
            meta = page.get("metadata") if isinstance(page, dict) else None
            found = page.get("items") if isinstance(page, dict) else None
            if not isinstance(meta, dict) or not isinstance(found, list):
                raise ApiError("the API server's list cannot be read")
            items += found
            version = str(meta.get("resourceVersion") or "")
            next_page = str(meta.get("continue") or "")
            if not next_page:
                break
        if not version:
            raise ApiError("the API server's list has no resource version")
        self._replace(items)
        self._version, self.is_synced = version, True
        self.lists += 1
        self._hear()

    def _replace(self, items: list[Any]) -> None:
        """Takes a complete list over; what it does not contain is gone."""
        before, self._known = self._known, {}
        self._gone.clear()
        for raw in items:
            self._store(raw)
        for key in before.keys() - self._known.keys():
            self._put(key, None)

    # -- watch --

    async def _follow(self) -> None:
        begun = time.monotonic()
        async with self.api.watch(self.resource, self._version, random.randint(*WATCH_S)) as watch:
            self._hear()
            async for line in watch.lines():
                self._hear()
                self._event(line)
                self._backoff.reset()
        if time.monotonic() - begun < SHORT_S:
            await self._backoff.sleep()

    def _event(self, line: bytes) -> None:
        """One line of a watch. Raises ApiError."""
        try:
            event = msgspec.json.decode(line)
            kind, raw = event["type"], event["object"]
        except (ValueError, KeyError, TypeError):
            raise self._unreadable() from None
        if kind == "ERROR":
            raise _error_of(raw)
        version = version_of(raw)[1]
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not version:
            raise self._unreadable()
        if kind == "DELETED":
            self._remove(raw)
        elif kind != "BOOKMARK":
            self._store(raw)
        self._version = version

    def _unreadable(self) -> ApiError:
        """What it said is lost, so a list is needed."""
        self._version = ""
        return ApiError("an event of the API server cannot be read")

    def _store(self, raw: Any) -> None:
        key, (uid, version) = key_of(raw), version_of(raw)
        if not key or self._is_old(key, version):
            return
        value = self._read(raw)
        if value is None:
            if self._known.pop(key, None) is not None:
                self._put(key, None)
            return
        self._known[key] = uid, version
        self._put(key, value)

    def _remove(self, raw: Any) -> None:
        key, (_, version) = key_of(raw), version_of(raw)
        if not key or self._is_old(key, version):
            return
        self._gone[key] = version
        if self._known.pop(key, None) is not None:
            self._put(key, None)

    def _is_old(self, key: str, version: str) -> bool:
        """Whether a later state of the object is known. Versions that are no numbers are not
        compared.
        """
        known = self._known[key][1] if key in self._known else self._gone.get(key, "")
        if not (known.isdigit() and version.isdigit()):
            return False
        return int(version) < int(known)


def _error_of(raw: Any) -> ApiError:
    """The Status object of an ERROR event."""
    body = raw if isinstance(raw, dict) else {}
    code, details = body.get("code"), body.get("details")
    after = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return ApiError(
        str(body.get("message") or "the API server ended the watch"),
        code if isinstance(code, int) else 500,
        float(after) if isinstance(after, int) else None,
    )
