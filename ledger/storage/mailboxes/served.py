"""The mailbox of `cmfl blobs serve`: one server, trusted for nothing but to pass on what it has."""

from __future__ import annotations

import errno
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from ledger.io.http import HttpFailureError, HttpServer
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.payload import Payload
from ledger.storage.mailboxes.arrivals import Arrivals
from ledger.storage.mailboxes.files import MOST_FILES, folder_of
from ledger.storage.mailboxes.page import MAX_PAGE_BYTES, decode_page
from ledger.storage.patience import PATIENT, SILENCE_SECONDS, asked
from ledger.storage.served import StoreServer, require_no_user

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.io.retry import RetryPolicy
    from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
    from ledger.protocol.types import Domain
    from ledger.storage.mailboxes.arrivals import Board
    from ledger.storage.mailboxes.page import Page
    from ledger.storage.uploads import UploadSigner

MOST_PAGES = 64
"""Pages that one listing reads; the rest is read by the next."""

LISTING_SECONDS = 10.0
"""After so long a listing asks for no more pages: a server that drips each would hold a reader."""


class _Reading:
    """Where a reader stands on one board."""

    def __init__(self, board: Board) -> None:
        self.arrivals = Arrivals(board)
        self.epoch = b""
        self.after = 0


class ServedMailbox:
    """A mailbox behind a URL; safe to share between threads.

    Args:
        url: of the store, http or https.
        uploads: signs; None to read only.
        timeout_seconds: for one attempt at one page or envelope.
        patience: how often the server is asked.
        clock: seconds that only go forward.

    Raises:
        BlobError: the URL is none, or holds a user or a password.
    """

    is_shared = True

    def __init__(
        self,
        url: str,
        uploads: UploadSigner | None,
        timeout_seconds: float = 30.0,
        patience: RetryPolicy = PATIENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._clock = clock
        try:
            self._server = HttpServer(url, timeout_seconds, silence_seconds=SILENCE_SECONDS)
        except ValueError as error:
            raise BlobError(f"the mailbox's URL: {error}") from None
        require_no_user("mailbox", url)
        self._store = StoreServer(self._server, uploads, self._patience)
        self._boards: dict[Board, _Reading] = {}
        self._lock = threading.Lock()

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope, and say whether it was not there before.

        Args:
            envelope: durable once this returns.

        Raises:
            EncodingError: it is larger than anybody would read.
            OSError: the server does not take it, or does not answer.
        """
        data = encode_envelope(envelope)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise EncodingError(
                f"an envelope of {len(data)} bytes is over the bound of {MAX_DOCUMENT_BYTES}"
            )
        payload = Payload.of(data)
        board = (envelope.domain, envelope.round, envelope.kind)
        try:
            return self._store.keep(f"/{folder_of(board)}/{payload.digest.hex()}", payload)
        except HttpFailureError as error:
            raise OSError(errno.EIO, str(error)) from None

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
            OSError: the server does not answer, or gives what is no page.
        """
        board = (domain, round_number, kind)
        with self._lock:
            reading = self._boards.setdefault(board, _Reading(board))
            end = self._clock() + LISTING_SECONDS
            for _ in range(MOST_PAGES):
                if not self._read_page(board, reading) or self._clock() >= end:
                    break
            return reading.arrivals.envelopes[start:]

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop what this reader remembers of rounds that are long over; the server has its rule.

        Args:
            domain: the contract on its chain.
            before_round: the first round that is kept.
        """
        with self._lock:
            for board in [b for b in self._boards if b[0] == domain and b[1] < before_round]:
                del self._boards[board]

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _read_page(self, board: Board, reading: _Reading) -> bool:
        """Take the next page, and say whether another may follow."""
        page = self._page(board, reading.after)
        if page.epoch != reading.epoch:
            # The server has begun anew: its numbers are others, and what is known is known.
            is_behind = reading.after > 0
            reading.epoch, reading.after = page.epoch, 0
            if is_behind:
                return True
        if page.after != reading.after or len(reading.arrivals) >= MOST_FILES:
            return False
        reading.after += len(page.envelopes)
        for data in page.envelopes:
            name = sha256(data).hex()
            if reading.arrivals.is_worth_reading(name, len(data), stamp=None):
                reading.arrivals.take(name, data, stamp=None)
        return bool(page.envelopes)

    def _page(self, board: Board, after: int) -> Page:
        """Return the page behind so many envelopes.

        Raises:
            OSError: there is none.
        """
        path = f"/{folder_of(board)}?after={after}"
        try:
            answer = asked(
                self._patience,
                lambda: self._server.get(path, MAX_PAGE_BYTES),
                lambda said: said.status,
            )
        except HttpFailureError as error:
            raise OSError(errno.EIO, str(error)) from None
        if answer.status != HTTPStatus.OK:
            raise OSError(
                errno.EIO, f"{self._server.shown_url} answers with HTTP status {answer.status}"
            )
        try:
            return decode_page(answer.body)
        except EncodingError as error:
            raise OSError(errno.EIO, f"{self._server.shown_url}: no page: {error}") from None
