"""The same input to the routes of the Jupyter server extension, and calls without a token."""

from __future__ import annotations

import json
import logging

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from tornado.httpclient import HTTPClientError

from jupyter_gpushare.routes import JUPYTER_ROUTES
from tests.security.test_input import BODIES

pytest_plugins = ("pytest_jupyter.jupyter_server",)
pytestmark = pytest.mark.slow

PATHS = [route for route in JUPYTER_ROUTES if route.verb != "WS"]


@pytest.fixture
def jp_server_config(tmp_path):
    KernelProvisionerFactory.clear_instance()
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpushare": True},
            "allow_unauthenticated_access": False,
        },
        "GpuShareExtension": {"state_dir": str(tmp_path / "state")},
    }


def parts(path: str) -> list[str]:
    for name in ("id", "kernel_id", "name", "action"):
        path = path.replace(f"{{{name}}}", "none")
    return path.strip("/").split("/")


async def status(jp_fetch, route, **options) -> tuple[int, bytes]:
    if route.verb in ("POST", "PATCH"):
        options.setdefault("body", b"{}")
    try:
        answer = await jp_fetch(*parts(route.path), method=route.verb, **options)
    except HTTPClientError as error:
        return error.code, error.response.body if error.response is not None else b""
    return answer.code, answer.body


async def test_a_broken_body_is_a_bad_request_on_every_route(jp_fetch, caplog):
    with caplog.at_level(logging.ERROR):
        for route in PATHS:
            if route.verb not in ("POST", "PATCH"):
                continue
            for name, body in BODIES.items():
                code, text = await status(jp_fetch, route, body=body)
                assert code != 500, (route.name, name, text)
                assert code >= 400 or route.body is None, (route.name, name)
                assert "error" in json.loads(text) or code < 400, (route.name, name)
    assert not [record for record in caplog.records if record.exc_info]


async def test_every_route_needs_a_token(jp_fetch):
    for route in PATHS:
        for headers in ({"Authorization": "token wrong"}, {"Authorization": ""}):
            code, text = await status(jp_fetch, route, headers=headers)
            assert code in (401, 403), (route.name, code, text)


async def test_a_web_page_of_another_origin_changes_nothing(jp_fetch):
    """A cookie without the XSRF token, as a form of another site would send it. Jupyter answers 404
    to other origins.
    """
    cookie = {"Cookie": "username-localhost=forged; _xsrf=forged", "Origin": "https://evil.example"}
    for route in PATHS:
        if route.verb != "GET":
            code, text = await status(jp_fetch, route, headers={"Authorization": "", **cookie})
            assert code in (401, 403, 404), (route.name, code, text)
