"""The administrator's policy: read as a whole or refused as a whole (`file`, `shapes`, `rule_shapes`), its `rules`, and what another one would change
(`changes`) and for whom (`effects`). `hub_quotas` adds what JupyterHub's groups say.

Called where a policy comes into force (`house`, `service.loop`), where one is only looked at (`service.policy_desk`, the commands `validate` and
`policy`), and by `simulation`, whose files have the same pools and queues.
"""
