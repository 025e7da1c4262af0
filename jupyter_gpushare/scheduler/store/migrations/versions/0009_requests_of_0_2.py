"""No table changes: requests and events have had fields since 0.2.0 that 0.1.0 cannot read. With
this step 0.1.0 refuses the database as a whole and says why.
"""

from __future__ import annotations

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing but the number."""
