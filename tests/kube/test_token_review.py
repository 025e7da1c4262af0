"""Service-account tokens: what the API server says about them, and what is remembered."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from jupyter_gpushare.core.model.errors import NotAllowed, Unavailable
from jupyter_gpushare.kube.api_client import ApiError
from jupyter_gpushare.kube.token_review import ServiceAccountTokens

ACCOUNT = "system:serviceaccount:gpushare:gpushare-agent"


def token(audience: Any = ("gpushare",), expires: int = 4600, number: int = 0) -> str:
    """A token as Kubernetes writes it; the signature is not checked here."""
    claims = {"aud": list(audience), "exp": expires, "sub": ACCOUNT, "jti": str(number)}
    parts = [{"alg": "RS256"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*texts, "c2ln"])


class Reviewer:
    """Answers of the API server, one by one; the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), 0

    async def create_review(self, body: dict[str, Any]) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {**body, "status": answer}


def accepted(node: Any = "n0", account: str = ACCOUNT, **more: Any) -> dict[str, Any]:
    extra = {
        "authentication.kubernetes.io/node-name": [node] if node else [],
        "authentication.kubernetes.io/pod-uid": ["pod-1"],
    }
    user = {"username": account, "extra": extra}
    return {"authenticated": True, "user": user, "audiences": ["gpushare"], **more}


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tokens(*answers: Any) -> tuple[ServiceAccountTokens, Reviewer, Time]:
    reviewer, time = Reviewer(*answers), Time()
    return ServiceAccountTokens(reviewer, ACCOUNT, clock=time), reviewer, time


def test_a_token_names_its_node() -> None:
    async def run() -> None:
        known, reviewer, _ = tokens(accepted())
        found = await known.identity(token())
        assert found is not None
        assert (found.user, found.scope, found.source) == ("n0", "agent", "kubernetes")
        assert found.bound_to == "pod-1"
        assert found.may_act_for_node("n0")
        assert not found.may_act_for_node("n1")
        assert reviewer.asked == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "secret", ["gpushare_abc", "a.b.c", "..", token(["vault"]), token([]), "ä.ö.ü", "x" * 5000]
)
def test_other_tokens_are_not_sent_to_kubernetes(secret: str) -> None:
    async def run() -> None:
        known, reviewer, _ = tokens(accepted())
        assert await known.identity(secret) is None
        assert reviewer.asked == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        {"authenticated": False, "error": "expired"},
        {},
        None,
        accepted(audiences=[]),
        accepted(audiences=["kubernetes"]),
        {"authenticated": "yes"},
    ],
)
def test_what_is_not_clearly_accepted_is_refused(answer: Any) -> None:
    async def run() -> None:
        known, _, _ = tokens(answer)
        assert await known.identity(token()) is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (accepted(account="system:serviceaccount:x:y"), "is not the service account"),
        (accepted(node=""), "does not name its node"),
        ({**accepted(), "user": {"username": ACCOUNT}}, "does not name its node"),
        ({**accepted(), "user": None}, "is not the service account"),
    ],
)
def test_accepted_tokens_of_others_are_not_allowed(answer: Any, words: str) -> None:
    async def run() -> None:
        known, _, _ = tokens(answer)
        with pytest.raises(NotAllowed, match=words):
            await known.identity(token())

    asyncio.run(run())


def test_a_good_token_is_remembered_until_it_expires() -> None:
    async def run() -> None:
        known, reviewer, time = tokens(accepted(), {"authenticated": False})
        for _ in range(3):
            assert await known.identity(token()) is not None
        time.now = 4599
        assert await known.identity(token()) is not None
        assert reviewer.asked == 1
        time.now = 4600
        assert await known.identity(token()) is None
        assert reviewer.asked == 2

    asyncio.run(run())


def test_a_good_token_stays_good_while_the_api_server_is_away() -> None:
    async def run() -> None:
        known, _, _ = tokens(accepted(), ApiError("it is away"))
        assert await known.identity(token()) is not None
        with pytest.raises(Unavailable, match="it is away"):
            await known.identity(token(number=1))
        assert "it is away" in known.problem
        assert await known.identity(token()) is not None

    asyncio.run(run())


def test_a_bad_token_is_remembered_for_seconds_only() -> None:
    async def run() -> None:
        known, reviewer, time = tokens({"authenticated": False}, accepted())
        assert await known.identity(token()) is None
        assert await known.identity(token()) is None
        assert reviewer.asked == 1
        time.now += 5
        assert await known.identity(token()) is not None

    asyncio.run(run())


def test_a_token_ends_with_its_pod() -> None:
    async def run() -> None:
        known, reviewer, _ = tokens(accepted())
        assert await known.identity(token()) is not None
        known.forget(["pod-1"])
        assert await known.identity(token()) is None
        assert await known.identity(token(number=1)) is None, "although Kubernetes accepts it still"
        assert reviewer.asked == 2

    asyncio.run(run())


def test_concurrent_calls_share_one_request() -> None:
    async def run() -> None:
        known, reviewer, _ = tokens(accepted())
        found = await asyncio.gather(*(known.identity(token()) for _ in range(10)))
        assert all(one is not None for one in found)
        assert reviewer.asked == 1

    asyncio.run(run())


def test_a_missing_permission_is_named() -> None:
    async def run() -> None:
        known, _, _ = tokens(ApiError("forbidden", 403), accepted())
        with pytest.raises(Unavailable):
            await known.identity(token())
        assert known.problem == (
            'no permission: verb "create", resource "tokenreviews.authentication.k8s.io" of the'
            " cluster"
        )
        assert await known.identity(token()) is not None
        assert known.problem == ""

    asyncio.run(run())


def test_tokens_are_not_kept() -> None:
    async def run() -> None:
        known, _, _ = tokens(accepted())
        secret = token()
        await known.identity(secret)
        assert secret not in repr(vars(known))
        assert secret.split(".")[1] not in repr(vars(known))

    asyncio.run(run())
