"""Mail: envelopes of this contract, put by its clients and listed in the order of their arrival."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.responses import Response

from api.http.problems import ProblemError
from api.store.charges import ChargeKind
from api.store.problems import BOARD_NOT_FOUND, BODY_WRONG, ENVELOPE_INVALID
from api.store.receiver import require_round
from ledger.protocol import digest_patterns
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest
from ledger.storage.mail_page import (
    MAX_ENVELOPE_BYTES,
    MAX_PAGE_ENVELOPES,
    Page,
    encode_page,
)
from ledger.storage.mailbox import decode_mail
from ledger.storage.objects import MAX_FOLDER_BYTES, MAX_FOLDER_OBJECTS

if TYPE_CHECKING:
    from starlette.requests import Request

    from api.store.permissions import WritePermissions
    from api.store.receiver import Receiver
    from api.store.settings import StoreSettings
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.types import Upload
    from ledger.storage.mailbox import Board, ObjectMailbox

LEAST_ENVELOPES = 256
LEAST_MAIL_BYTES = 4 * 2**20
"""What a client may say in a round however many others there are; an honest one says far less."""

_NUMBER = re.compile("0|[1-9][0-9]{0,19}")
_NAME = re.compile(digest_patterns.BARE)
_NO_STORE = {"Cache-Control": "no-store"}


class MailRoutes:
    """Answers for the mail of one contract.

    Args:
        receiver: takes what clients send.
        mailbox: of the store's folder.
        epoch: random bytes that say which order this process counts in.
    """

    def __init__(self, receiver: Receiver, mailbox: ObjectMailbox, epoch: bytes) -> None:
        self._receiver = receiver
        self._mailbox = mailbox
        self._epoch = epoch

    async def give(self, request: Request) -> Response:
        """Give the envelopes behind the first N of a board, a page of them.

        Args:
            request: with the board, and N as `after`.

        Raises:
            ProblemError: there is no such board.
            ChainError: which rounds are listed cannot be told.
            OSError: the folder cannot be read.
        """
        board = self._board(request)
        after = _whole("after", request.query_params.get("after", "0"))
        page = await to_thread.run_sync(self._page, board, after)
        return Response(page, headers=_NO_STORE, media_type="application/octet-stream")

    async def take(self, request: Request) -> Response:
        """Keep an envelope: 201 once it is durable, 200 if it was there.

        Members pass on what others have said and somebody lacks; that costs the one who does.

        Args:
            request: with board and name, a client's signature and the bytes.

        Raises:
            ProblemError: it is not to be kept.
            ChainError: who may write cannot be told.
            OSError: it cannot be written.
        """
        board, name = self._board(request), str(request.path_params["digest"])
        if not _NAME.fullmatch(name):
            raise ProblemError(BOARD_NOT_FOUND, "an envelope's name is its sha256")
        receiver, settings = self._receiver, self._receiver.settings
        digest = Digest(bytes.fromhex(name))
        upload, standing = await to_thread.run_sync(
            receiver.signed, request, digest, MAX_DOCUMENT_BYTES
        )
        require_round(standing, board[1])
        data = await receiver.read(request, upload)
        # Not where everybody is answered: a megabyte is hashed and taken apart.
        envelope = await to_thread.run_sync(_genuine, data, digest, board, standing)
        most = _share(settings, len(standing.registry))
        # What counts is whose board it is on: the bytes name it, and the signature names no board.
        charged = replace(upload, round=envelope.round)
        is_new = await to_thread.run_sync(self._keep, envelope, charged, most)
        return Response(status_code=201 if is_new else 200, headers=_NO_STORE)

    def _keep(self, envelope: Envelope, upload: Upload, most: tuple[int, int]) -> bool:
        if self._mailbox.holds(envelope):
            return False
        self._receiver.charge(upload, ChargeKind.ENVELOPE, most)
        is_kept = False
        try:
            is_new = self._mailbox.put(envelope)
            is_kept = True
        finally:
            self._receiver.charges.settle(upload, ChargeKind.ENVELOPE, is_kept=is_kept)
        return is_new

    def _page(self, board: Board, after: int) -> bytes:
        """Return a page; of rounds that are long over there is none."""
        standing = self._receiver.standings.now()
        oldest = standing.round - self._receiver.settings.mail_rounds + 1
        self._mailbox.forget(board[0], oldest)
        if not oldest <= board[1] <= standing.round + 1:
            return encode_page(Page(self._epoch, after, ()))
        found: list[bytes] = []
        size = 0
        for envelope in self._mailbox.listed(*board, after)[:MAX_PAGE_ENVELOPES]:
            data = encode_envelope(envelope)
            size += len(data)
            if found and size > MAX_ENVELOPE_BYTES:
                break
            found.append(data)
        return encode_page(Page(self._epoch, after, tuple(found)))

    def _board(self, request: Request) -> Board:
        """Return the board that a path names.

        Raises:
            ProblemError: it is none of this contract.
        """
        domain, named = self._receiver.standings.domain, request.path_params
        number = _whole("round", named["round"])
        kinds = {str(int(kind)): kind for kind in EnvelopeKind}
        run = (named["chain"], named["contract"], named["salt"])
        if run != (str(domain.chain_id), domain.contract.hex(), domain.salt.hex()):
            raise ProblemError(BOARD_NOT_FOUND, "this store has the mail of another contract")
        if named["kind"] not in kinds:
            raise ProblemError(BOARD_NOT_FOUND, "there are no envelopes of this kind")
        return domain, number, kinds[named["kind"]]


def _genuine(data: bytes, digest: Digest, board: Board, standing: WritePermissions) -> Envelope:
    """Return the envelope of a registered client that bytes hold.

    Raises:
        ProblemError: they hold none of this board, or have another name.
    """
    if sha256(data) != digest:
        raise ProblemError(BODY_WRONG, f"the bytes have another sha256 than {digest.hex()}")
    envelope = decode_mail(data, board)
    if envelope is None:
        raise ProblemError(ENVELOPE_INVALID, "these are not the bytes of an envelope of this board")
    if envelope.client >= len(standing.registry):
        said = f"client {envelope.client} is none of the {len(standing.registry)} registered ones"
        raise ProblemError(ENVELOPE_INVALID, said)
    return envelope


def _share(settings: StoreSettings, clients: int) -> tuple[int, int]:
    """Return how many envelopes of one round a client may put, and how many bytes.

    A reader bounds what it takes of a board. Were the quotas of a few clients together larger than
    that, they could fill a board before anybody else has said a word.
    """
    envelopes = max(LEAST_ENVELOPES, MAX_FOLDER_OBJECTS // clients)
    size = max(LEAST_MAIL_BYTES, MAX_FOLDER_BYTES // clients)
    return min(settings.quota_envelopes, envelopes), min(settings.quota_mail_bytes, size)


def _whole(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= 2**64:
        raise ProblemError(BOARD_NOT_FOUND, f"{name} is a whole number below 2**64")
    return int(text)
