"""`--simulate MODEL:N` is read as people write it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.model.errors import InvalidInput
from node_agent.devices.simulated.simulation import read_simulation

READ = {
    "A100:2": ("A100", 2, 80 * 1024),
    "A100-40GB:2": ("A100", 2, 40 * 1024),
    "T4:1": ("T4", 1, 16 * 1024),
    "3": ("A100", 3, 80 * 1024),
    "Unheard-of:4": ("Unheard-of", 4, 80 * 1024),
}


@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ)
def test_model_number_and_memory(text, expected):
    simulation = read_simulation(text)
    assert (simulation.model, simulation.count, simulation.memory_mib) == expected


@pytest.mark.parametrize("text", ["A100:0", "A100:many", "A100:-1", "A100:100000"])
def test_nonsense_names_the_option(text):
    with pytest.raises(InvalidInput, match="MODEL:N") as caught:
        read_simulation(text)
    assert caught.value.field == "simulate"
