"""A share as text and as HTML: the same words, and lines that fit in a narrow notebook."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import get_args

import pytest

from jupyter_gpushare.kernel.display import text as text_view
from jupyter_gpushare.kernel.display.html import DisplayValue, card_html, table_html
from jupyter_gpushare.kernel.display.output import box_html
from jupyter_gpushare.kernel.display.state_words import STATE_WORDS, state_word
from jupyter_gpushare.kernel.documentation import address_of_code
from jupyter_gpushare.kernel.kernel_body import detached
from jupyter_gpushare.kernel.magics.verbs import DEVICE_COLUMNS, QUEUE_COLUMNS
from jupyter_gpushare.messages import KernelState

NOTHING = detached()
NARROW = 64
"""Characters that fit between JupyterLab's two sidebars in a window of 1280 pixels."""


def kernel(**changes):
    memory = {"guaranteed": 40960, "used": 71680, "borrowed": 30720}
    event = {
        "time": "2026-01-01T10:00:00Z",
        "kind": "attached",
        "message": "Attached to simulated GPU 0.",
    }
    attached = {
        "state": "attached",
        "workload": "w1",
        "project": "vision",
        "node": "n0",
        "gpu_uuid": "SIM-GPU-n0-0",
        "simulated": True,
    }
    return {
        **NOTHING,
        **attached,
        "request": {"gpu": 0.5, "gpu_memory_mib": None},
        "limit": {"gpu": 1.0, "gpu_memory_mib": None},
        "memory_mib": memory,
        "gpu_memory_total_mib": 81920,
        "events": [event],
        **changes,
    }


REASON = {
    "code": "WaitingForQuota",
    "message": "Project vision uses its quota.",
    "helps": [{"message": "Ask for less."}],
    "numbers": {"free_total": 0.5, "free_largest": 0.5, "requested": 1.0, "position": 3},
}
WAITING = kernel(
    state="pending",
    gpu_uuid=None,
    gpu_memory_total_mib=0,
    reason=REASON,
    queue_position=3,
    memory_mib=NOTHING["memory_mib"],
)
EXPECTED = {"expected_wait": {"message": "About 5 min more."}}
SAVED = kernel(
    state="suspended", memory_mib={"guaranteed": 40960, "used": 0, "borrowed": 0}, saved_mib=71680
)


@pytest.mark.parametrize(
    "one", [kernel(), WAITING, SAVED, kernel(notice_deadline="2026-01-01T10:00:00Z", pinned=True)]
)
def test_lines_fit_in_a_narrow_notebook(one):
    assert max(map(len, text_view.kernel_text(one).split("\n"))) <= NARROW


@pytest.mark.parametrize("one", [kernel(), WAITING, SAVED])
def test_the_html_contains_the_words_of_the_text(one):
    """All but the bar, which is a picture."""
    said = html.unescape(re.sub("<[^>]+>", " ", card_html(one)))
    for _, text in text_view.kernel_rows(one):
        assert text in said


def test_a_reason_lists_its_numbers_with_labels():
    text = text_view.reason_text(REASON, 3)
    assert text.split("\n") == [
        "Project vision uses its quota. [WaitingForQuota]",
        "GPUs: requested 1, free 0.5, largest free part 0.5",
        "queue position: 3",
        "to start sooner: Ask for less.",
        f"docs: {address_of_code('WaitingForQuota')}",
    ]


def test_waiting_is_no_way_to_start_sooner():
    wait = {"change": "wait", "to": "", "message": "It starts automatically."}
    lines = text_view.reason_text({**REASON, "helps": [*REASON["helps"], wait]}).split("\n")
    assert lines[-3:-1] == ["to start sooner: Ask for less.", "It starts automatically."]


def test_the_status_shows_the_reason_without_code_and_numbers():
    assert "[WaitingForQuota]" not in text_view.kernel_text(WAITING)
    assert "GPUs:" not in text_view.kernel_text(WAITING)


def test_the_expected_wait_is_shown_if_it_is_known():
    assert "About 5 min more." in text_view.kernel_text(WAITING | EXPECTED)
    assert "About" not in text_view.kernel_text(WAITING)
    assert "About 5 min more." in text_view.what_if_text(
        {"starts_now": False, "reason": REASON, "displaces": [], "alternatives": []} | EXPECTED
    )


