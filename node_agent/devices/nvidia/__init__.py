"""NVIDIA GPUs.

`vendor` finds them, `nvidia_devices` combines the parts. Libraries: `nvml` with `nvml_types` and
`nvml_queries`, `cuda`. Reading: `sampler`, `health_monitor`, `unattributed_memory`. Saving memory:
`checkpoints`, `checkpoint_steps`, `quiesce`, `gpu_map`, `checkpoint_journal`, and
`checkpoint_client` with `checkpoint_worker`, a process for blocking driver calls. Limits of the
driver: `memory_limits`. Capabilities: `capability_probe`, `selftest`, `selftest_process` with
`selftest_worker`, `selftest_cache`, `mps`.
"""
