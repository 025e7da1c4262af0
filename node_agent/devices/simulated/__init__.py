"""Simulated GPUs (`simulated_devices`): the agent's side of the simulated node's file."""
