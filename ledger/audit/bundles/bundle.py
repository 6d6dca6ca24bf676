"""One round as a bundle has it: what the chain holds of it, and what its beginning follows from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

from ledger.chain.offline import OfflineChain, matches_topics
from ledger.chain.ports import NotServedError
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import DecisionLink
from ledger.protocol.inputs import needs_displacement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.audit.proofs.proof import RoundBasis
    from ledger.chain.ports import Block, Log, Receipt, TopicFilter, Transaction
    from ledger.protocol.encoding import ResultPreimage
    from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class EarlierDecision:
    """The preimage of an earlier round's result, which names its model."""

    round: int
    opening: ResultPreimage


@dataclass(frozen=True, slots=True)
class RoundBundle:
    """A round that has ended, as a bundle describes it; its blobs are separate parts.

    Attributes:
        basis: the run, the heads round it, and who could take part.
        opened_block: block in which the round opened.
        earlier: the decisions that gave the models which the round's rules need.
        blocks: those that hold an event of the round, ascending; their times are not kept.
        transactions: those that made an event of it; their senders are not kept.
        logs: its events, in the chain's order.
    """

    basis: RoundBasis
    opened_block: int
    earlier: tuple[EarlierDecision, ...]
    blocks: tuple[Block, ...]
    transactions: tuple[Transaction, ...]
    logs: tuple[Log, ...]

    def model_at(self, round_number: int) -> Digest:
        """Return the digest of the model that a round began with.

        Args:
            round_number: the bundle's own, or an earlier one.

        Raises:
            EncodingError: the path does not reach back so far, or the decision is not here.
        """
        link = self.decided_before(round_number)
        if link is None and not self.basis.is_whole:
            raise EncodingError(
                f"the path does not reach back to the model that round {round_number} began with"
            )
        if link is None:
            return self.basis.document.initial_model
        for earlier in self.earlier:
            if earlier.round == link.round:
                return earlier.opening.model
        raise EncodingError(f"what the result of round {link.round} binds is not in the bundle")

    def needed(self) -> tuple[DecisionLink, ...]:
        """Return the decisions whose models the round's rules need, newest first."""
        links = (self.decided_before(number) for number in rounds_of_models(self.basis))
        return tuple(dict.fromkeys(link for link in links if link is not None))

    def decided_before(self, round_number: int) -> DecisionLink | None:
        """Return the newest decision before a round; None if the path has none."""
        links = reversed(self.basis.path_to_end.links)
        decided = (link for link in links if isinstance(link, DecisionLink))
        return next((link for link in decided if link.round < round_number), None)


def rounds_of_models(basis: RoundBasis) -> tuple[int, ...]:
    """Return the rounds whose first models a round's rules need: its own, and the travel's."""
    parameters, number = basis.document.parameters, basis.round
    if parameters.direction_weight is None or not needs_displacement(parameters, number):
        return (number,)
    return (number, parameters.direction_weight.window_start(number))


class BundleChain(OfflineChain):
    """The chain that a bundle tells of; what it does not hold is not served."""

    def __init__(self, bundle: RoundBundle) -> None:
        self._bundle = bundle
        self._blocks = {block.number: block for block in bundle.blocks}
        self._transactions = {transaction.hash: transaction for transaction in bundle.transactions}

    @property
    def chain_id(self) -> int:
        """The chain's EIP-155 id."""
        return self._bundle.basis.chain_id

    @property
    def genesis_hash(self) -> bytes:
        """The hash of block 0."""
        return self._bundle.basis.genesis_hash

    def head(self) -> Block:
        """Return the block that ended the round."""
        return self._bundle.blocks[-1]

    def block(self, number: int) -> Block:
        """Return one block of the round."""
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
        logs = [
            log
            for log in self._bundle.logs
            if from_block <= log.block_number <= to_block
            and address in {None, log.address}
            and matches_topics(log, topics)
        ]
        return (logs[::-1] if descending else logs)[:limit]

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction of the round."""
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
