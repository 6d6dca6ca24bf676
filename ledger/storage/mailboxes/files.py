"""A mailbox of files, one for each envelope, that any number of processes share.

A file lies under `mail/CHAIN/CONTRACT/ROUND/KIND/` and is named by the sha256 of its bytes, so that
two who put the same envelope write the same file, and a torn or a foreign one is told from an
envelope. Whoever may write there may also delete and fill: a folder or a bucket is for owners who
do not do that to each other; `cmfl blobs serve` is for those who might.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ledger.protocol import digest_patterns
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.storage.mailboxes.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable, Sequence

    from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
    from ledger.protocol.types import Domain
    from ledger.storage.mailboxes.arrivals import Board

MOST_FILES = 65_536
"""Files of one round and kind that are looked at; of more, somebody floods the place."""

MOST_BYTES_AT_ONCE = 64 * 2**20
"""What one listing reads; the rest is read by the next."""

MOST_UNREADABLE = 16
"""Files that cannot be read before the place itself is held to be at fault."""

_NAME = re.compile(digest_patterns.BARE)
_log = logging.getLogger(__name__)


class FoundFile(NamedTuple):
    """A file as its folder's listing has it; the stamp differs once the file has changed."""

    name: str
    size: int
    stamp: Hashable


class MailFiles(Protocol):
    """Where the files lie; names have slashes between folders.

    Each method raises OSError where the place cannot be read or written.
    """

    def found(self, folder: str, most: int, known: Container[str]) -> Iterable[FoundFile]:
        """Return at most so many files of a folder, those that are known left out."""

    def read(self, path: str, limit: int) -> bytes:
        """Return what a file holds, and one byte more than the limit if there is more."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole and durably, in place of what was there."""


class FileMailbox:
    """A mailbox whose files others read and write, too; safe to share between threads."""

    is_shared = True

    def __init__(self, files: MailFiles) -> None:
        self._files = files
        self._boards: dict[Board, Arrivals] = {}
        self._lock = threading.Lock()

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope, and say whether it was not there before.

        Args:
            envelope: written whole and durably before anybody sees it.

        Raises:
            EncodingError: it is larger than anybody would read.
            OSError: it cannot be written.
        """
        path, data = _written(envelope)
        if self._is_there(path, data):
            return False
        self._files.write(path, data)
        return True

    def holds(self, envelope: Envelope) -> bool:
        """Say whether an envelope is there already.

        Args:
            envelope: whose file is looked for.

        Raises:
            EncodingError: it is larger than anybody would read.
        """
        return self._is_there(*_written(envelope))

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round, in the order in which this reader found them.

        Args:
            domain: the contract on its chain.
            round_number: t.
            kind: which.
            start: how many of them are passed over.

        Raises:
            OSError: the place cannot be read.
        """
        board = (domain, round_number, kind)
        with self._lock:
            arrivals = self._boards.setdefault(board, Arrivals(board))
            self._look(folder_of(board), arrivals)
            return arrivals.envelopes[start:]

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop what this reader remembers of rounds that are long over; the files stay for others.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.
        """
        with self._lock:
            for board in [b for b in self._boards if b[0] == domain and b[1] < before_round]:
                del self._boards[board]

    def _is_there(self, path: str, data: bytes) -> bool:
        try:
            return self._files.read(path, len(data)) == data
        except OSError:
            return False  # damaged or unreadable: it is written again

    def _look(self, folder: str, arrivals: Arrivals) -> None:
        """Read what has come since the last time, and no more than so much of it.

        Raises:
            OSError: the place cannot be read.
        """
        left, unreadable = MOST_BYTES_AT_ONCE, 0
        for name, size, stamp in self._files.found(folder, MOST_FILES, arrivals):
            if not _NAME.fullmatch(name) or len(arrivals) >= MOST_FILES:
                continue
            if not arrivals.is_worth_reading(name, size, stamp):
                continue
            try:
                data = self._files.read(f"{folder}/{name}", MAX_DOCUMENT_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable += 1
                if unreadable >= MOST_UNREADABLE:
                    raise
                _log.debug("%s cannot be read: %s", name, error.strerror)
                continue
            arrivals.take(name, data, stamp)
            left -= len(data)
            if left <= 0:
                return


def folder_of(board: Board) -> str:
    """Return where the envelopes of a board lie.

    Args:
        board: contract, round and kind.
    """
    domain, number, kind = board
    return f"{run_folder(domain)}/{number}/{int(kind)}"


def run_folder(domain: Domain) -> str:
    """Return where the mail of one run lies: the salt tells those of one address apart."""
    return f"mail/{domain.chain_id}/{domain.contract.hex()}/{domain.salt.hex()}"


def _written(envelope: Envelope) -> tuple[str, bytes]:
    """Return where an envelope's file lies, and what it holds.

    Raises:
        EncodingError: it is larger than anybody would read.
    """
    data = encode_envelope(envelope)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise EncodingError(
            f"an envelope of {len(data)} bytes is over the bound of {MAX_DOCUMENT_BYTES}"
        )
    board = (envelope.domain, envelope.round, envelope.kind)
    return f"{folder_of(board)}/{sha256(data).hex()}", data
