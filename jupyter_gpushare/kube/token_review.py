"""Authenticates agents by their projected service-account tokens: the API server names the node.

https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from jupyter_gpushare.core.model.errors import NotAllowed, Unavailable
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.auth.rate_limits import TokenBucket

from . import names
from .api_client import ApiError

__all__ = ["ServiceAccountTokens", "TokenReviewer"]

log = logging.getLogger("gpushare.kubernetes")

NODE_NAME: Final = "authentication.kubernetes.io/node-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
BAD_S: Final = 5.0
"""How long a refused token is remembered."""
GOOD_S: Final = 60.0
"""The same for a valid token that does not say when it expires."""
LONGEST_S: Final = 3600.0
MOST_KNOWN: Final = 10_000
REVIEWS_PER_S: Final = 50.0
REVIEW_BURST: Final = 1000
"""Bounds the load on the API server from invented tokens; all agents may start together."""


class TokenReviewer(Protocol):
    """Asks the API server."""

    async def create_review(self, body: dict[str, Any]) -> Any:
        """The answered TokenReview. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    until: float
    result: Identity | NotAllowed | None


class ServiceAccountTokens:
    """Tokens of one service account. Remembers hashes, never tokens.

    A valid token is remembered until it expires, so that agents can reconnect while the API server
    is away; it ends earlier with its pod (`forget`).
    """

    def __init__(
        self, api: TokenReviewer, account: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`account`: its user name. `clock` returns seconds since the epoch."""
        self._api, self._account, self._clock = api, account, clock
        self._known: OrderedDict[str, _Reviewed] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        """Pods that were deleted: the API server accepts their tokens some seconds longer."""
        self._asking: dict[str, asyncio.Task[_Reviewed]] = {}
        self._bucket = TokenBucket(REVIEWS_PER_S, REVIEW_BURST, clock())
        self.problem = ""
        """Why tokens cannot be reviewed; "": they can."""

    async def identity(self, secret: str) -> Identity | None:
        """None: not a token for this audience, or not valid.

        Raises:
            NotAllowed: valid, but not of an agent.
            Unavailable: the API server does not answer.
        """
        claims = _claims(secret)
        if claims is None or names.AUDIENCE not in _audiences(claims):
            return None
        key = hashlib.sha256(secret.encode()).hexdigest()
        known = self._known.get(key)
        if known is None or self._clock() >= known.until:
            known = await self._review_once(key, secret, claims)
        if isinstance(known.result, NotAllowed):
            raise known.result
        if known.result is not None and known.result.bound_to in self._gone:
            return None
        return known.result

    def forget(self, pods: Collection[str]) -> None:
        """Refuses the tokens of these pods (uids), which no longer exist."""
        for uid in pods:
            self._gone[uid] = None
        while len(self._gone) > MOST_KNOWN:
            self._gone.popitem(last=False)

    async def _review_once(self, key: str, secret: str, claims: dict[str, Any]) -> _Reviewed:
        """Concurrent calls with one token share one request."""
        task = self._asking.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._review(key, secret, claims))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _review(self, key: str, secret: str, claims: dict[str, Any]) -> _Reviewed:
        if self._bucket.take(self._clock()):
            raise Unavailable("too many unknown tokens; try again in a moment")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": secret, "audiences": [names.AUDIENCE]},
        }
        try:
            answer = await self._api.create_review(body)
        except ApiError as error:
            raise self._unavailable(error) from None
        self.problem = ""
        result = self._read(answer)
        is_good = isinstance(result, Identity)
        reviewed = _Reviewed(self._clock() + (self._lifetime(claims) if is_good else BAD_S), result)
        self._known[key] = reviewed
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return reviewed

    def _lifetime(self, claims: dict[str, Any]) -> float:
        """Seconds until the token expires; the API server has just verified what it says."""
        expires = claims.get("exp")
        if not isinstance(expires, (int, float)):
            return GOOD_S
        return min(max(0.0, expires - self._clock()), LONGEST_S)

    def _unavailable(self, error: ApiError) -> Unavailable:
        if error.status == 403:
            problem = (
                'no permission: verb "create", resource "tokenreviews.authentication.k8s.io"'
                " of the cluster"
            )
        else:
            problem = f"tokens of agents cannot be reviewed: {error.message}"
        if problem != self.problem:
            log.error("Kubernetes: %s", problem)
        self.problem = problem
        return Unavailable(problem)

    def _read(self, answer: Any) -> Identity | NotAllowed | None:
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict) or status.get("authenticated") is not True:
            return None
        if names.AUDIENCE not in (status.get("audiences") or ()):
            return None  # the server does not know audiences: the token may be meant for others
        user = status.get("user")
        user = user if isinstance(user, dict) else {}
        if user.get("username") != self._account:
            return NotAllowed(f"{user.get('username')} is not the service account of the agents")
        node, pod = _extra(user, NODE_NAME), _extra(user, POD_UID)
        if not node or not pod:
            return NotAllowed(
                "the token does not name its node: Kubernetes 1.32 and a projected token are needed"
            )
        return Identity(node, (), "agent", source="kubernetes", bound_to=pod)


def _extra(user: dict[str, Any], key: str) -> str:
    extra = user.get("extra")
    values = extra.get(key) if isinstance(extra, dict) else None
    if isinstance(values, list) and len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return ""


def _claims(secret: str) -> dict[str, Any] | None:
    """The unverified claims of a JSON Web Token; None: it is none."""
    parts = secret.split(".")
    if len(parts) != 3 or not secret.isascii():
        return None
    text = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(text))
    except ValueError:
        return None
    return claims if isinstance(claims, dict) else None


def _audiences(claims: dict[str, Any]) -> list[Any]:
    stated = claims.get("aud")
    return stated if isinstance(stated, list) else [stated]
