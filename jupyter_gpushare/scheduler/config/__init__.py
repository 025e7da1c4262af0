"""Files that people write: read with the line of every value (`reading`), checked (`queue_checks`), and explained in people's words (`problems`).

Knows the parts that several files share (amounts, pools, quotas), both ways: `shapes` reads them, `bodies` writes them. What a whole file means is
known by `policy` and `simulation`, which call this.
"""
