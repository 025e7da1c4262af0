"""Which workload is next.

`entitlement` computes every queue's fair share for a cycle, `order` walks the queues,
`failure_cache` skips requests that cannot fit, `reservation` is the option `reserve_after`,
`people` finds the waiting people of projects with fair members, `booked_rooms` keeps GPUs free for
bookings.
"""
