"""The sidebar in a real browser, against a scripted server."""

from __future__ import annotations

import pytest

from .lab import play, scripted


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_state_and_every_action_of_the_sidebar() -> None:
    """Empty, waiting, bursting, suspended, refused, noticed, stale: each says what is true, and each button asks what it says."""
    with scripted() as url:
        play("states.mjs", url)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kernel_killed_by_a_reclaim_leaves_no_cell_spinning() -> None:
    """Its cells are let go, the notebook goes on with the new process, and no dialog says that it died."""
    with scripted() as url:
        play("relaunch.mjs", url)
