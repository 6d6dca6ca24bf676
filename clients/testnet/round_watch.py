"""Results of a test network's rounds, read from chain and blobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.contract.complete_log import CompleteLog
from ledger.history.documents import read_documents
from ledger.history.history import DeploymentFold, FoldedHistory
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.history.round import HistoryRound
    from ledger.protocol.types import ClientId, Digest
    from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class WatchedRound:
    """An ended round, by chain and record.

    Attributes:
        number: t.
        seconds: since the end of the previous round, by the watcher's clock.
        views: in which the two phases were decided; None if it was abandoned.
        accepted: clients whose updates are in the model.
        late: active clients without a commitment by the closing block.
        unusable: active clients with a commitment, whose payload is not in the record.
        refused: members whose score vectors the record refuses.
        banned: clients banned during the round.
        model: digest of w_{t+1}; None if it was abandoned.
        head: commits to the history up to this round.
        commitments: number of transactions with commitments.
        malformed: unusable clients whose payload is not d finite numbers.
        accused: members that the incidents document names for conflicting signatures.
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
        """True if a committee decided it."""
        return self.views is not None


class RoundWatch:
    """Follows the rounds of a contract in order."""

    def __init__(
        self, ledger: CommitteeLedger, blobs: BlobReader, now: Callable[[], float], first: int = 1
    ) -> None:
        """Start at a round; `now` returns seconds by the watcher's clock."""
        self.ledger = ledger
        self._blobs = blobs
        self._now = now
        self._next = first
        self._since = now()
        self._log, self._fold = CompleteLog(), DeploymentFold()

    def is_finished(self) -> bool:
        """Return whether no round is open any more; False if the node does not answer."""
        try:
            return self.ledger.state().stage is not LedgerStage.OPEN
        except ChainError:
            return False

    def open(self) -> HistoryRound | None:
        """Return the open round so far; None if there is none."""
        try:
            round_ = self._history().round(self._next)
        except ChainError:
            return None
        return round_ if round_ is not None and round_.ended is None else None

    def ended(self) -> WatchedRound | None:
        """Return the next ended round; None if it is still open or the node does not answer."""
        try:
            # Polled many times a second: all else is read once a round has ended.
            now_open = self.ledger.state()
            if now_open.round <= self._next and now_open.stage is LedgerStage.OPEN:
                return None
            round_ = self._history().round(self._next)
        except ChainError:
            return None
        if round_ is None or round_.end is None:
            return None
        now = self._now()
        watched = self._told(round_, now - self._since)
        self._next, self._since = self._next + 1, now
        return watched

    def _history(self) -> FoldedHistory:
        return self._fold.up_to(self._log.up_to(self.ledger), self._blobs)

    def _told(self, round_: HistoryRound, seconds: float) -> WatchedRound:
        active = round_.participants.expected
        end, decided = round_.end, round_.decided
        assert end is not None, "only ended rounds are returned"
        documents = read_documents(self._blobs, round_)
        record = documents.record
        usable = set() if record is None else {update.client for update in record.updates}
        refused = (
            ()
            if record is None
            else tuple(sorted({r.signed.scores.member for r in record.refused}))
        )
        dropouts = () if record is None else record.dropouts
        malformed = {d.client for d in dropouts if d.reason is DropoutReason.PAYLOAD_MALFORMED}
        unusable = round_.counted - usable if record is not None else frozenset()
        return WatchedRound(
            number=round_.round,
            seconds=seconds,
            views=None if decided is None else decided.views,
            accepted=() if decided is None else decided.accepted,
            late=tuple(sorted(active - round_.counted)),
            unusable=tuple(sorted(unusable)),
            refused=refused,
            banned=round_.banned,
            model=None if decided is None else decided.model,
            head=end.head,
            commitments=len({mined.block for mined in round_.mined}),
            malformed=tuple(sorted(malformed)),
            accused=tuple(sorted({i.member for i in documents.reported_incidents if i.votes})),
        )
