"""What the scheduler knows, changed only through `unit_of_work`: with the database, or not at all.

`restore` loads it at the start. `admission`, `request_limits` and `subgroups` validate requests and
turn them into workloads, `workload_records` holds each workload, `nodes` the nodes, `usage`
GPU-hours, `history` queues and evictions over time, `node_history` what agents measured, `people`
what members of projects have used, `kernel_owners` whose kernel is whose, `audit` the audit log.
`bookings` holds bookings, `booking_capacity` tells what fits.
"""
