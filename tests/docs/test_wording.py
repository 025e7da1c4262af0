"""No file uses a word of `banned_words.txt`."""

from __future__ import annotations

import pytest

from tests.docs.wording import findings, rules


def test_no_banned_word_is_used() -> None:
    assert [str(one) for one in findings([])] == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("the played driver", True),
        ("open_house", True),
        ("a warehouse", False),
        ("a bookstore", False),
        ("The kernel IS TOLD so.", True),
    ],
)
def test_words_are_found_whole_and_in_any_case(text: str, is_found: bool) -> None:
    pattern, _ = rules()
    assert bool(pattern.search(text.replace("_", " "))) is is_found
