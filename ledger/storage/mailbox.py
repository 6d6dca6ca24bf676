"""Mailbox: signed envelopes, put and listed by anyone, by contract, round and kind.

An envelope is an object under `mail/CHAIN/CONTRACT/SALT/ROUND/KIND/`. A mailbox in a folder or a
bucket is for owners who trust each other not to delete or flood it; `cmfl blobs serve` is for
others. It gives them pages: canonical msgpack, bounded, whose numbers count from its start.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.protocol import canonical
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.errors import EncodingError
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Domain
from ledger.storage.blobs import FolderCursor, MemoryObjects, ObjectStore

MAIL_FOLDER = "mail"
EPOCH_BYTES = 16
MAX_PAGE_ENVELOPES = 256
MAX_ENVELOPE_BYTES = 2 * 2**20  # of a page together; the first may have any size
MAX_PAGE_BYTES = MAX_ENVELOPE_BYTES + MAX_DOCUMENT_BYTES + 16 * MAX_PAGE_ENVELOPES + 1_000
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Page:
    """The bytes of one board's envelopes after the first `after`; the epoch names the numbering."""

    epoch: bytes
    after: int
    envelopes: tuple[bytes, ...]


def encode_page(page: Page) -> bytes:
    """Return the bytes of a page."""
    place = {"version": _VERSION, "epoch": page.epoch, "after": page.after}
    return canonical.encode(place | {"envelopes": list(page.envelopes)})


def decode_page(data: bytes) -> Page:
    """Return the page in untrusted bytes; its envelopes are not decoded."""
    # A map and a list: more is no page, however much memory it would take.
    fields = canonical.decode(data, MAX_PAGE_BYTES, containers=2, longest=MAX_PAGE_ENVELOPES)
    types = {"version": int, "epoch": bytes, "after": int, "envelopes": list}
    value = canonical.exact_fields(fields, types)
    if value["version"] != _VERSION or any(type(each) is not bytes for each in value["envelopes"]):
        raise EncodingError("a page must have version 1, and envelopes as bytes")
    epoch = canonical.fixed_bytes("epoch", value["epoch"], EPOCH_BYTES)
    return Page(epoch, canonical.unsigned("after", value["after"], 64), tuple(value["envelopes"]))


Board = tuple[Domain, int, EnvelopeKind]  # a contract, a round and a kind of envelope
_ROUND = re.compile("0|[1-9][0-9]{0,19}")


class Mailbox:
    """The mailbox of an object store; safe to share between threads."""

    def __init__(self, objects: ObjectStore) -> None:
        self.is_shared = objects.is_shared
        self.objects = objects
        self._boards: dict[Board, _BoardReader] = {}
        self._lock = threading.Lock()

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope durably; return False if it was there."""
        return self.objects.put(*_object_of(envelope))

    def holds(self, envelope: Envelope) -> bool:
        """Return whether an envelope is there, undamaged."""
        path, payload = _object_of(envelope)
        try:
            self.objects.get(path, payload.size)
        except OSError:
            return False
        return True

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one board, the first `start` left out."""
        board = (domain, round_number, kind)
        with self._lock:
            reader = self._boards.get(board) or self._boards.setdefault(board, _BoardReader(board))
            self.objects.scan(board_folder(board), reader.cursor)
            return reader.envelopes[start:]

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop what this reader remembers of the rounds before one; others can still read them."""
        with self._lock:
            for board in [b for b in self._boards if b[0] == domain and b[1] < before_round]:
                del self._boards[board]


class MemoryMailbox(Mailbox):
    """A mailbox in this process, for tests and simulations; what is forgotten is gone."""

    def __init__(self) -> None:
        self._memory = MemoryObjects()
        super().__init__(self._memory)

    def forget(self, domain: Domain, before_round: int) -> None:
        super().forget(domain, before_round)
        for folder in list(self._memory.folders):
            run, number, _ = folder.rsplit("/", 2)
            if run == run_folder(domain) and int(number) < before_round:
                del self._memory.folders[folder]


class _BoardReader:
    def __init__(self, board: Board) -> None:
        self.envelopes: list[Envelope] = []
        self.cursor = FolderCursor(self._accept, MAX_DOCUMENT_BYTES)
        self._board = board

    def _accept(self, data: bytes) -> bool:
        envelope = decode_mail(data, self._board)
        if envelope is not None:
            self.envelopes.append(envelope)
        return envelope is not None


def decode_mail(data: bytes, board: Board) -> Envelope | None:
    """Return the envelope of a board in untrusted bytes, None if there is none."""
    try:
        envelope = decode_envelope(data, board[0])
    except EncodingError:
        return None
    return envelope if (envelope.round, envelope.kind) == board[1:] else None


def board_folder(board: Board) -> str:
    """Return the folder of a board."""
    domain, number, kind = board
    return f"{run_folder(domain)}/{number}/{int(kind)}"


def run_folder(domain: Domain) -> str:
    """Return the folder of one run's mail; the salt separates runs of one contract address."""
    return f"{MAIL_FOLDER}/{domain.chain_id}/{domain.contract.hex()}/{domain.salt.hex()}"


def remove_mail(folder: Path, domain: Domain, before_round: int) -> list[int]:
    """Remove old rounds' mail from a local folder, for all readers; return the rounds.

    Environments and attestations stay: they are small, and a repetition of training needs the
    environment of an update of any round, as its coverage needs the attestations of every round.
    """
    retained = {str(int(kind)) for kind in (EnvelopeKind.ENVIRONMENT, EnvelopeKind.ATTESTATION)}
    mail = folder / run_folder(domain)
    names = [path.name for path in mail.glob("*") if _ROUND.fullmatch(path.name)]
    faults: list[OSError] = []
    removed = []
    for number in sorted(number for number in map(int, names) if number < before_round):
        boards = mail / str(number)
        try:
            paths = list(boards.iterdir())
            removable = [path for path in paths if path.name not in retained]
            for path in removable:
                shutil.rmtree(path)
            if len(removable) == len(paths):
                boards.rmdir()
            removed += [number] if removable else []
        except FileNotFoundError:
            continue  # another process removes it, too
        except OSError as error:
            faults.append(error)
    if faults:
        raise faults[0]
    return removed


def _object_of(envelope: Envelope) -> tuple[str, Payload]:
    payload = Payload.of(encode_envelope(envelope))
    if payload.size > MAX_DOCUMENT_BYTES:
        raise EncodingError(
            f"an envelope of {payload.size} bytes is over the bound of {MAX_DOCUMENT_BYTES}"
        )
    board = (envelope.domain, envelope.round, envelope.kind)
    return f"{board_folder(board)}/{payload.digest.hex()}", payload