AFFECTED = {
    "starts_now": True,
    "node": "vm",
    "planned_gpu": "SIM-GPU-vm-1",
    "gpus": ["SIM-GPU-vm-0"],
    "notice_ms": 8_000,
    "affected": [
        {"name": "second.ipynb", "notice_ms": 8_000, "message": "second.ipynb gets a notice."},
        {"name": "third.ipynb", "notice_ms": 0, "message": "third.ipynb is idle."},
    ],
    "displaces": [],
    "alternatives": [],
}


def test_what_if_names_the_gpu_and_the_notebooks_that_are_affected():
    assert text_view.what_if_text(AFFECTED).split("\n") == [
        "Would start on SIM-GPU-vm-0 after a notice of 8 s to second.ipynb.",
        "  second.ipynb gets a notice.",
        "  third.ipynb is idle.",
    ]
    idle = AFFECTED | {"notice_ms": 0, "affected": AFFECTED["affected"][1:]}
    assert text_view.what_if_text(idle).split("\n") == [
        "Would start now on SIM-GPU-vm-0.",
        "  third.ipynb is idle.",
    ]
    unknown = AFFECTED | {"notice_ms": 0, "affected": [], "gpus": []}
    assert text_view.what_if_text(unknown) == "Would start now on SIM-GPU-vm-1."


def test_what_if_names_the_notebooks_that_lose_their_gpu():
    evicted = {
        "workload": "k2.vm.1",
        "project": "vision",
        "name": "second.ipynb",
        "message": 'Project "language" is entitled to these GPUs.',
        "notice_ms": 10_000,
    }
    reason = {**REASON, "helps": [{"change": "gpu", "to": "0.5", "message": "Ask for less."}]}
    alternative = {"request": {"gpu": 0.5}, "message": "0.5 GPU would start now."}
    answer = {"starts_now": False, "reason": reason, "displaces": [evicted]}
    lines = text_view.what_if_text({**answer, "alternatives": [alternative]}).split("\n")
    assert lines[0] == "Would start after a notice of 10 s to second.ipynb."
    assert lines[-2:] == [
        '  second.ipynb loses its GPU: Project "language" is entitled to these GPUs.',
        "instead: 0.5 GPU would start now.",
    ]
    assert not any("to start sooner" in line for line in lines), "the alternative says it"
    other = {**evicted, "name": ""}
    lines = text_view.what_if_text({**answer, "displaces": [other], "alternatives": []})
    assert "to a workload of project vision." in lines


def test_saved_memory_is_shown():
    assert "0 MiB of 80 GiB used, 70 GiB saved in host memory" in text_view.kernel_text(SAVED)


@pytest.mark.parametrize("columns", [DEVICE_COLUMNS, QUEUE_COLUMNS])
def test_table_headings_contain_no_underscores(columns):
    rows = [dict.fromkeys(columns, 0.5) | {"limit": None}]
    for name in columns.values():
        assert name in text_view.table(rows, columns)
        assert f">{name}</th>" in table_html(rows, columns)
        assert "_" not in name


def test_numbers_are_aligned_to_the_right_beside_unlimited_ones():
    rows = [{"queue": "a", "limit": None}, {"queue": "b", "limit": 10.0}]
    assert text_view.table(rows, {"queue": "queue", "limit": "limit"}).split("\n") == [
        "queue  limit",
        "a          -",
        "b         10",
    ]


def test_values_are_escaped():
    evil = "<script>alert(1)</script>"
    shown = [
        card_html(kernel(project=evil)),
        table_html([{"a": evil}], {"a": evil}),
        DisplayValue(evil)._repr_html_(),
    ]
    assert not any("<script" in one for one in shown)


def test_text_in_backquotes_is_code():
    assert "<code>%gpu release</code>" in box_html("give it back with `%gpu release` & go", "info")
    assert "&amp;" in box_html("give it back with `%gpu release` & go", "info")


def test_empty_tables_and_events():
    assert (text_view.table([], QUEUE_COLUMNS), text_view.events_text([])) == ("none", "No events.")
    assert "none" in table_html([], QUEUE_COLUMNS)


def test_every_state_has_one_word_here_and_in_jupyterlab():
    source = (Path(__file__).parents[2] / "labextension/src/stateLabels.ts").read_text()
    table = source.partition("const LABELS")[2].partition("};")[0]
    assert dict(re.findall(r"^  (\w+): '([^']+)'", table, re.M)) == STATE_WORDS
    assert set(STATE_WORDS) == set(get_args(KernelState))
    assert state_word({"state": "attached", "busy": True}) == "running"
    assert state_word({"state": "attached", "busy": False}) == "idle"
    assert state_word({"state": "suspended", "busy": False}) == "suspended"
