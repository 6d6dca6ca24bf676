"""Where a digest or an address stands, on whatever chain an index holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.history.digests import DigestKind


@dataclass(frozen=True, slots=True)
class Place:
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
