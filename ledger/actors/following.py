"""The open round after the newest final block, read on from where it was read before.

What is final does not change, so only what came since is asked for, and that only if there is any:
everything that the contract records moves its state. A commitment extends the running digest of
the round's commitments, a ban the head, the end of a round its number and the head; both digests
are chains of hashes, which never come back to an earlier value. So while the state is the same,
nothing was recorded. Where it is another, it tells whether the new events are all there: a node
that lags behind or leaves something out is given away by the contract's own word.

Only what is certain to stand on what was read before is read on from there. Where it is not - after
a restart, a reorganisation, on a node that ends before, or that contradicts what was read - all is
read afresh. Of that the bans of rounds before the open one are believed as the logs have them: the
head that the round began with commits to them, but only together with all else of those rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import RoundOpening
from ledger.chain.ports import NotServedError
from ledger.protocol.closing import MinedCommitment
from ledger.protocol.encoding import commitments_chain, head_after_ban, set_digest
from ledger.protocol.ledger_state import (
    ClientBanned,
    RoundAbandoned,
    RoundDecided,
    Stage,
    UpdatesCommitted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import Snapshot
    from ledger.chain.contract.events import Recorded
    from ledger.chain.finality.lineage import Lineage
    from ledger.chain.ports import Block
    from ledger.chain.round_ledger import RoundHistory
    from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class OpenRound:
    """What was recorded that counts in the open round.

    Attributes:
        opening: how it began.
        bans: every ban of the run, oldest first.
        commitments: of the round, in chain order.
    """

    opening: RoundOpening
    bans: tuple[ClientBanned, ...]
    commitments: tuple[MinedCommitment, ...]

    def after(self, news: Iterable[Recorded]) -> OpenRound:
        """Return the round that is open once these have been recorded.

        Args:
            news: all that was recorded since, in chain order.
        """
        found = self
        for recorded in news:
            opening = RoundOpening.of(recorded)
            if opening is not None:
                found = OpenRound(opening, found.bans, ())
            elif isinstance(recorded.event, ClientBanned):
                found = replace(found, bans=(*found.bans, recorded.event))
            else:
                found = replace(found, commitments=(*found.commitments, *_mined(recorded)))
        return found


@dataclass(frozen=True, slots=True)
class Followed:
    """What is known after a final block.

    Attributes:
        head: the chain's newest block when it was read.
        final_block: the number of the final one.
        state: what the contract kept after it.
        open_round: None if none is open.
    """

    head: Block
    final_block: int
    state: Snapshot
    open_round: OpenRound | None


class Following:
    """Reads a contract from one final block to the next.

    Attributes:
        newest: what was read last; None before.
    """

    def __init__(self, ledger: RoundHistory, lineage: Lineage) -> None:
        """Take note of a contract; nothing is asked yet.

        Args:
            ledger: it.
            lineage: of its chain's blocks.
        """
        self._ledger = ledger
        self._lineage = lineage
        self.newest: Followed | None = None

    def read(self, head: Block, final_block: int) -> Followed:
        """Return what is known after a final block.

        Args:
            head: the chain's newest block.
            final_block: the number of the final one.

        Raises:
            NotServedError: what the chain answers does not fit together; the next time everything
                is read afresh.
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
            found = self._round(before, state, final_block)
        except NotServedError:
            # What does not fit may be what was read before, of another node behind one address.
            self.newest = None
            raise
        self.newest = Followed(head, final_block, state, found)
        return self.newest

    def _goes_on(self, before: Followed, head: Block, final_block: int) -> bool:
        return before.final_block <= final_block and self._lineage.connects(before.head, head)

    def _round(
        self, before: Followed | None, state: Snapshot, final_block: int
    ) -> OpenRound | None:
        if state.stage is not Stage.OPEN:
            return None
        if before is None or before.open_round is None:
            found = self._afresh(state, final_block)
        elif before.state == state:
            return before.open_round
        else:
            news = self._ledger.recorded_in(before.final_block + 1, final_block)
            _require_head(before.state.head, news, state.head)
            found = before.open_round.after(news)
        _require_whole(found, state)
        return found

    def _afresh(self, state: Snapshot, final_block: int) -> OpenRound:
        opening, head = self._opening(state.round, final_block)
        bans = self._ledger.bans(final_block)
        # Those of rounds before stand behind the head that the round began with.
        for ban in bans:
            if ban.round == state.round:
                head = head_after_ban(head, ban.round, ban.client)
        _require_same_head(head, state.head)
        commitments = self._ledger.commitments(state.round, final_block)
        return OpenRound(opening, tuple(bans), tuple(commitments))

    def _opening(self, round_number: int, final_block: int) -> tuple[RoundOpening, Digest]:
        """Return how a round began, and with which head.

        Raises:
            NotServedError: the logs do not tell.
        """
        if round_number == 1:
            first = self._ledger.opening(1, final_block)
            if first is not None:
                return first, self._ledger.deployment().config
        for recorded in self._ledger.outcomes(1, to_block=final_block):
            opening = RoundOpening.of(recorded)
            if opening is not None and isinstance(recorded.event, RoundDecided | RoundAbandoned):
                return opening, recorded.event.head
        raise NotServedError(
            f"the chain's log does not say how round {round_number} opened: it is not whole"
        )


def _mined(recorded: Recorded) -> tuple[MinedCommitment, ...]:
    if not isinstance(recorded.event, UpdatesCommitted):
        return ()
    taken = zip(recorded.event.clients, recorded.event.commitments, strict=True)
    return tuple(MinedCommitment(recorded.block_number, *one) for one in taken)


def _require_head(head: Digest, news: Iterable[Recorded], expected: Digest) -> None:
    """Accept events that lead from one head to the other.

    Raises:
        NotServedError: they do not: some are missing, or are of another branch of the chain.
    """
    for recorded in news:
        match recorded.event:
            case RoundDecided() | RoundAbandoned() as event:
                head = event.head
            case ClientBanned(number, client, _):
                head = head_after_ban(head, number, client)
            case _:
                pass
    _require_same_head(head, expected)


def _require_same_head(head: Digest, expected: Digest) -> None:
    """Accept that events lead to the head that the contract has.

    Raises:
        NotServedError: they do not.
    """
    if head != expected:
        raise NotServedError(
            f"the logs lead to head 0x{head.hex()}, and the contract has 0x{expected.hex()}: they "
            "are not whole"
        )


def _require_whole(found: OpenRound, state: Snapshot) -> None:
    """Accept what was recorded of a round if the contract's state says the same.

    Raises:
        NotServedError: it does not.
    """
    opening = found.opening
    committee = set_digest(opening.committee)
    if (opening.round, opening.opened_block, opening.seed, committee) != (
        state.round,
        state.opened_block,
        state.seed,
        state.committee,
    ):
        raise NotServedError(
            f"the logs open round {opening.round} in block {opening.opened_block}, and the "
            f"contract has round {state.round}, opened in block {state.opened_block}: they are not "
            "whole, or of another branch of the chain"
        )
    chain = commitments_chain((one.client, one.commitment) for one in found.commitments)
    if chain != state.commitments:
        raise NotServedError(
            f"the logs hold {len(found.commitments)} commitments of round {state.round}, and the "
            "contract's digest is of others: they are not whole"
        )
