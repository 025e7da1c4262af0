"""The extension in a real browser, with a scripted server."""

from __future__ import annotations

import pytest

from tests.ui.lab import run_script, scripted

SCRIPTS = {
    "sidebar.mjs": "sidebar: every state and action",
    "notebook.mjs": "notebook: control, notices, saved share, died kernel",
    "settings.mjs": "settings: default share, kinds of notifications",
    "layout_shift.mjs": "nothing shifts in the sidebar",
    "launcher.mjs": "launcher, dialog and status bar",
    "notebook7.mjs": "Notebook 7",
    "many_kernels.mjs": "500 kernels",
    "killed_cells.mjs": "cells of a killed kernel do not stay busy",
    "dashboard_states.mjs": "dashboard: unhealthy, shared, empty, large and unavailable clusters",
    "tables_fit.mjs": "dashboard: tables fit into narrow windows",
    "people.mjs": "dashboard: sixty people of a course, and their manager",
    "bookings.mjs": "dashboard: a calendar of bookings, by mouse and keyboard",
    "accessibility.mjs": "accessibility in every theme",
    "translation.mjs": "every text is translatable",
}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS, ids=SCRIPTS.values())
def test_in_the_browser(script: str) -> None:
    """The script asserts what the page shows and sends, and that it logs no errors."""
    with scripted() as url:
        run_script(script, url)
