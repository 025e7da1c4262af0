"""Servers for the stories."""

from __future__ import annotations

import sys

import pytest

from tests.story.jupyter_process import Server


@pytest.fixture
def start_server(tmp_path_factory):
    """Starts servers; they stop with the test, and print their logs when it failed."""
    made = []

    def make(**options) -> Server:
        server = Server(tmp_path_factory.mktemp("w"), **options)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.stop()
        sys.stdout.write(server.logs())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One embedded server for tests that clean up."""
    server = Server(tmp_path_factory.mktemp("w"))
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


@pytest.fixture
def notebook(server):
    """Notebooks on that server, shut down with the test, which must leave nothing."""
    made = []

    def make(spec: str, path: str | None = None):
        made.append(server.notebook(spec, path or f"{spec}{len(made)}.ipynb"))
        return made[-1]

    yield make
    for one in made:
        one.shut_down()
    server.nothing_is_left()
