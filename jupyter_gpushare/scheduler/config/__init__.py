"""Reading and writing of YAML and JSON files.

`documents` parses a file and keeps the line of every value, `fields` validates values, `schemas`
the parts that several kinds of files share (`people_schemas`: rules between members;
`booked_times`: times of bookings); `serialize` writes them back, `consistency` checks references
between parts, and `diagnostics` words the errors. `zone_database` tells which time zones are used.
`policy` and `simulation` define whole files.
"""
