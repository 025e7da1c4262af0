"""The administrator's policy, accepted or refused as a whole.

`policy_file` loads it, `schemas`, `rule_schemas` and `booking_schemas` validate it, `rules` finds
the rule that applies to a workload. `diff` lists what another policy would change, `impact` the
affected workloads. `hub_quotas` adds projects from JupyterHub's groups.
"""
