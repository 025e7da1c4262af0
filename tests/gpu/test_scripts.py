"""The measuring script itself, on a played driver and with tiny sizes: it runs through, and never passes for a measurement."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.fakegpu.world import GIB, MIB, ROOT, GpuWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def measure(world: GpuWorld, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.measure", *options], capture_output=True, text=True, cwd=ROOT, timeout=170, check=False,
        env=os.environ | world.environment(),
    )  # fmt: skip


def test_it_writes_a_page_with_every_section_that_says_it_measured_nothing(tmp_path):
    with GpuWorld(gpus=1, memory=1 * GIB, context=16 * MIB) as world:
        done = measure(world, "--sizes", "0.03125,0.0625,64", "--out", str(tmp_path))
        assert done.returncode == 0, done.stderr
        page = next(tmp_path.glob("gpu-*.md")).read_text()
    assert "these are not measurements" in page
    sections = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [section.split(" ")[0] for section in sections] == ["Suspend", "Host", "Frameworks,", "A", "Locking", "Two"]
    assert "WRONG" not in page
    assert page.count("| right |") >= 4, "both sizes, cold and warm; 64 GiB do not fit and are left out"
    assert re.search(r"restore without room \| .*\(2\)", page), "the driver's own code"
    assert "| A was suspended for it | yes |" in page
    assert "| all values | right |" in page


def test_it_writes_nothing_into_the_docs_on_a_played_driver():
    with GpuWorld(gpus=1, memory=1 * GIB) as world:
        done = measure(world)
    assert done.returncode != 0
    assert "nothing is measured" in done.stderr
