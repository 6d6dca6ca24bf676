"""A bundle as a chain to read from: the blocks, transactions and logs of one round, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from ledger.chain.offline import OfflineChain, matches_topics
from ledger.chain.ports import NotServedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.audit.bundles.bundle import RoundBundle
    from ledger.chain.ports import Block, Log, Receipt, TopicFilter, Transaction


class BundleChain(OfflineChain):
    """The chain that a bundle tells of; what it does not hold is not served."""

    def __init__(self, bundle: RoundBundle) -> None:
        self._bundle = bundle
        self._blocks = {block.number: block for block in bundle.blocks}
        self._transactions = {one.hash: one for one in bundle.transactions}

    @property
    def chain_id(self) -> int:
        """The chain's EIP-155 id."""
        return self._bundle.ground.chain_id

    @property
    def genesis_hash(self) -> bytes:
        """The hash of block 0."""
        return self._bundle.ground.genesis_hash

    def head(self) -> Block:
        """Return the block that ended the round."""
        return self._bundle.blocks[-1]

    def block(self, number: int) -> Block:
        """Return one block of the round.

        Raises:
            NotServedError: it holds no event of the round.
        """
        if number not in self._blocks:
            raise NotServedError(f"block {number} is not in the bundle")
        return self._blocks[number]

    def finalized(self) -> int:
        """Return the number of the block that ended the round."""
        return self.head().number

    def logs(
        self,
        address: str | None,
        topics: Sequence[TopicFilter],
        from_block: int,
        to_block: int,
        limit: int | None = None,
        *,
        descending: bool = False,
    ) -> list[Log]:
        """Return the logs that match, in the bundle's order."""
        found = [
            log
            for log in self._bundle.logs
            if from_block <= log.block_number <= to_block
            and address in {None, log.address}
            and matches_topics(log, topics)
        ]
        return (found[::-1] if descending else found)[:limit]

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction of the round.

        Raises:
            NotServedError: it made no event of the round.
        """
        if transaction_hash not in self._transactions:
            raise NotServedError(f"transaction 0x{transaction_hash.hex()} is not in the bundle")
        return self._transactions[transaction_hash]

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Refuse: a bundle has no receipts."""
        _not_served(f"the receipt of 0x{transaction_hash.hex()}")

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:  # noqa: ARG002 - the port's
        """Refuse: a bundle has no state."""
        _not_served(f"a call of {to}")

    def code(self, address: str) -> bytes:
        """Refuse: a bundle has no state."""
        _not_served(f"the code at {address}")


def _not_served(what: str) -> Never:
    raise NotServedError(f"{what} is not in a bundle, which holds one round and no state")
