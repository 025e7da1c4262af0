"""One machine for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.machine import Machine, running_machine


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with running_machine() as made:
        yield made
