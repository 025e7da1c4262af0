"""Brings the node to the state that the plan asks for.

`reconciler` is the loop: `observe` reads the devices, `decide` takes the snapshot for the
policy (`tenants`), `apply` and `apply_caps` carry out its decision. `leases` applies the
scheduler's leases to kernels of their own user (`lease_ownership`), `gpu_assigner` finds GPUs
for them, `attachment` attaches kernels, `cell_admission` answers waiting cells and `wait_text`
says why they wait. `lifecycle` follows kernels, `process_groups` their processes and
`owner_presence` the pods that have ended,
`memory_mover` copies GPU memory, `idle_culler` applies the idle rule, `turns` lets idle kernels
give way to waiting cells, `watchdog` finds blocked kernels, `usage_sampler` meters. `batch`
runs commands (`command_run`, `command_start`). `ungated` finds kernels whose cells do not ask.
`start_preview` tells what a share that starts now would change for other notebooks.
"""
