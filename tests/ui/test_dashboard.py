"""The dashboard in a real browser, on the running product."""

from __future__ import annotations

import pytest

from tests.ui.lab import demo, play


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_dashboard_shows_who_is_where_who_waits_and_what_was() -> None:
    """By mouse and by keyboard, in three themes and a narrow window; its CSV has the chosen
    columns; hidden it asks nothing.
    """
    with demo() as url:
        play("dashboard.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_panel_of_widgets_is_live_and_never_in_the_way() -> None:
    """Its buttons act, it follows a cell that runs, a click resumes nothing by itself, and while
    nobody looks nothing is sent.
    """
    with demo() as url:
        play("widgets.mjs", url)
