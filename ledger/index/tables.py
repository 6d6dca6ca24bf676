"""The tables of the index, for every query; `migrations/` makes them.

What is looked up by is a column, and what only belongs to an answer is packed (`packing.py`), in
a table of its own, so that a filter walks over narrow rows. Numbers of codes are those of the
protocol, or stand in `codes.py`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)

METADATA = MetaData()

CHAIN = Table(
    "chain",
    METADATA,
    Column("id", Integer, primary_key=True),
    # A chain id has up to 78 digits.
    Column("chain_id", Text, nullable=False),
    Column("genesis", LargeBinary, nullable=False, unique=True),
)

DEPLOYMENT = Table(
    "deployment",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("chain", ForeignKey("chain.id"), nullable=False),
    Column("address", LargeBinary, nullable=False),
    Column("from_block", BigInteger, nullable=False),
    Column("fixed", LargeBinary, nullable=False),
    # Up to where the chain is read, and what was known there.
    Column("block", BigInteger, nullable=False),
    Column("final", BigInteger, nullable=False),
    Column("newest", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("registered", Integer, nullable=False),
    Column("banned", Integer, nullable=False),
    # Whatever is remembered of a deployment holds for one number of rewinds.
    Column("rewinds", Integer, nullable=False),
    Column("compared", SmallInteger, nullable=False),
    # How many rounds are in the table of those that wait, and of how many of them the record lacks.
    Column("waiting", BigInteger, nullable=False, server_default="0"),
    Column("records_missing", BigInteger, nullable=False, server_default="0"),
    Index("deployment_by_address", "chain", "address", unique=True),
)
"""A deployment and how far it is indexed: `ended` rounds without a gap, and the head after them."""

CHECKPOINT = Table(
    "checkpoint",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("block", BigInteger, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Blocks that were read through, those that are not final and the newest final one.

A block's hash commits to all blocks before it: where the chain still has the hash of one of these,
all that was read up to it stands.
"""

CLIENT = Table(
    "client",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("address", LargeBinary, nullable=False),
    # n_k is below 2^64.
    Column("samples", Text, nullable=False),
    Index("client_by_address", "address"),
    sqlite_with_rowid=False,
)

BAN = Table(
    "ban",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("block", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

ROUND = Table(
    "round",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("opened_block", BigInteger, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("view", BigInteger, nullable=False),
    Column("ended_block", BigInteger),
    Column("ended_time", BigInteger),
    Column("record", SmallInteger, nullable=False),
    Column("incidents", SmallInteger, nullable=False),
    Index("round_by_block", "deployment", "ended_block", "round"),
    sqlite_with_rowid=False,
)
"""What rounds are looked for by.

A page looks at a bounded range of rounds, which is a range of the key: more indexes would find
nothing faster, and each would have to be written.
"""

WAITING = Table(
    "waiting",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("record", SmallInteger, nullable=False),
    Column("incidents", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""The rounds that lack a document, with how their documents stand; most histories have none.

A table of its own, for SQLite does not take an index of a few rounds for shorter than the key.
"""

TOLD = Table(
    "told",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("opening", LargeBinary, nullable=False),
    Column("course", LargeBinary, nullable=False),
    Column("ended", LargeBinary),
)
"""What the events tell of a round, packed: it comes back exactly as the chain tells it."""

PARTICIPATION = Table(
    "participation",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("role", SmallInteger, nullable=False),
    Column("outcome", SmallInteger, nullable=False),
    Column("place", SmallInteger),
    Column("empty_seat", Boolean, nullable=False),
    Column("committed", Boolean, nullable=False),
    Column("rank", SmallInteger),
    Column("distance_bits", BigInteger),
    Column("dropout", SmallInteger),
    Column("scores", SmallInteger, nullable=False),
    Column("voted", SmallInteger, nullable=False),
    Column("primary_of", SmallInteger, nullable=False),
    Column("accused", SmallInteger, nullable=False),
    Column("banned", Boolean, nullable=False),
    Column("commitment", LargeBinary),
    Column("payload", LargeBinary),
    # Refused scores and incidents, packed; few have any.
    Column("told", LargeBinary),
    sqlite_with_rowid=False,
)
"""What each client was and did in each round, by client, so that its history is one range."""

COUNTS = Table(
    "counts",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    *(
        Column(name, BigInteger, nullable=False)
        for name in (
            "sampled",
            "ranked",
            "accepted",
            "dropped_out",
            "served",
            "scored",
            "refused",
            "voted",
            "primary",
            "incidents",
        )
    ),
    sqlite_with_rowid=False,
)
"""Each client's counts over the rounds that have ended; the names are those of `Counts`."""

DIGEST = Table(
    "digest",
    METADATA,
    Column("digest", LargeBinary, primary_key=True),
    Column("deployment", Integer, primary_key=True),
    Column("kind", SmallInteger, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    # -1 where it is nobody's own.
    Column("client", Integer, primary_key=True),
    sqlite_with_rowid=False,
)
"""Where each digest stands; of round 0 is what belongs to the deployment as a whole.

No second index by round: it would double the largest table, and only a reorganisation, which
reads the table through, asks for it.
"""
