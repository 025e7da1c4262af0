"""Simulated GPUs: `simulation` reads `--simulate`, `simulated_devices` serves the node's file."""
