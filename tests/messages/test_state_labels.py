"""One set of state labels: command line, `%gpu` and JupyterLab."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.kernel.display.state_words import STATE_WORDS, state_word

ROOT = Path(__file__).parents[2]


def workload(state: str, *pods: m.PodView) -> m.WorkloadView:
    return m.WorkloadView(
        id="w",
        name="",
        kernel_id=None,
        user="ada",
        project="p",
        priority=50,
        preemptible=True,
        node_pools=[],
        created="2026-01-01T00:00:00+00:00",
        state=state,  # type: ignore[arg-type]  # one of its states
        pods=list(pods),
    )


def pod(state: str, report: str | None = None, *, busy: bool = False) -> m.PodView:
    body: dict[str, object] = {"name": "0", "state": state}
    if report is not None:
        body["report"] = {"lease": "l", "state": report, "busy": busy}
    return m.convert(m.PodView, body)


@pytest.mark.parametrize(
    ("view", "label"),
    [
        (workload("pending", pod("pending")), "waiting"),
        (workload("partial", pod("running"), pod("pending")), "partly running"),
        (workload("ended"), "ended"),
        (workload("running", pod("running")), "running"),
        (workload("running", pod("running", "attached")), "idle"),
        (workload("running", pod("running", "attached", busy=True)), "running"),
        (workload("running", pod("running", "suspended")), "suspended"),
        (workload("running", pod("bound"), pod("running", "suspended")), "starting"),
        (workload("running", pod("releasing")), "giving back"),
    ],
)
def test_a_workload_has_the_label_of_its_most_active_pod(view: m.WorkloadView, label: str) -> None:
    assert m.workload_label(view) == label


def test_the_notebook_and_the_front_end_have_the_same_labels() -> None:
    assert STATE_WORDS == m.KERNEL_LABELS
    for state, label in m.KERNEL_LABELS.items():
        assert state_word({"state": state, "busy": True}) == label
    text = (ROOT / "labextension/src/stateLabels.ts").read_text()
    pairs = dict(re.findall(r"^  (\w+): '([\w ]+)'", text, re.MULTILINE))
    kernel_states = {state: pairs[state] for state in m.KERNEL_LABELS if state != "pending"}
    assert kernel_states == {k: v for k, v in m.KERNEL_LABELS.items() if k != "pending"}
    assert set(msgspec.json.schema(m.StateLabel)["enum"]) == set(
        re.findall(r"^  \| '([\w ]+)'", text, re.MULTILINE)
    )
