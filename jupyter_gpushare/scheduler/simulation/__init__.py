"""Scheduling without a cluster.

`scenario_file` reads a scenario with `scenario_schemas`, `scenario_checks` and `gpu_names`,
`scenario` runs it, `sessions` simulates notebooks in virtual time (`session_schemas`,
`session_report`), `snapshot` writes a running cluster as one, `fairshare_file` divides
resources among queues.
"""
