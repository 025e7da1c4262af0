"""Files written by people.

`documents` parses YAML and JSON and keeps the line of every value, `schemas` validates the parts
that several files share, `serialize` writes them back, `consistency` finds contradictions between
parts, and `diagnostics` words the errors. `policy` and `simulation` define whole files.
"""
