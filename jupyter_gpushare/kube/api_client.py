"""The Kubernetes API as raw JSON: configuration, requests with time-outs, errors.

Models of the client are not used: they validate strictly, so one odd object would fail a whole
list, and they take three times as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["ApiError", "ClusterApi", "Resource", "Watch", "namespace_of_pod"]

log = logging.getLogger("gpushare.kubernetes")

REQUEST_S: Final = 15.0
"""A request whose answer does not begin (or, but for watches, end) within this time has failed."""
SILENCE_S: Final = 90.0
"""A watch without a byte for this time is dead: bookmarks come about once a minute."""
LONGEST_LINE: Final = 16 * 2**20
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MISSING: Final = (
    "no Kubernetes cluster: this is not a pod with a service account, and there is no kubeconfig"
    " (KUBECONFIG, ~/.kube/config)"
)


class ApiError(Exception):
    """A request failed. `status` 0: no answer. `retry_after_s`: what the server asks for."""

    def __init__(self, message: str, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.retry_after_s = message, status, retry_after_s


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects; `namespace` "": of the cluster."""

    plural: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.plural} in namespace {self.namespace}" if self.namespace else self.plural


class Watch:
    """The lines of one watch. `timeout_s`: longest silence."""

    def __init__(self, response: Any, timeout_s: float) -> None:
        self._response, self._timeout_s = response, timeout_s

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Ends when the server ends the watch. Raises ApiError after a silence or a break."""
        rest = b""
        chunks = self._response.content.iter_any().__aiter__()
        while True:
            chunk = await _answered(anext(chunks, b""), self._timeout_s)
            if not chunk:
                return
            *complete, rest = (rest + chunk).split(b"\n")
            for line in complete:
                if line.strip():
                    yield line
            if len(rest) > LONGEST_LINE:
                raise ApiError(f"a watch event is longer than {LONGEST_LINE} bytes")


class ClusterApi:
    """One API server. Credentials are read again when it refuses them (`reload`)."""

    def __init__(
        self,
        *,
        kubeconfig: str = "",
        context: str | None = None,
        silence_s: float = SILENCE_S,
        request_s: float = REQUEST_S,
    ) -> None:
        """`kubeconfig`: paths; "": this pod's service account, else the usual kubeconfig. Times in
        seconds: longest silence of a watch, and longest time until an answer.
        """
        self._kubeconfig, self._context = kubeconfig, context
        self.silence_s, self.request_s = silence_s, request_s
        self._client: Any = None
        self.is_in_cluster = False
        self.requests = 0
        """Requests since the start, for tests and the log."""

    async def open(self) -> None:
        """Reads the service account of this pod, or a kubeconfig. Raises InvalidInput."""
        try:
            from kubernetes.aio import client, config
        except ImportError:
            raise InvalidInput(
                "the Kubernetes client is missing: pip install 'jupyter-gpushare[kubernetes]'"
            ) from None
        # loaded on first use, which takes half a second: now, before the scheduler serves
        _ = client.CoreV1Api, client.AuthenticationV1Api
        settings = client.Configuration()
        self.is_in_cluster = not self._kubeconfig and _is_in_cluster()
        try:
            if self.is_in_cluster:
                load: Any = config.load_incluster_config  # it has no types
                load(client_configuration=settings)
            else:
                load = config.load_kube_config
                file = _kubeconfig(self._kubeconfig)
                await load(file, self._context, settings, persist_config=False)
        except InvalidInput:
            raise
        except Exception as error:  # the file is the administrator's, and YAML
            raise InvalidInput(f"the kubeconfig cannot be used: {error}") from error
        settings.connection_pool_maxsize = 20
        await self.close()
        self._client = client.ApiClient(settings)

    async def close(self) -> None:
        """Closes all connections."""
        old, self._client = self._client, None
        if old is not None:
            await old.close()

    async def reload(self) -> None:
        """Reads the credentials again: the API server refuses the current ones."""
        with contextlib.suppress(InvalidInput):  # the old ones may become valid again
            await self.open()

    # -- requests --

    async def page(self, resource: Resource, continue_: str, limit: int) -> Any:
        """One page of a list. Raises ApiError."""
        more = {"_continue": continue_} if continue_ else {}
        return await self.json(self._list(resource, limit=limit, **more))

    @asynccontextmanager
    async def watch(
        self, resource: Resource, version: str, timeout_s: int
    ) -> AsyncGenerator[Watch, None]:
        """Changes since this version, for `timeout_s`. Raises ApiError."""
        request = self._list(
            resource,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=timeout_s,
        )
        response = await self._send(request)
        try:
            if response.status != 200:
                raise _error(response, await _answered(response.read(), self.request_s))
            yield Watch(response, self.silence_s)
        finally:
            response.close()

    async def create_review(self, body: dict[str, Any]) -> Any:
        """Answers a TokenReview. Raises ApiError."""
        return await self.call("AuthenticationV1Api", "create_token_review", body=body)

    async def call(self, group: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Any other request of the client: class and method without its suffix. Raises ApiError."""
        from kubernetes.aio import client

        api = getattr(client, group)(self._opened())
        request = getattr(api, f"{method}_without_preload_content")
        return await self.json(request(*args, **kwargs))

    def _list(self, resource: Resource, **query: Any) -> Awaitable[Any]:
        from kubernetes.aio.client import CoreV1Api

        api = CoreV1Api(self._opened())
        calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "nodes": api.list_node_without_preload_content,
            "pods": api.list_namespaced_pod_without_preload_content,
        }
        place = (resource.namespace,) if resource.namespace else ()
        return calls[resource.plural](*place, **query)

    def _opened(self) -> Any:
        if self._client is None:  # the client would use a default address
            raise ApiError("the API server is not connected yet")
        return self._client

    async def json(self, request: Awaitable[Any]) -> Any:
        """The body of an answer. Raises ApiError."""
        response = await self._send(request)
        try:
            body = await _answered(response.read(), self.request_s)
        finally:
            response.release()
        if not 200 <= response.status < 300:
            raise _error(response, body)
        try:
            return msgspec.json.decode(body)
        except ValueError:
            raise ApiError("the API server's answer is not JSON") from None

    async def _send(self, request: Awaitable[Any]) -> Any:
        self.requests += 1
        return await _answered(request, self.request_s)


async def _answered(request: Awaitable[Any], timeout_s: float) -> Any:
    """The result. Raises ApiError: too late, or the connection broke."""
    import aiohttp

    try:
        # not wait_for: in Python 3.11 it loses a cancellation that arrives with the result
        async with asyncio.timeout(timeout_s):
            return await request
    except TimeoutError:
        raise ApiError(f"the API server has not responded for {timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ApiError(f"the API server cannot be reached: {error}") from error


def _error(response: Any, body: bytes) -> ApiError:
    try:
        message = str(msgspec.json.decode(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode(errors="replace").strip() or str(response.reason)
    return ApiError(message, response.status, _retry_after(response.headers.get("Retry-After")))


def _retry_after(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _kubeconfig(stated: str) -> str:
    """The paths, those in KUBECONFIG, or the default file. Raises InvalidInput: there is none."""
    stated = stated or os.environ.get("KUBECONFIG", "")
    paths = stated.split(os.pathsep) if stated else [str(Path.home() / ".kube" / "config")]
    if not any(Path(path).is_file() for path in paths if path):
        raise InvalidInput(MISSING)
    return os.pathsep.join(paths)


def _is_in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").is_file()


def namespace_of_pod() -> str:
    """The namespace of this pod; "": this is no pod."""
    try:
        return (ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""
