"""Several places for the same mail: written to all of them, listed from whichever answers."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import encode_envelope
from ledger.protocol.encoding import sha256
from ledger.storage.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
    from ledger.protocol.types import Digest, Domain
    from ledger.storage.mailbox import Mailbox
    from ledger.storage.mailboxes.arrivals import Board

_log = logging.getLogger(__name__)


class _Merged:
    """What was found of one board, wherever."""

    def __init__(self, places: int) -> None:
        self.starts = [0] * places
        self.seen: set[Digest] = set()
        self.envelopes: list[Envelope] = []


class SeveralMailboxes:
    """Mailboxes that hold the same mail, of which any but one may be away.

    One that holds up whoever asks it is left alone for a while.

    Args:
        places: at least one.
        clock: seconds that only go forward.
    """

    is_shared = True

    def __init__(
        self, places: Sequence[Mailbox], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = tuple(places)
        self._resting = CircuitBreaker(len(self._places), clock)
        self._boards: dict[Board, _Merged] = {}
        self._lock = threading.Lock()

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope to every place, and say whether some place did not have it.

        Args:
            envelope: in one place at least once this returns.

        Raises:
            OSError: no place takes it; it is that of the first that was asked.
        """
        news: list[bool] = []
        faults: list[OSError] = []
        for number, rests in self._resting.order():
            if rests and news:
                continue
            begun = self._resting.now()
            try:
                news.append(self._places[number].put(envelope))
                self._resting.answered(number, begun, MAX_DOCUMENT_BYTES)
            except OSError as error:
                self._resting.answered(number, begun)
                faults.append(error)
        _require_one(faults, len(news))
        return any(news)

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round, each once, in the order of this reader.

        Args:
            domain: the contract on its chain.
            round_number: t.
            kind: which.
            start: how many of them are passed over.

        Raises:
            OSError: no place can be read; it is that of the first that was asked.
        """
        board, faults, answers = (domain, round_number, kind), [], 0
        with self._lock:
            merged = self._boards.setdefault(board, _Merged(len(self._places)))
            for number, rests in self._resting.order():
                if rests and answers:
                    continue
                place, begun = self._places[number], self._resting.now()
                try:
                    came = place.listed(domain, round_number, kind, merged.starts[number])
                    self._resting.answered(number, begun, MAX_DOCUMENT_BYTES)
                except OSError as error:
                    self._resting.answered(number, begun)
                    faults.append(error)
                    continue
                answers += 1
                merged.starts[number] += len(came)
                for envelope in came:
                    digest = sha256(encode_envelope(envelope))
                    if digest not in merged.seen:
                        merged.seen.add(digest)
                        merged.envelopes.append(envelope)
            _require_one(faults, answers)
            return merged.envelopes[start:]

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop what is remembered of rounds that are long over.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.
        """
        with self._lock:
            for board in [b for b in self._boards if b[0] == domain and b[1] < before_round]:
                del self._boards[board]
        for place in self._places:
            place.forget(domain, before_round)


def _require_one(faults: list[OSError], answers: int) -> None:
    """Accept that some places failed, but not all that were asked.

    Raises:
        OSError: all did.
    """
    if not answers:
        raise faults[0]
    for error in faults:
        _log.warning("another place has the mail: %s", error.strerror or error)
