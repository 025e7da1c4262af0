"""The story of the product in a real browser: JupyterLab, the demo's server, real kernels; only the GPU is simulated."""

from __future__ import annotations

import pytest

from .lab import demo, play


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_notebooks_share_a_gpu_and_a_third_takes_it() -> None:
    """The sidebar shows each step; the moved notebook keeps its data; no dialog says that a kernel died."""
    with demo() as url:
        play("story.mjs", url)
