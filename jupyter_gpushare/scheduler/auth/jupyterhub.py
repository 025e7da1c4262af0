"""JupyterHub as an identity provider: its tokens, users, groups, and properties of groups.

Uses the documented REST API only
(https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html): `GET /user` with the caller's
token, and `GET /groups` with the token of this service. A Hub that does not respond makes a call
fail with 503, not with 401.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed, Unavailable

from ..policy.hub_quotas import HubGroup
from .identity import Groups, Identity
from .rate_limits import TokenBucket

__all__ = ["ADMIN_SCOPE", "HubAddress", "JupyterHub", "managed_by_hub"]

log = logging.getLogger("gpushare.scheduler")
CALL_S: Final = 10.0
MOST_KNOWN: Final = 10_000
"""Cached tokens."""
BAD_S: Final = 5.0
"""How long an unknown token is cached."""
REQUESTS_PER_S: Final = 50.0
REQUEST_BURST: Final = 1000
"""Bounds the load on the Hub from invented tokens; a class that starts together fits in a burst."""
PAGE: Final = 200
MOST_GROUPS: Final = 10_000
ADMIN_SCOPE: Final = "custom:gpushare:admin"
"""A scope of the Hub that makes its holder an admin of the scheduler."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """The URL of the Hub's API, and this service's token and name."""

    api_url: str
    api_token: str
    service: str = "gpushare"

    def __post_init__(self) -> None:
        if urlsplit(self.api_url).scheme not in ("http", "https"):
            raise InvalidInput(
                "the URL of JupyterHub's API must begin with http:// or https://,"
                f" got {self.api_url!r}",
                field="hub_api_url",
            )
        if not self.api_token:
            raise InvalidInput(
                "JupyterHub's API needs a token for the scheduler", field="hub_api_token_file"
            )

    def __repr__(self) -> str:
        return f"HubAddress({self.api_url!r}, {self.service!r})"


def managed_by_hub(environ: Mapping[str, str] = os.environ) -> HubAddress | None:
    """The Hub that started this process as a service; None: not started by a Hub."""
    if not environ.get("JUPYTERHUB_SERVICE_NAME") or not environ.get("JUPYTERHUB_API_TOKEN"):
        return None
    return HubAddress(
        environ.get("JUPYTERHUB_API_URL", ""),
        environ["JUPYTERHUB_API_TOKEN"],
        environ["JUPYTERHUB_SERVICE_NAME"],
    )


class JupyterHub:
    """A Hub. `groups_of` returns groups in addition to the Hub's. Times in seconds.

    Tokens are cached for `remember`, so a token that the Hub revokes stays valid for that long.
    Groups are read again every `refresh`.
    """

    def __init__(
        self,
        address: HubAddress,
        *,
        groups_of: Groups = lambda _: (),
        remember: float = 60.0,
        refresh: float = 30.0,
        ca_file: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._other_groups, self._remember, self._refresh, self._ca_file, self._clock = (
            groups_of,
            remember,
            refresh,
            ca_file,
            clock,
        )
        self._known: OrderedDict[str, tuple[float, Identity | NotAllowed | None]] = OrderedDict()
        """Token hash -> (expiry, result)."""
        self._request_bucket = TokenBucket(REQUESTS_PER_S, REQUEST_BURST, clock())
        self._asking: dict[str, asyncio.Task[Identity | NotAllowed | None]] = {}
        self._http: SimpleAsyncHTTPClient | None = None
        self._tasks = BackgroundTasks(log)
        self.groups: list[HubGroup] = []
        self.problem = "the groups of JupyterHub have not been read yet"
        """Why the groups may be outdated; "": they are current."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the groups, their properties or the problem change."""

    # -- tokens --

    async def identity(self, secret: str) -> Identity | None:
        """None: the Hub does not know this token. Raises NotAllowed if its scopes do not permit
        this service, Unavailable if the Hub does not respond.
        """
        key = hashlib.sha256(secret.encode()).hexdigest()
        known = self._known.get(key)
        if known is None or self._clock() >= known[0]:
            found = await self._ask_once(key, secret)
        else:
            found = known[1]
        if isinstance(found, NotAllowed):
            raise found
        return found

    async def _ask_once(self, key: str, secret: str) -> Identity | NotAllowed | None:
        """Concurrent calls with one token share one request."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.get_running_loop().create_task(
                self._ask(key, secret)
            )
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, key: str, secret: str) -> Identity | NotAllowed | None:
        if self._request_bucket.take(self._clock()):
            raise Unavailable(
                "too many unknown tokens: the rate of requests to JupyterHub is limited"
            )
        answer = await self._get("/user", secret)
        found: Identity | NotAllowed | None = None
        if answer.code == 200:
            found = self._read(_json(answer))
        elif answer.code not in (401, 403):
            raise Unavailable(
                f"JupyterHub answered {answer.code} to the request for a token's owner"
            )
        good_for = self._remember if isinstance(found, Identity) else min(BAD_S, self._remember)
        self._known[key] = self._clock() + good_for, found
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return found

    def _read(self, model: Any) -> Identity | NotAllowed:
        """Users of the Hub are persons, and so are its services, under their own name."""
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            raise Unavailable("JupyterHub's answer about a token cannot be read")
        scopes = {scope for scope in model.get("scopes") or () if isinstance(scope, str)}
        wanted = f"access:services!service={self.address.service}"
        if not scopes & {"access:services", wanted}:
            return NotAllowed(
                "this JupyterHub token does not give access to the scheduler:"
                f" the scope {wanted} is missing"
            )
        name = model["name"] if model.get("kind") == "user" else f"service:{model['name']}"
        hubs = [group for group in model.get("groups") or () if isinstance(group, str)]
        groups = tuple(dict.fromkeys((*hubs, *self._other_groups(name))))
        is_admin = model.get("admin") is True or ADMIN_SCOPE in scopes
        return Identity(
            name, groups, "admin" if is_admin else "person", self.groups_of, source="hub"
        )

    # -- groups --

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Groups of a user, as they were last read."""
        hubs = (group.name for group in self.groups if user in group.users)
        return tuple(dict.fromkeys((*hubs, *self._other_groups(user))))

    async def read_groups(self) -> None:
        """Reads all groups. Raises Unavailable; then the groups do not change."""
        found: list[HubGroup] = []
        while len(found) < MOST_GROUPS:
            answer = await self._get(
                f"/groups?offset={len(found)}&limit={PAGE}", self.address.api_token
            )
            if answer.code != 200:
                hint = (
                    ": the scheduler's token needs the scope read:groups"
                    if answer.code in (401, 403)
                    else ""
                )
                raise Unavailable(
                    f"JupyterHub answered {answer.code} to the request for its groups{hint}"
                )
            page = _json(answer)
            if not isinstance(page, list):
                raise Unavailable("JupyterHub's answer about its groups cannot be read")
            found += [_group(one) for one in page if isinstance(one, dict)]
            if len(page) < PAGE:
                break
        if found != self.groups or self.problem:
            self.groups, self.problem = found, ""
            self.changed()

    def start(self) -> None:
        """Starts to refresh the groups, on the running event loop."""
        self._tasks.spawn(self._run(), name="gpushare-hub")

    async def _run(self) -> None:
        while True:
            try:
                await self.read_groups()
            except Unavailable as error:
                if error.message != self.problem:
                    self.problem = error.message
                    log.error("groups of JupyterHub are outdated: %s", error.message)
                    self.changed()
            except Exception:
                log.exception(
                    "the groups of JupyterHub cannot be used; the last ones stay in force"
                )
            await asyncio.sleep(self._refresh)

    async def stop(self) -> None:
        await self._tasks.close()
        for task in list(self._asking.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Unavailable):
                await task
        if self._http is not None:
            self._http.close()

    # -- HTTP --

    async def _get(self, path: str, secret: str) -> HTTPResponse:
        if self._http is None:
            self._http = SimpleAsyncHTTPClient(force_instance=True, max_clients=20)
        request = HTTPRequest(
            self.address.api_url.rstrip("/") + path,
            headers={"Authorization": f"token {secret}"},
            request_timeout=CALL_S,
            connect_timeout=CALL_S,
            follow_redirects=False,
            ca_certs=self._ca_file or None,
        )
        try:
            return await self._http.fetch(request, raise_error=False)
        except (
            HTTPClientError,
            OSError,
            ValueError,
        ) as error:  # ValueError: the token cannot be sent in a header
            if isinstance(error, ValueError) and not isinstance(error, OSError):
                return HTTPResponse(request, 403)
            raise Unavailable(f"JupyterHub cannot be reached: {error}") from error


def _json(answer: HTTPResponse) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise Unavailable("JupyterHub's answer cannot be read") from None


def _group(model: dict[str, Any]) -> HubGroup:
    users = tuple(user for user in model.get("users") or () if isinstance(user, str))
    properties = model.get("properties")
    return HubGroup(
        str(model.get("name")), users, properties if isinstance(properties, dict) else {}
    )
