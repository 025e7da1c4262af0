"""Scheduling without a cluster.

`scenario_file` and `scenario_schemas` read a scenario, `scenario` runs it, `snapshot` writes a
running cluster as one, `fairshare_file` divides resources among queues.
"""
