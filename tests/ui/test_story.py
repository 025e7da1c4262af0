"""GPU sharing in a real browser, with the demo: real kernels, simulated GPUs."""

from __future__ import annotations

import pytest

from tests.ui.lab import demo, demo_without_turns, run_script, tutorial


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_notebooks_share_a_gpu_and_a_third_takes_it() -> None:
    """The sidebar shows each step; the moved notebook keeps its data; no kernel dies."""
    with demo() as url:
        run_script("story.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kernel_that_cannot_be_saved_is_warned_killed_and_restarted() -> None:
    """A countdown first; then no cell stays busy, and one notification reports the loss."""
    with demo() as url:
        run_script("kernel_killed.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_actions_of_a_notice_keep_the_running_cell() -> None:
    """Suspend now and resume; request more. The running cell ends with its data."""
    with demo() as url:
        run_script("notice_actions.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_requests_have_an_estimate_and_waiting_has_a_reason() -> None:
    """Launcher, toolbar, dialog with an estimate, reason for waiting, and alternatives."""
    with demo_without_turns() as url:
        run_script("request_and_wait.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(500)
def test_run_all_of_the_tutorial_tells_its_story() -> None:
    """The address of the demo opens it; cells wait for each other, and the sidebar opens."""
    with tutorial() as url:
        run_script("tutorial.mjs", url, limit_s=400)
