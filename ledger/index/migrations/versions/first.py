"""Version 1: the first schema. What it says stays; a later version is a file of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables of an empty database."""
    _ban()
    _chain()
    _checkpoint()
    _client()
    _counts()
    _digest()
    _participation()
    _round()
    _told()
    _deployment()


def _ban() -> None:
    op.create_table(
        "ban",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("block", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "client"),
        sqlite_with_rowid=False,
    )


def _chain() -> None:
    op.create_table(
        "chain",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("chain_id", sa.Text(), nullable=False),
        sa.Column("genesis", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("genesis"),
    )


def _checkpoint() -> None:
    op.create_table(
        "checkpoint",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("block", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "block"),
        sqlite_with_rowid=False,
    )


def _client() -> None:
    op.create_table(
        "client",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=False),
        sa.Column("samples", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "client"),
        sqlite_with_rowid=False,
    )
    op.create_index("client_by_address", "client", ["address"])


def _counts() -> None:
    op.create_table(
        "counts",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.Column("sampled", sa.BigInteger(), nullable=False),
        sa.Column("ranked", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("dropped_out", sa.BigInteger(), nullable=False),
        sa.Column("served", sa.BigInteger(), nullable=False),
        sa.Column("scored", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("voted", sa.BigInteger(), nullable=False),
        sa.Column("primary", sa.BigInteger(), nullable=False),
        sa.Column("incidents", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "client"),
        sqlite_with_rowid=False,
    )


def _digest() -> None:
    op.create_table(
        "digest",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "deployment", "kind", "round", "client"),
        sqlite_with_rowid=False,
    )


def _participation() -> None:
    op.create_table(
        "participation",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.SmallInteger(), nullable=False),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        sa.Column("place", sa.SmallInteger(), nullable=True),
        sa.Column("empty_seat", sa.Boolean(), nullable=False),
        sa.Column("committed", sa.Boolean(), nullable=False),
        sa.Column("rank", sa.SmallInteger(), nullable=True),
        sa.Column("distance_bits", sa.BigInteger(), nullable=True),
        sa.Column("dropout", sa.SmallInteger(), nullable=True),
        sa.Column("scores", sa.SmallInteger(), nullable=False),
        sa.Column("voted", sa.SmallInteger(), nullable=False),
        sa.Column("primary_of", sa.SmallInteger(), nullable=False),
        sa.Column("accused", sa.SmallInteger(), nullable=False),
        sa.Column("banned", sa.Boolean(), nullable=False),
        sa.Column("commitment", sa.LargeBinary(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("told", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("deployment", "client", "round"),
        sqlite_with_rowid=False,
    )


def _round() -> None:
    op.create_table(
        "round",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("opened_block", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("view", sa.BigInteger(), nullable=False),
        sa.Column("ended_block", sa.BigInteger(), nullable=True),
        sa.Column("ended_time", sa.BigInteger(), nullable=True),
        sa.Column("record", sa.SmallInteger(), nullable=False),
        sa.Column("incidents", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "round"),
        sqlite_with_rowid=False,
    )
    op.create_index("round_by_block", "round", ["deployment", "ended_block", "round"])
    op.create_index(
        "round_incomplete",
        "round",
        ["deployment", "round"],
        sqlite_where=sa.text("(record = 2 OR incidents = 2)"),
        postgresql_where=sa.text("(record = 2 OR incidents = 2)"),
    )


def _told() -> None:
    op.create_table(
        "told",
        sa.Column("deployment", sa.Integer(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("opening", sa.LargeBinary(), nullable=False),
        sa.Column("course", sa.LargeBinary(), nullable=False),
        sa.Column("ended", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("deployment", "round"),
    )


def _deployment() -> None:
    op.create_table(
        "deployment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("chain", sa.Integer(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=False),
        sa.Column("from_block", sa.BigInteger(), nullable=False),
        sa.Column("fixed", sa.LargeBinary(), nullable=False),
        sa.Column("block", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.BigInteger(), nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.Column("registered", sa.Integer(), nullable=False),
        sa.Column("banned", sa.Integer(), nullable=False),
        sa.Column("rewinds", sa.Integer(), nullable=False),
        sa.Column("compared", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(["chain"], ["chain.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("deployment_by_address", "deployment", ["chain", "address"], unique=True)
