"""One round as a bundle has it: what the chain holds of it, and what its beginning follows from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import DecisionLink
from ledger.protocol.inputs import needs_displacement

if TYPE_CHECKING:
    from ledger.audit.proofs.proof import RoundBasis
    from ledger.chain.ports import Block, Log, Transaction
    from ledger.protocol.encoding import ResultPreimage
    from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class EarlierDecision:
    """What the result of an earlier round binds, its model above all."""

    round: int
    opening: ResultPreimage


@dataclass(frozen=True, slots=True)
class RoundBundle:
    """What a bundle says of a round that has ended; its blobs lie beside it.

    Attributes:
        ground: the run, the heads round it, and who could take part.
        opened_block: block in which the round opened.
        earlier: the decisions that gave the models which the round's rules need.
        blocks: those that hold an event of the round, ascending; their times are not kept.
        transactions: those that made an event of it; their senders are not kept.
        logs: its events, in the chain's order.
    """

    ground: RoundBasis
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
        if link is None and not self.ground.is_whole:
            raise EncodingError(
                f"the path does not reach back to the model that round {round_number} began with"
            )
        if link is None:
            return self.ground.document.initial_model
        for one in self.earlier:
            if one.round == link.round:
                return one.opening.model
        raise EncodingError(f"what the result of round {link.round} binds is not in the bundle")

    def needed(self) -> tuple[DecisionLink, ...]:
        """Return the decisions whose models the round's rules need, newest first.

        Raises:
            EncodingError: there is no configuration.
        """
        found = (self.decided_before(number) for number in rounds_of_models(self.ground))
        return tuple(dict.fromkeys(link for link in found if link is not None))

    def decided_before(self, round_number: int) -> DecisionLink | None:
        """Return the newest decision before a round; None if the path has none.

        Args:
            round_number: t.
        """
        links = reversed(self.ground.path_to_end.links)
        decided = (one for one in links if isinstance(one, DecisionLink))
        return next((one for one in decided if one.round < round_number), None)


def rounds_of_models(ground: RoundBasis) -> tuple[int, ...]:
    """Return the rounds whose first models a round's rules need: its own, and the travel's.

    Args:
        ground: of the round.

    Raises:
        EncodingError: there is no configuration.
    """
    parameters, number = ground.document.parameters, ground.round
    if parameters.direction_weight is None or not needs_displacement(parameters, number):
        return (number,)
    return (number, parameters.direction_weight.window_start(number))
