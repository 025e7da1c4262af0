"""Requests are validated before the scheduler receives them."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import KernelRequest
from jupyter_gpushare.server_extension.kernels.request import (
    checked,
    from_config,
    unknown_keys_message,
    workload,
)

MISTAKES = {
    "nothing": ({}, "gpu"),
    "both": ({"gpu": 0.5, "gpu_memory": "20GiB"}, "gpu"),
    "negative": ({"gpu": -1}, "gpu"),
    "not a number": ({"gpu": "nan"}, "gpu"),
    "too many": ({"gpu": 7e9}, "gpu"),
    "zero": ({"gpu": 0}, "gpu"),
    "one and a half": ({"gpu": 1.5}, "gpu"),
    "no unit": ({"gpu_memory": 20}, "gpu_memory"),
    "no unit in text": ({"gpu_memory": "20"}, "gpu_memory"),
    "not a size": ({"gpu_memory": "much"}, "gpu_memory"),
    "not a limit": ({"gpu": 0.5, "gpu_limit": "x"}, "gpu_limit"),
    "a limit below the request": ({"gpu": 0.5, "gpu_limit": 0.25}, "gpu_limit"),
}


@pytest.mark.parametrize(("given", "field"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_its_field(given, field):
    with pytest.raises(InvalidInput) as refused:
        checked(KernelRequest(**given))
    assert refused.value.field == field


@pytest.mark.parametrize("config", [{}, {"gpu": None}, {"gpu": 0}, {"project": "vision"}])
def test_a_kernelspec_may_request_no_gpu(config):
    assert from_config(config) is None


def test_a_kernelspec_with_a_value_of_the_wrong_type_names_the_field():
    with pytest.raises(InvalidInput) as refused:
        from_config({"gpu": [1]})
    assert refused.value.field == "gpu"


def test_one_kernel_is_a_workload_with_one_pod_on_its_node():
    asked = workload(
        KernelRequest(gpu=0.5, node_pools="a100, default"),
        "k.1",
        kernel_id="k",
        name="",
        node="n",
        user=None,
    )
    assert (asked.pods[0].nodes, asked.node_pools, asked.name, asked.kernel_id) == (
        ["n"],
        ["a100", "default"],
        "k",
        "k",
    )


def test_a_request_may_stay_in_the_queue_although_nothing_can_run_it():
    def submitted(config):
        return workload(
            from_config(config), "k.1", kernel_id="k", name="", node="n", user=None
        ).queue_anyway

    assert submitted({"gpu": 3, "queue_anyway": True})
    assert not submitted({"gpu": 3})


def test_unknown_keys_are_named_with_a_suggestion():
    assert unknown_keys_message({"gpu": 1, "project": "vision"}) == ""
    message = unknown_keys_message({"gpu": 1, "gpus": 2, "zzz": 3})
    assert "'gpus' (did you mean 'gpu'?), 'zzz'" in message
    assert "Known keys: preset, gpu," in message
