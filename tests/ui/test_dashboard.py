"""The dashboard and the ipywidgets panel in a real browser, with the demo."""

from __future__ import annotations

import pytest

from tests.ui.lab import demo, run_script


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dashboard_shows_placement_queues_and_history() -> None:
    """By mouse and keyboard, in three themes and a narrow window; hidden, it does not poll."""
    with demo() as url:
        run_script("dashboard.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_charts_pages_of_workloads_and_actions_in_tables() -> None:
    """Charts in the dashboard and as panels, opened or dragged out; hidden, nothing is polled."""
    with demo() as url:
        run_script("charts.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_panels_are_restored_with_the_page() -> None:
    """The dashboard with its view, a chart opened as a panel, and one dragged out."""
    with demo() as url:
        run_script("panels_restored.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ipywidgets_panel_follows_the_kernel() -> None:
    """Its buttons act, it updates while a cell runs, and a hidden panel receives no messages."""
    with demo() as url:
        run_script("widgets.mjs", url)
