"""The amounts of a GPU request have the same rules and messages wherever a request enters."""

from __future__ import annotations

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.gpu_request import GpuRequest, read_gpu_request
from jupyter_gpushare.core.model.model import Policy, Project
from jupyter_gpushare.scheduler.config.documents import FileErrors
from jupyter_gpushare.scheduler.simulation.scenario_file import parse_scenario
from jupyter_gpushare.scheduler.state.admission import read_request
from jupyter_gpushare.server_extension.kernels.request import checked

VALID = {
    "a fraction": ({"gpu": 0.5}, GpuRequest(500, None, 1000)),
    "whole GPUs": ({"gpu": "2"}, GpuRequest(2000, None, 1000)),
    "memory": ({"gpu_memory": "20GiB"}, GpuRequest(0, 20480, 1000)),
    "a burst limit": ({"gpu": 0.25, "gpu_limit": 0.5}, GpuRequest(250, None, 500)),
    "the only possible limit": ({"gpu": 2, "gpu_limit": 2}, GpuRequest(2000, None, 1000)),
}
INVALID = {
    "both": ({"gpu": 0.5, "gpu_memory": "20GiB"}, "gpu_memory", "exclude each other"),
    "one and a half": ({"gpu": 1.5}, "gpu", "gpu above 1 must be a whole number, got 1.5"),
    "no memory": ({"gpu_memory": "0GiB"}, "gpu_memory", "must be more than 0, got 0 MiB"),
    "not a number": ({"gpu": "much"}, "gpu", "gpu must be a number of GPUs"),
    "too small": ({"gpu": 0.0001}, "gpu", "gpu must be at least 0.001 GPU"),
    "a limit below": ({"gpu": 0.5, "gpu_limit": 0.25}, "gpu_limit", "must be at least gpu (0.5)"),
    "a limit above": ({"gpu": 0.5, "gpu_limit": 1.5}, "gpu_limit", "must be at most 1"),
    "a limit of several": ({"gpu": 2, "gpu_limit": 3}, "gpu_limit", "must equal gpu (2)"),
    "no limit": ({"gpu": 0.5, "gpu_limit": 0}, "gpu_limit", "must be more than 0"),
}


@pytest.mark.parametrize(("given", "amounts"), VALID.values(), ids=VALID)
def test_amounts(given: dict[str, object], amounts: GpuRequest) -> None:
    assert read_gpu_request(**given) == amounts  # type: ignore[arg-type]  # amounts of any kind


@pytest.mark.parametrize(("given", "field", "words"), INVALID.values(), ids=INVALID)
def test_a_mistake_has_one_message(given: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as read:
        read_gpu_request(**given)  # type: ignore[arg-type]  # amounts of any kind
    assert words in read.value.message
    assert read.value.field == field
    pod = m.PodRequest(**given)  # type: ignore[arg-type]  # amounts of any kind
    with pytest.raises(InvalidInput) as admitted:
        read_request(
            m.WorkloadRequest(id="w", pods=[pod]),
            Policy(projects=(Project("p"),)),
            user="ada",
            allowed=["p"],
            default=None,
            created=0,
        )
    assert (admitted.value.message, admitted.value.field) == (read.value.message, field)
    if "exclude" not in words:
        with pytest.raises(InvalidInput) as server:
            checked(m.KernelRequest(**given))  # type: ignore[arg-type]  # amounts of any kind
        assert (server.value.message, server.value.field) == (read.value.message, field)


@pytest.mark.parametrize("name", ["both", "one and a half", "no memory"])
def test_a_scenario_has_the_same_message(name: str) -> None:
    given, _, words = INVALID[name]
    pod = ", ".join(f"{key}: {value}" for key, value in given.items())
    text = (
        f"projects: [{{name: p}}]\nworkloads: [{{name: w, project: p, pods: [{{name: x, {pod}}}]}}]"
    )
    with pytest.raises(FileErrors, match=words[:20]):
        parse_scenario(text)
