"""Where signed envelopes are put and listed; anybody may put anything into it."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from ledger.protocol.documents.envelope import decode_envelope, encode_envelope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
    from ledger.protocol.types import Domain

_Board = tuple["Domain", int, "EnvelopeKind"]


class Mailbox(Protocol):
    """A board that everybody can read and write.

    Attributes:
        is_shared: whether other processes read it. A power cut does not take back what they have
            read, so that what mail refers to has to be durable before it is put here.
    """

    is_shared: bool

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope, and say whether it was not there before.

        Raises:
            OSError: it cannot be written.
        """

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round, in the order in which they came.

        Args:
            domain: the contract on its chain.
            round_number: t.
            kind: which.
            start: how many of them are passed over.

        Raises:
            OSError: it cannot be read.
        """

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop the envelopes of rounds that are long over.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.
        """


class MemoryMailbox:
    """A mailbox that lives as long as its process; what is listed has gone through its bytes."""

    is_shared = False

    def __init__(self) -> None:
        self._kept: dict[_Board, dict[bytes, Envelope]] = defaultdict(dict)

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope, and say whether it was not there before."""
        board = self._kept[envelope.domain, envelope.round, envelope.kind]
        data = encode_envelope(envelope)
        if data in board:
            return False
        board[data] = decode_envelope(data, envelope.domain)
        return True

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round, in the order in which they came."""
        board = self._kept[domain, round_number, kind]
        return list(islice(board.values(), start, None))

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop the envelopes of rounds that are long over.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.
        """
        for key in [k for k in self._kept if k[0] == domain and k[1] < before_round]:
            del self._kept[key]
