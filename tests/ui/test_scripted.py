"""The extension in a real browser, against a scripted server: what each script plays is in its
head.
"""

from __future__ import annotations

import pytest

from tests.ui.lab import play, scripted

SCRIPTS = {
    "sidebar.mjs": "every state and every action of the sidebar",
    "notebook.mjs": "the notebook's own control, notice, memory and last words",
    "launcher.mjs": "a notebook with a share from the start, and the status bar",
    "notebook7.mjs": "the same in Notebook 7",
    "many_kernels.mjs": "five hundred kernels",
    "killed_cells.mjs": "a kernel killed by a reclaim leaves no cell spinning",
    "dashboard_states.mjs": "a dashboard of a cluster that is ill, foreign, empty, large or gone",
    "accessibility.mjs": "no serious problem for anybody in any theme",
    "translation.mjs": "in another language nothing of ours stays English",
}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS, ids=SCRIPTS.values())
def test_in_the_browser(script: str) -> None:
    """Each shows what is true, and each button asks what it says; no page complains."""
    with scripted() as url:
        play(script, url)
