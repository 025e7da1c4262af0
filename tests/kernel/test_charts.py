"""A share over time, as block characters."""

from __future__ import annotations

from jupyter_gpushare.kernel.display.charts import COLUMNS, history_text

GIB = 1024


def sample(second, used, *, state="attached", borrowed=0, guaranteed=40 * GIB):
    return {
        "time": f"2026-01-01T10:{second // 60:02}:{second % 60:02}.000+00:00",
        "state": state,
        "gpu": 0.5,
        "guaranteed_mib": guaranteed,
        "used_mib": used,
        "borrowed_mib": borrowed,
        "utilization": None,
    }


STORY = [
    sample(0, 0, state="pending", guaranteed=0),
    sample(60, 20 * GIB),
    sample(120, 80 * GIB, borrowed=40 * GIB),
    sample(180, 0, state="suspended"),
]


def row(text, name):
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return line[13 : 13 + COLUMNS]


def test_each_line_has_a_character_per_time():
    text = history_text(STORY, 60)
    used = row(text, "used")
    assert (used[0], used[COLUMNS // 3], used[2 * COLUMNS // 3], used[-1]) == (" ", "▂", "█", " ")
    assert row(text, "state")[0] == "w"
    assert row(text, "state")[-1] == "z"
    assert row(text, "guaranteed")[COLUMNS // 2] == "▄"
    assert row(text, "borrowed")[2 * COLUMNS // 3] == "▄"
    assert "suspended now" in text
    assert "full height: 80 GiB" in text
    assert "since" in text.splitlines()[0]


def test_a_small_value_is_at_least_one_eighth_high():
    assert (
        row(
            history_text([sample(0, 1, guaranteed=0), sample(1, 80 * GIB, guaranteed=0)], 60),
            "used",
        )[0]
        == "▁"
    )


def test_the_heading_names_the_time_that_is_covered():
    hour = [sample(second, 0) for second in range(0, 3600, 60)]
    assert "the last 60 min" in history_text(hour, 60)


def test_one_sample_and_no_samples():
    assert "no samples" in history_text([], 60)
    assert "5 MiB now" in history_text([sample(0, 5)], 60)
