"""Version 2: the rounds that lack a document in a table of their own, and counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_LACKING = "record = 2 OR incidents = 2"


def upgrade() -> None:
    """Take out of all rounds those that wait, and count them."""
    op.create_table(
        "waiting",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("record", sa.SmallInteger(), nullable=False),
        sa.Column("incidents", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "round"),
        sqlite_with_rowid=False,
    )
    for name in ("waiting", "records_missing"):
        column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("deployment", column)
    columns = "deployment, round, record, incidents"
    op.execute(
        f"INSERT INTO waiting ({columns}) SELECT {columns} FROM round WHERE {_LACKING}"  # noqa: S608
    )
    counted = "SELECT count(*) FROM waiting WHERE waiting.deployment = deployment.id"
    op.execute(
        f"UPDATE deployment SET waiting = ({counted}), "  # noqa: S608
        f"records_missing = ({counted} AND waiting.record = 2)"
    )
    op.drop_index("round_incomplete", "round")
