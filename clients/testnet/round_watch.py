"""What a federation has come to, read from its chain and blobs like anybody else would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.history.chain_history import ChainHistory
from ledger.history.documents import read_documents
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.history.round import Round
    from ledger.protocol.types import ClientId, Digest
    from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class WatchedRound:
    """A round that is over, as chain and record tell it.

    Attributes:
        number: t.
        seconds: on the watcher's clock since the round before it ended.
        views: in which the two phases were decided; None if it was abandoned.
        accepted: whose updates are in the model.
        late: active clients without a commitment by the closing block.
        unusable: active clients with a commitment, whose payload is not in the record.
        refused: members whose score vectors the record refuses.
        banned: in the round's course.
        model: digest of w_{t+1}; None if it was abandoned.
        head: what commits to the history up to here.
        commitments: how many transactions brought commitments.
        malformed: those of the unusable whose payload is none of d finite numbers.
        accused: members that the incidents document names for what they have signed.
    """

    number: int
    seconds: float
    views: tuple[int, int] | None
    accepted: tuple[ClientId, ...]
    late: tuple[ClientId, ...]
    unusable: tuple[ClientId, ...]
    refused: tuple[ClientId, ...]
    banned: tuple[ClientId, ...]
    model: Digest | None
    head: Digest
    commitments: int
    malformed: tuple[ClientId, ...] = ()
    accused: tuple[ClientId, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether a committee decided it."""
        return self.views is not None


class RoundWatch:
    """Follows the rounds of a contract, one after the other."""

    def __init__(
        self, ledger: CommitteeLedger, blobs: BlobReader, now: Callable[[], float], first: int = 1
    ) -> None:
        """Begin with a round.

        Args:
            ledger: the contract.
            blobs: where the records are.
            now: the watcher's clock, in seconds.
            first: the first round that is told.
        """
        self.ledger = ledger
        self._blobs = blobs
        self._now = now
        self._next = first
        self._since = now()

    def is_finished(self) -> bool:
        """Say whether no round is open any more; a node that does not answer says nothing."""
        try:
            return self.ledger.state().stage is not LedgerStage.OPEN
        except ChainError:
            return False

    def open(self) -> Round | None:
        """Return the round that is open, with what came in so far; None if there is none."""
        try:
            found = self._history().round(self._next)
        except ChainError:
            return None
        return found if found is not None and found.ended is None else None

    def ended(self) -> WatchedRound | None:
        """Return the next round that is over, None if it is not, or the node does not answer."""
        try:
            # Asked many times a second: all else is read once there is something to be told.
            now_open = self.ledger.state()
            if now_open.round <= self._next and now_open.stage is LedgerStage.OPEN:
                return None
            found = self._history().round(self._next)
        except ChainError:
            return None
        if found is None or found.end is None:
            return None
        now = self._now()
        told = self._told(found, now - self._since)
        self._next, self._since = self._next + 1, now
        return told

    def _history(self) -> ChainHistory:
        return ChainHistory.of(self.ledger, self._blobs)

    def _told(self, one: Round, seconds: float) -> WatchedRound:
        active = one.participants.expected
        end, decided = one.end, one.decided
        assert end is not None, "only rounds that are over are told"
        documents = read_documents(self._blobs, one)
        record = documents.record
        usable = set() if record is None else {update.client for update in record.updates}
        refused = (
            ()
            if record is None
            else tuple(sorted({r.signed.scores.member for r in record.refused}))
        )
        dropouts = () if record is None else record.dropouts
        malformed = {d.client for d in dropouts if d.reason is DropoutReason.PAYLOAD_MALFORMED}
        unusable = one.counted - usable if record is not None else frozenset()
        return WatchedRound(
            number=one.round,
            seconds=seconds,
            views=None if decided is None else decided.views,
            accepted=() if decided is None else decided.accepted,
            late=tuple(sorted(active - one.counted)),
            unusable=tuple(sorted(unusable)),
            refused=refused,
            banned=one.banned,
            model=None if decided is None else decided.model,
            head=end.head,
            commitments=len({mined.block for mined in one.mined}),
            malformed=tuple(sorted(malformed)),
            accused=tuple(sorted({i.member for i in documents.reported_incidents if i.votes})),
        )
