"""Simulated GPUs: `vendor` serves `--simulate`, which `simulation` reads; `simulated_devices` is
the agent's view of the node's file, and `simulated_sensors` what its sensors show.
"""
