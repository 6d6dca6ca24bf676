"""Where a digest or an address stands: in one deployment, or on whatever chain an index holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from ledger.history.digests import Occurrence
from ledger.index.errors import IndexDamagedError
from ledger.index.queries import Query
from ledger.index.tables import DIGEST

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ledger.history.digests import DigestKind
    from ledger.protocol.types import Digest

_PLACES = Query(
    select(DIGEST.c.kind, DIGEST.c.round, DIGEST.c.client)
    .where(DIGEST.c.deployment == bindparam("of"), DIGEST.c.digest == bindparam("digest"))
    .order_by(DIGEST.c.round, DIGEST.c.kind, DIGEST.c.client)
    .offset(bindparam("first"))
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True)
class DigestLocation:
    """Where a digest or an address stands.

    Attributes:
        kind: what it is there.
        chain_id: of the chain.
        genesis: hash of the chain's block 0.
        contract: address of the contract, 20 bytes; None for a chain's own.
        round: t; None for what belongs to the deployment.
        client: whose it is; None for nobody's.
    """

    kind: DigestKind
    chain_id: int
    genesis: bytes
    contract: bytes | None = None
    round: int | None = None
    client: int | None = None


def occurrences_of(
    connection: Connection, deployment: int, digest: Digest, first: int, limit: int
) -> list[Occurrence]:
    """Return where a digest stands in a deployment: its own first, then ascending by round.

    Args:
        connection: to the index.
        deployment: its row.
        digest: any 32 bytes.
        first: how many places are passed over.
        limit: how many are told at most.

    Raises:
        IndexDamagedError: it is of no kind that there is.
    """
    asked = {"of": deployment, "digest": digest, "first": first, "most": limit}
    try:
        return [Occurrence.of(*row) for row in _PLACES.rows(connection, asked)]
    except ValueError as error:
        raise IndexDamagedError(f"the index holds a digest of no kind: {error}") from error
