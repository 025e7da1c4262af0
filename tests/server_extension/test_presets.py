"""Presets: named shares of the administrator."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import KernelRequest
from jupyter_gpushare.server_extension.requests.presets import (
    DEFAULT_PRESETS,
    presets_or_default,
    read_presets,
)

LARGE = {
    "name": "large",
    "description": "For training",
    "gpu": 1,
    "project": "vision",
    "node_pools": ["a100"],
}
HUGE = {"name": "huge", "gpu": 64, "queue_anyway": True}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (KernelRequest(gpu=0.3), KernelRequest(gpu=0.3)),
        (
            KernelRequest(preset="large"),
            KernelRequest(preset="large", gpu=1, project="vision", node_pools=["a100"]),
        ),
        (
            KernelRequest(preset="large", project="nlp"),
            KernelRequest(preset="large", gpu=1, project="nlp", node_pools=["a100"]),
        ),
        (
            KernelRequest(preset="large", gpu_memory="8GiB"),
            KernelRequest(preset="large", gpu_memory="8GiB", project="vision", node_pools=["a100"]),
        ),
        (KernelRequest(preset="huge"), KernelRequest(preset="huge", gpu=64, queue_anyway=True)),
    ],
    ids=["no preset", "all of it", "another project", "another amount", "queue anyway"],
)
def test_values_of_the_request_take_precedence_over_the_preset(
    asked: KernelRequest, expected: KernelRequest
) -> None:
    assert read_presets([LARGE, HUGE]).resolved(asked) == expected


def test_an_unknown_preset_is_refused_with_the_known_names() -> None:
    with pytest.raises(InvalidInput, match="½ GPU") as refused:
        read_presets(DEFAULT_PRESETS).resolved(KernelRequest(preset="huge"))
    assert refused.value.field == "preset"


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([{"gpu": 1}], "[0].name"),
        ([LARGE, {**LARGE}], "[1].name"),
        ([{"name": "x", "gpu": 1.5}], "[0].gpu"),
        ([{"name": "x", "gpus": 1}], "[0]"),
        ([{"name": "x"}], "[0].gpu"),
    ],
    ids=["no name", "duplicate", "an invalid amount", "an unknown field", "no amount"],
)
def test_an_invalid_preset_is_named_and_the_default_ones_are_offered(
    entries: list[dict[str, object]], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_presets(entries)
    assert (refused.value.field or "").startswith(field)
    default = presets_or_default(entries)
    assert default.offered == read_presets(DEFAULT_PRESETS).offered
    assert f"presets{field}" in (default.problem or "")
    assert presets_or_default(DEFAULT_PRESETS).problem is None
