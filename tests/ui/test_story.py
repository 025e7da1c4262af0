"""The story of the product in a real browser: JupyterLab, the demo's server, real kernels; only the
GPU is simulated.
"""

from __future__ import annotations

import pytest

from tests.ui.lab import demo, play


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_notebooks_share_a_gpu_and_a_third_takes_it() -> None:
    """The sidebar shows each step; the moved notebook keeps its data; no dialog says that a kernel
    died.
    """
    with demo() as url:
        play("story.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_notebook_that_cannot_be_saved_is_warned_killed_and_goes_on() -> None:
    """A countdown first; then no cell spins, one message says what is lost, and the notebook has a
    share again.
    """
    with demo() as url:
        play("kernel_killed.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_a_notice_offers_does_what_it_says_and_costs_the_running_cell_nothing() -> None:
    """Save and let go, and resume; ask for more. Both while a cell runs, which ends with its data."""
    with demo() as url:
        play("notice_actions.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_share_is_asked_for_with_open_eyes_and_waiting_has_a_reason() -> None:
    """The launcher, the toolbar, the dialog that says what to expect, why it waits, and what starts
    now instead.
    """
    with demo() as url:
        play("request_and_wait.mjs", url)
