"""Base class of the REST handlers: access to the services, JSON answers, error bodies."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, cast

from jupyter_server.base.handlers import APIHandler
from tornado import web

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.kernel.documentation import help_link
from jupyter_gpushare.messages import ErrorBody, ErrorDetail, encode, error_detail

from ..clients.gateway_relay import API
from ..services.gateway_names import with_names
from ..services.service import SETTING, GpuShareService

__all__ = ["AUTH_RESOURCE", "GpuShareAPIHandler", "with_error_body"]

AUTH_RESOURCE: Final = "gpushare"
"""Resource name for Jupyter's authorizer."""

RELAYED_HEADERS: Final = ("Link", "Retry-After")
LOGGED_OUT: Final = "logged-out"
"""Code of the error for a caller whom Jupyter does not know, for example a page that was opened
before a restart with a new token (labextension/src/apiClient.ts).
"""
Verb = Callable[..., Awaitable[None]]


def with_error_body(verb: Verb) -> Verb:
    """Turns a `GpuShareError` of a handler method into its status and an error body. If the kernels
    run on a gateway that has our extension, it answers in place of the method.
    """

    @functools.wraps(verb)
    async def call(self: GpuShareAPIHandler, *args: str, **kwargs: str) -> None:
        try:
            if not (self.is_relayed and await self.relay()):
                await verb(self, *args, **kwargs)
        except GpuShareError as error:
            self.send_error_body(error.status_hint, error_detail(error))

    return call


class GpuShareAPIHandler(APIHandler):
    """Jupyter's own authentication, authorizer and XSRF checks apply."""

    auth_resource = AUTH_RESOURCE
    is_relayed = True

    async def relay(self) -> bool:
        """Answer as the gateway's server does, if there is one with our extension."""
        relay = self.service.relay
        if relay is None:
            return False
        request = self.request
        path = request.path.partition(f"/{API}/")[2]
        response = await relay.fetch(request.method or "GET", path, request.query, request.body)
        if response is None:
            return False
        self.set_status(response.code)
        for name in RELAYED_HEADERS:
            if name in response.headers:
                self.set_header(name, response.headers[name])
        content_type = response.headers.get("Content-Type", "application/json")
        is_json = content_type.startswith("application/json")
        names = self.service.kernels.names() if is_json else {}
        self.finish(with_names(response.body, names), set_content_type=content_type)
        return True

    @property
    def service(self) -> GpuShareService:
        """The services of this server."""
        return cast(GpuShareService, self.settings[SETTING])

    def send_json(self, body: Any) -> None:
        """Finish the request with this body."""
        self.set_header("Content-Type", "application/json")
        self.finish(encode(body))

    def send_error_body(self, status: int, detail: ErrorDetail) -> None:
        """Finish the request with an error, and with the address of its explanation."""
        self.set_status(status)
        is_jupyters = detail.code == LOGGED_OUT
        self.set_header("Link", help_link(f"http-{status}" if is_jupyters else detail.code))
        self.send_json(ErrorBody(error=detail))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors of Jupyter and tornado, with our error body."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        message = None
        if isinstance(error, web.HTTPError):
            message = error.log_message or error.reason
        message = message or HTTPStatus(status_code).phrase
        is_unknown = status_code in (401, 403) and not self.current_user
        code = LOGGED_OUT if is_unknown else f"http-{status_code}"
        detail = ErrorDetail(code=code, message=message)
        self.send_error_body(status_code, detail)
