"""What one reader has found on a board that others write to, in an order of its own.

Files arrive in any order and at any time, so a reader numbers what it finds and forgets no
number: nothing is lost, and nothing comes twice. What is no envelope of the board is remembered,
too, and looked at again only once it has changed, and only so often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import decode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
    from ledger.protocol.types import Domain

Board = tuple["Domain", int, "EnvelopeKind"]

MOST_BOARD_BYTES = 512 * 2**20
"""Envelopes of one kind and round that a reader keeps.

Nothing is counted for each client that an envelope names: anybody can put another's name on one,
even behind a true signature of its request, and would use up what is the other's.
"""

MOST_LOOKS = 8
"""How often one name is read that has held no envelope so far."""


class Arrivals:
    """The envelopes of one board that one reader has found.

    Attributes:
        envelopes: in the order in which they were found.
    """

    def __init__(self, board: Board) -> None:
        self.envelopes: list[Envelope] = []
        self._board = board
        self._taken: set[str] = set()
        self._passed: dict[str, tuple[Hashable, int]] = {}
        self._bytes = 0

    def __contains__(self, name: object) -> bool:
        """Say whether an envelope was found under this name."""
        return name in self._taken

    def __len__(self) -> int:
        """Return how many names are remembered."""
        return len(self._taken) + len(self._passed)

    def is_worth_reading(self, name: str, size: int, stamp: Hashable) -> bool:
        """Say whether a name may hold an envelope that was not found yet.

        Args:
            name: of the file.
            size: in bytes.
            stamp: differs once the file has changed.
        """
        if name in self._taken or size > MAX_DOCUMENT_BYTES:
            return False
        seen, looks = self._passed.get(name, (None, 0))
        return looks == 0 or (looks < MOST_LOOKS and seen != stamp)

    def take(self, name: str, data: bytes, stamp: Hashable) -> None:
        """Keep what a file holds if it is an envelope of the board.

        Args:
            name: of the file, the sha256 of its bytes.
            data: what it holds, and one byte more than an envelope may have if there is more.
            stamp: differs once the file has changed.
        """
        envelope = envelope_in(data, self._board) if sha256(data).hex() == name else None
        if envelope is None or self._bytes + len(data) > MOST_BOARD_BYTES:
            _, looks = self._passed.get(name, (None, 0))
            self._passed[name] = (stamp, looks + 1)
            return
        self._passed.pop(name, None)
        self._bytes += len(data)
        self._taken.add(name)
        self.envelopes.append(envelope)


def envelope_in(data: bytes, board: Board) -> Envelope | None:
    """Return the envelope that bytes from anybody hold, None if it is none of this board.

    Args:
        data: the bytes.
        board: contract, round and kind.
    """
    try:
        found = decode_envelope(data, board[0])
    except EncodingError:
        return None
    return found if (found.round, found.kind) == board[1:] else None
