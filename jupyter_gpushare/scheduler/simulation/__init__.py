"""Scheduling without a cluster.

`scenario_file` reads a scenario with `scenario_schemas`, `scenario_checks` and `gpu_names`,
`scenario` runs it, `snapshot` writes a running cluster as one, `fairshare_file` divides resources
among queues.
"""
