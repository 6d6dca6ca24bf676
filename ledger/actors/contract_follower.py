"""The contract after the newest final block, read on from where it was read before.

What is final does not change, so only what came since is asked for, and that only if there is any:
everything that the contract records moves its state. A commitment extends the running digest of
the round's commitments, a ban the head, the end of a round its number and the head; both digests
are chains of hashes, which never come back to an earlier value. So while the state is the same,
nothing was recorded. Where it is another, the events since must lead to it (`folded_state`): a node
that lags behind or leaves something out is given away by the contract's own word.

Only what is certain to stand on what was read before is read on from there. Where it is not - after
a restart, a reorganisation, on a node that ends before, or that contradicts what was read - all is
read afresh, from the block that created the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import RoundStart
from ledger.chain.contract.folded_state import FoldedState
from ledger.chain.ports import NotServedError
from ledger.protocol.closing import MinedCommitment
from ledger.protocol.ledger_state import ClientBanned, LedgerStage, UpdatesCommitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import LedgerSnapshot
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.finality.ancestry import AncestryCheck
    from ledger.chain.ports import Block
    from ledger.chain.round_ledger import RoundHistory


@dataclass(frozen=True, slots=True)
class OpenRound:
    """What was recorded that counts in the open round.

    Attributes:
        opening: how it began.
        bans: every ban of the run, oldest first.
        commitments: of the round, in chain order.
    """

    opening: RoundStart
    bans: tuple[ClientBanned, ...]
    commitments: tuple[MinedCommitment, ...]


@dataclass(frozen=True, slots=True)
class FollowedContract:
    """What is known after a final block.

    Attributes:
        head: the chain's newest block when it was read.
        final_block: the number of the final one.
        state: what the contract kept after it.
        folded: the same, as the events so far make it.
        newest_round: the round that opened last; None before the first.
    """

    head: Block
    final_block: int
    state: LedgerSnapshot
    folded: FoldedState
    newest_round: OpenRound | None

    @property
    def open_round(self) -> OpenRound | None:
        """The open round; None if none is."""
        return self.newest_round if self.state.stage is LedgerStage.OPEN else None


class ContractFollower:
    """Reads a contract from one final block to the next.

    Attributes:
        newest: what was read last; None before.
    """

    def __init__(self, ledger: RoundHistory, lineage: AncestryCheck) -> None:
        """Take note of a contract; nothing is asked yet.

        Args:
            ledger: it.
            lineage: of its chain's blocks.
        """
        self._ledger = ledger
        self._lineage = lineage
        self.newest: FollowedContract | None = None

    def read(self, head: Block, final_block: int) -> FollowedContract:
        """Return what is known after a final block.

        Args:
            head: the chain's newest block.
            final_block: the number of the final one.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's own state.
            NotServedError: that, or something else that does not fit; the next time everything is
                read afresh.
            ChainError: the chain is unreachable.
        """
        before = self.newest
        if before is not None and not self._goes_on(before, head, final_block):
            before = None
        if before is not None and before.final_block == final_block:
            self.newest = replace(before, head=head)
            return self.newest
        state = self._ledger.state(final_block)
        try:
            self.newest = self._read(before, head, final_block, state)
        except NotServedError:
            # What does not fit may be what was read before, of another node behind one address.
            self.newest = None
            raise
        return self.newest

    def _goes_on(self, before: FollowedContract, head: Block, final_block: int) -> bool:
        return before.final_block <= final_block and self._lineage.connects(before.head, head)

    def _read(
        self, before: FollowedContract | None, head: Block, final_block: int, state: LedgerSnapshot
    ) -> FollowedContract:
        """Return what is known after a final block, given what was before it.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's own state.
        """
        if before is not None and before.state == state:
            return replace(before, head=head, final_block=final_block)
        if before is None:
            first, newest_round = self._ledger.from_block, None
            folded = FoldedState.at_deployment(self._ledger.deployment())
        else:
            first, newest_round, folded = before.final_block + 1, before.newest_round, before.folded
        news = self._ledger.recorded_in(first, final_block)
        folded = folded.after(news)
        folded.require(state, final_block, self._ledger.node)
        return FollowedContract(head, final_block, state, folded, _after(newest_round, news))


def _after(newest: OpenRound | None, news: Iterable[RecordedEvent]) -> OpenRound | None:
    """Return the round that opened last once these have been recorded."""
    for recorded in news:
        opening = RoundStart.of(recorded)
        if opening is not None:
            newest = OpenRound(opening, () if newest is None else newest.bans, ())
        elif newest is not None and isinstance(recorded.event, ClientBanned):
            newest = replace(newest, bans=(*newest.bans, recorded.event))
        elif newest is not None:
            newest = replace(newest, commitments=(*newest.commitments, *_mined(recorded)))
    return newest


def _mined(recorded: RecordedEvent) -> tuple[MinedCommitment, ...]:
    if not isinstance(recorded.event, UpdatesCommitted):
        return ()
    taken = zip(recorded.event.clients, recorded.event.commitments, strict=True)
    return tuple(MinedCommitment(recorded.block_number, *one) for one in taken)
