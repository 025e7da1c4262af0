"""The site builds without a warning, and everything that is public is on it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.code_help import ERRORS, NODE_CONDITIONS, REASONS
from jupyter_gpushare.kernel import gpu, simgpu
from jupyter_gpushare.kernel.documentation import DOCUMENTATION, address_of_code
from jupyter_gpushare.routes import JUPYTER_ROUTES, ROUTES
from jupyter_gpushare.scheduler.app import SchedulerApp
from jupyter_gpushare.scheduler.service.metric_table import METRICS
from jupyter_gpushare.server_extension.extension import GpuShareExtension
from jupyter_gpushare.server_extension.provisioner import GpuShareProvisioner

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent
CODES = [*ERRORS, *map(str, REASONS), *map(str, NODE_CONDITIONS)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does."""
    for module in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_click", "sphinx_design"):
        pytest.importorskip(module, reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-n", "-q", "-d", folder / "doctrees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "html"


def page(site: Path, name: str) -> str:
    return html.unescape((site / f"{name}.html").read_text())


def words(site: Path, name: str) -> str:
    """The text of a page, without its markup."""
    return re.sub(r"<[^>]+>", "", page(site, name))


def test_every_function_is_on_it(site: Path) -> None:
    names = {f"jupyter_gpushare.kernel.gpu.{name}" for name in gpu.__all__}
    names |= {f"jupyter_gpushare.kernel.simgpu.{name}" for name in simgpu.__all__}
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n")[1]).decode()
    there = {line.split()[0] for line in inventory.splitlines()}
    assert sorted(names - there) == []


@pytest.mark.parametrize("kind", [GpuShareExtension, GpuShareProvisioner, SchedulerApp])
def test_every_setting_is_on_it(site: Path, kind: type) -> None:
    ours = {
        name
        for base in kind.__mro__
        if base.__module__.startswith("jupyter_gpushare.")
        for name in vars(base)
    }
    names = {f"{kind.__name__}.{name}" for name in kind.class_traits(config=True) if name in ours}
    text = words(site, "reference/settings")
    assert [name for name in sorted(names) if name not in text] == []
    assert len(names) >= 8


def test_every_setting_of_the_front_end_is_on_it(site: Path) -> None:
    schema = json.loads((ROOT / "labextension/schema/plugin.json").read_text())
    text = words(site, "reference/settings")
    assert [name for name in schema["properties"] if name not in text] == []


def test_every_route_is_on_it(site: Path) -> None:
    overview, details = words(site, "reference/rest"), words(site, "reference/rest-bodies")
    routes = [f"{route.verb} {route.path}" for route in (*JUPYTER_ROUTES, *ROUTES)]
    assert [route for route in routes if route not in overview] == []
    assert [f"{one.verb} {one.path}" for one in ROUTES if one.path not in details] == []


def test_every_metric_is_on_it(site: Path) -> None:
    text = words(site, "reference/metrics")
    assert [row.series for row in METRICS if row.series not in text] == []


def test_every_option_of_every_command_is_on_it(site: Path) -> None:
    text = words(site, "reference/commands")
    printed = (ROOT / "docs/reference/commands.md").read_text()
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", printed, re.MULTILINE)) - {"--help"}
    assert len(options) > 50
    assert [option for option in sorted(options) if option not in text] == []


@pytest.mark.parametrize("code", CODES)
def test_the_address_of_a_code_leads_to_its_heading(site: Path, code: str) -> None:
    path, _, anchor = address_of_code(code).removeprefix(f"{DOCUMENTATION}/").partition("#")
    text = (site / path).read_text()
    heading = re.search(rf'<section id="{anchor}">.*?<h3>(.*?)<a ', text, re.DOTALL)
    assert heading is not None
    assert heading[1] == code
