"""Wheel and sdist: complete, accepted by the tools of PyPI, and the same from every build."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.distribution.builds import ROOT, Built, copy_of_the_tree, digest, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    source = copy_of_the_tree(tmp_path_factory.mktemp("source"))
    return Built.of(source, tmp_path_factory.mktemp("dist"))


def test_pypi_accepts_both(built: Built):
    said = run(sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.sdist)
    assert said.count("PASSED") == 2


def test_the_wheel_has_nothing_twice_and_nothing_astray(built: Built):
    said = run(sys.executable, "-m", "check_wheel_contents", built.wheel, cwd=ROOT)
    assert said.strip().endswith("OK")


def test_the_wheel_brings_what_jupyter_looks_for(built: Built):
    names = zipfile.ZipFile(built.wheel).namelist()
    data = [name.partition(".data/data/")[2] for name in names if ".data/data/" in name]
    assert "etc/jupyter/jupyter_server_config.d/jupyter_gpushare.json" in data
    extension = "share/jupyter/labextensions/jupyter-gpushare"
    assert {f"{extension}/package.json", f"{extension}/install.json"} <= set(data)
    assert any(name.startswith(f"{extension}/static/remoteEntry.") for name in data)
    assert any(name.endswith("/entry_points.txt") for name in names)
    for package in ("jupyter_gpushare", "node_agent"):
        tracked = run("git", "ls-files", f"{package}/*.py", cwd=ROOT).splitlines()
        assert [name for name in tracked if (ROOT / name).exists() and name not in names] == []


def test_an_sdist_has_the_built_extension_and_no_foreign_files(built: Built):
    with tarfile.open(built.sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert "jupyter_gpushare/labextension/package.json" in names
    assert [name for name in names if "node_modules" in name or name.startswith(".ci")] == []


def test_a_second_build_elsewhere_is_the_same(built: Built, tmp_path: Path):
    """In another folder, with other times and modes of the files and in another time zone."""
    source = copy_of_the_tree(tmp_path / "elsewhere")
    for file in source.rglob("*"):
        if file.is_file():
            os.utime(file, (1e9, 1e9))
            file.chmod(file.stat().st_mode & 0o700)
    again = Built.of(source, tmp_path / "dist", TZ="Asia/Tokyo")
    assert (digest(again.wheel), digest(again.sdist)) == (digest(built.wheel), digest(built.sdist))


def test_the_wheel_built_from_the_sdist_is_the_same(built: Built, tmp_path: Path):
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = Built.of(source, tmp_path / "dist", "--wheel")
    assert digest(again.wheel) == digest(built.wheel)


def test_the_bill_of_materials_is_valid_and_complete(built: Built, tmp_path: Path):
    """SPDX's own library validates it; the same wheel gives the same document."""
    script = ROOT / "docs/packaging/sbom.py"
    for name in ("one.spdx.json", "two.spdx.json"):
        run(sys.executable, script, built.wheel, tmp_path / name)
    first, second = (tmp_path / name for name in ("one.spdx.json", "two.spdx.json"))
    assert first.read_bytes() == second.read_bytes()
    made = json.loads(first.read_text())
    named = {one["name"] for one in made["packages"]}
    assert {"jupyter-gpushare", "uplot", "tornado", "numpy", "jupyterlab"} <= named
    assert not {"pytest", "ruff"} & named
    (own,) = (one for one in made["packages"] if one["name"] == "jupyter-gpushare")
    assert own["checksums"][0]["checksumValue"] == digest(built.wheel)
    kinds = {one["relationshipType"] for one in made["relationships"]}
    assert kinds == {"DESCRIBES", "CONTAINS", "DEPENDS_ON", "OPTIONAL_DEPENDENCY_OF"}
