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
