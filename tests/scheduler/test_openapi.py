"""What the OpenAPI document promises, tried by schemathesis over HTTP: no answer above 499, none
that the document does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from jupyter_gpushare import __version__
from jupyter_gpushare.routes import openapi
from jupyter_gpushare.scheduler.auth.rate_limits import RateLimits
from tests.example_counts import examples
from tests.scheduler.server_thread import ServerThread, server_in_thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    ignored_auth,
]
UNLIMITED = RateLimits(calls_per_s=0)
SCHEMA = schemathesis.openapi.from_dict(json.loads(json.dumps(openapi(__version__))))
BOUNDED = settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
"""About a minute in all; the examples are the same in every run,
`tests/scheduler/test_arbitrary_input.py` looks further.
"""


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, module_db_url: str | None
) -> Iterator[ServerThread]:
    with server_in_thread(
        tmp_path_factory.mktemp("document"), limits=UNLIMITED, db_url=module_db_url
    ) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def something_to_find(server: ServerThread) -> None:
    """Ids that exist: otherwise every path with one would be a 404."""
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    for id_ in ("0", "a", "w1"):
        body = {"id": id_, "project": "vision", "pods": [{"gpu": 0.1}]}
        assert (
            requests.post(
                f"{server.url}/api/v1/workloads", json=body, headers=headers, timeout=60
            ).status_code
            == 200
        )


@SCHEMA.parametrize()
@BOUNDED
def test_every_answer_is_promised(server: ServerThread, case: schemathesis.Case):
    case.call_and_validate(
        base_url=server.url,
        headers={"Authorization": f"Bearer {server.admin_token}"},
        checks=CHECKS,
        timeout=60,
    )


def test_it_is_alive_after_all_that(server: ServerThread):
    assert server.is_alive()
