"""The wheel alone, in a new virtual environment without Node: base, demo, and gone again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from jupyter_gpushare.scheduler_packages import SCHEDULER_PACKAGES
from tests.distribution.builds import Built, copy_of_the_tree, run, without_node
from tests.story.front_end import Rest, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Fresh:
    """A virtual environment and the wheel to install there."""

    folder: Path
    wheel: Path

    def uv(self, *arguments: object) -> str:
        return run(sys.executable, "-m", "uv", "--quiet", *arguments, env=without_node())

    def install(self, *extras: str) -> None:
        """Skips the test where the packages of others cannot be had."""
        try:
            self.uv("pip", "install", "--python", self.python, *requirements(self.wheel, extras))
        except AssertionError as failed:
            pytest.skip(f"no packages for a new environment: {failed}")
        self.uv("pip", "install", "--python", self.python, "--no-deps", self.wheel)

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def names(self) -> set[str]:
        listed = self.uv("pip", "list", "--python", self.python, "--format", "json")
        return {one["name"] for one in json.loads(listed)}

    def environment(self, home: Path) -> dict[str, str]:
        mine = {"HOME": str(home), "TMPDIR": str(home)}
        path = f"{self.folder / 'bin'}{os.pathsep}{without_node()['PATH']}"
        return without_node() | mine | {"PATH": path}


def requirements(wheel: Path, extras: tuple[str, ...]) -> list[str]:
    """What the wheel requires with these extras, its own name resolved."""
    with ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    found, wanted, seen = [], ["", *extras], set()
    while wanted:
        extra = wanted.pop()
        seen.add(extra)
        for one in map(Requirement, metadata.get_all("Requires-Dist", [])):
            is_ours = one.marker is None or one.marker.evaluate({"extra": extra})
            if is_ours and one.name == "jupyter-gpushare":
                wanted += one.extras - seen
            elif is_ours:
                one.marker = None
                found.append(str(one))
    return sorted(set(found))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    source = copy_of_the_tree(tmp_path_factory.mktemp("source"))
    built = Built.of(source, tmp_path_factory.mktemp("dist"), "--wheel")
    made = Fresh(tmp_path_factory.mktemp("fresh") / "environment", built.wheel)
    made.uv("venv", "--python", sys.executable, made.folder)
    return made


@pytest.fixture
def home() -> Iterator[Path]:
    """pytest's own folders are too long for the path of a unix socket."""
    with tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as short:
        yield Path(short)


def test_the_base_is_light_and_its_extension_loads(fresh: Fresh, home: Path):
    fresh.install()
    heavy = {"ipykernel", "jupyterlab", *SCHEDULER_PACKAGES}
    assert not heavy & fresh.names
    environment = fresh.environment(home)
    listed = run("jupyter", "server", "extension", "list", env=environment)
    assert re.search(r"jupyter_gpushare \S+ .*OK", listed)
    run("jupyter", "gpushare", "agent", "--help", env=environment)
    run(fresh.python, "-c", "import node_agent.app", env=environment)


def test_the_demo_runs_from_the_wheel_alone(fresh: Fresh, home: Path):
    fresh.install("demo")
    command = ["jupyter", "gpushare", "demo", "--no-browser", "--port", "0"]
    with (home / "out").open("wb") as out:
        demo = subprocess.Popen(command, env=fresh.environment(home), stdout=out, stderr=out)
    try:
        rest = opened(home)
        eventually(lambda: rest.status()["scheduler"]["reachable"], "it schedules", 60)
        assert b"jupyter-gpushare" in extension_of_the_page(rest)
        notebook = rest.notebook("python3", "a.ipynb")
        assert "running · SIM-GPU" in notebook.ok("%gpu request 0.5\n%gpu", 60)
        notebook.ws.close()
    finally:
        demo.terminate()
        assert demo.wait(60) == 0


def extension_of_the_page(rest: Rest) -> bytes:
    """The program of our extension that JupyterLab's page loads."""
    page = rest.rest("GET", "lab", raw=True)
    config = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    extensions = json.loads(config[1])["federated_extensions"]
    [ours] = [one for one in extensions if one["name"] == "jupyter-gpushare"]
    return rest.rest("GET", f"lab/extensions/jupyter-gpushare/{ours['load']}", raw=True).encode()


def opened(home: Path) -> Rest:
    url = re.compile(r"http://127\.0\.0\.1:(\d+)/lab\S*\?token=(\w+)")
    found = eventually(lambda: url.search((home / "out").read_text()), "the address is printed", 60)
    return Rest(int(found[1]), found[2])


def test_nothing_is_left_of_it(fresh: Fresh):
    fresh.install()
    fresh.uv("pip", "uninstall", "--python", fresh.python, "jupyter-gpushare")
    left = [
        path
        for path in fresh.folder.rglob("*")
        if path.is_file() and ("gpushare" in str(path.name) or "node_agent" in path.parts)
    ]
    assert left == []
