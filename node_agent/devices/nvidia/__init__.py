"""NVIDIA GPUs.

`nvidia_devices` joins the parts. `nvml` and `cuda` bind the libraries, `sampler` reads in a thread.
Saving memory: `checkpoints`, `checkpoint_steps`, `quiesce`, `gpu_map`, `checkpoint_journal`, and
`checkpoint_client` with `checkpoint_worker`, a process for blocking driver calls. `memory_limits`
are the driver's own. `selftest`, `selftest_worker`, `selftest_cache` and `mps` find out what this
machine can do.
"""
