"""Errors as bodies: what one side raises is what the other side catches."""

from __future__ import annotations

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import (
    Conflict,
    GpuShareError,
    InvalidInput,
    NotAllowed,
    NotFound,
    Unavailable,
)


@pytest.mark.parametrize("kind", [Conflict, InvalidInput, NotAllowed, NotFound, Unavailable])
@pytest.mark.parametrize("field", [None, "pods[0].gpu"])
def test_an_error_survives_the_way_to_a_peer(kind: type[GpuShareError], field: str | None) -> None:
    sent = kind("0.5 GPU is too much", field=field)
    for received in (
        m.error_of(m.error_detail(sent)),
        m.error_from(sent.status_hint, m.encode(m.ErrorBody(error=m.error_detail(sent)))),
    ):
        assert type(received) is kind
        assert (received.message, received.field) == (sent.message, field)
        assert (received.code, received.status_hint) == (sent.code, sent.status_hint)


def test_an_unknown_code_keeps_its_name_and_gets_the_class_of_its_status() -> None:
    detail = m.ErrorDetail(code="too-warm", message="the machine room is too warm")
    by_status = m.error_of(detail, 409)
    assert (type(by_status), by_status.code, by_status.status_hint) == (Conflict, "too-warm", 409)
    assert (type(m.error_of(detail)), m.error_of(detail).code) == (GpuShareError, "too-warm")


def test_a_body_that_cannot_be_read_is_a_scheduler_that_is_not_available() -> None:
    for body in (b"", b"<html>", b'{"error": 1}', b"\xff\xfe"):
        assert isinstance(m.error_from(502, body), Unavailable)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b'{"preset": "\xff"}',
        b'{"\xff": 1}',
        '{"preset": "\ud800"}',
        b'{"preset": "\\ud800"}',
    ],
    ids=["no JSON", "value", "key", "text with a lone surrogate", "escaped lone surrogate"],
)
def test_a_body_with_invalid_characters_is_bad_input(body: bytes | str) -> None:
    with pytest.raises(InvalidInput):
        m.decode(m.KernelRequest, body)
