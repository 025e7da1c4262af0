"""Every code that the code can produce has a cause and a remedy, and no other has."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.code_help import ERRORS, NODE_CONDITIONS, REASONS
from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.reason import ReasonCode
from jupyter_gpushare.kernel.cell_gate import errors as cell_errors
from jupyter_gpushare.kernel.documentation import DOCUMENTATION, address_of_code, anchor_of
from jupyter_gpushare.scheduler.api.router import error_answer
from jupyter_gpushare.scheduler.store.database import StoreUnavailable

ROOT = Path(__file__).parent.parent.parent
SOURCES = [*(ROOT / "jupyter_gpushare").rglob("*.py"), *(ROOT / "node_agent").rglob("*.py")]


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch):
    """The scripts in `docs`."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield import_module
    for name in [name for name in sys.modules if name.startswith("render_")]:
        del sys.modules[name]


def kernel_codes() -> set[str]:
    """The literal codes of `GpuError`."""
    found = {"error"}
    for path in (ROOT / "jupyter_gpushare/kernel").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "GpuError":
                code = [*call.args, ast.Constant("error"), ast.Constant("error")][1]
                choices = [code.body, code.orelse] if isinstance(code, ast.IfExp) else [code]
                found |= {one.value for one in choices if isinstance(one, ast.Constant)}
    return found


def test_errors(render) -> None:
    classes = {one.code for one in render("render_codes").error_classes()}
    known = classes | kernel_codes() | set(cell_errors.__all__) | {"interrupted", "http-status"}
    assert set(ERRORS) == known


def test_reasons_and_conditions() -> None:
    assert set(REASONS) == set(ReasonCode)
    assert set(NODE_CONDITIONS) == set(NodeCondition)


def test_no_two_codes_share_an_anchor() -> None:
    codes = [*ERRORS, *REASONS, *NODE_CONDITIONS]
    assert len({anchor_of(code) for code in codes}) == len(codes)
    assert {anchor_of("http-403"), anchor_of("http-404")} == {anchor_of("http-status")}


def test_an_error_over_http_leads_to_its_explanation() -> None:
    answer = error_answer(StoreUnavailable("disk full"))
    assert answer.headers["Link"] == f'<{address_of_code("store-unavailable")}>; rel="help"'


def test_the_address_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert DOCUMENTATION.startswith(project["urls"]["Documentation"])


def test_texts_are_sentences() -> None:
    every = [*ERRORS.values(), *REASONS.values(), *NODE_CONDITIONS.values()]
    texts = [text for known in every for text in (known.cause, known.remedy)]
    assert [text for text in texts if not text.endswith(".")] == []


def test_variables_of_the_environment(render) -> None:
    """Each variable that the code names is described, and no other."""
    settings = render("render_settings")
    named = {
        name.removeprefix("_JUPYTER_")
        for path in SOURCES
        for name in re.findall(r"GPUSHARE_[A-Z_]*[A-Z]", path.read_text())
    }
    described = {*settings.VARIABLES, *settings.INTERNAL}
    assert described == named
