"""The administrator's policy: read as a whole or refused as a whole, the rules in it, and what a change of it would do to whom.

Called where a policy comes into force (`house`, `service.loop`), where one is only looked at (`service.policy_desk`, the commands `validate` and
`policy`), and by `simulation`, whose files have the same pools and queues.
"""
