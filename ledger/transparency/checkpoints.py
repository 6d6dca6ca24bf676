"""Checkpoints of logs (c2sp.org/tlog-checkpoint) and cosignatures (c2sp.org/tlog-cosignature).

A signature of the log alone binds it: two trees of one size, or a tree that the run does not have,
contradict. That nothing newer exists is what a quorum of witnesses stands for, as of the time of
their cosignatures; so these may be neither old nor from the future.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.protocol.types import Digest
from ledger.transparency.notes import (
    HASH_BYTES,
    KeyUse,
    NoteError,
    NoteSignature,
    SignedNote,
    SigningKey,
    VerifierKey,
    decode_base64,
    parse_note,
)

MAX_SIZE = 2**63 - 1
"""Most leaves of a tree, and the largest time of a cosignature."""

_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
_TIME_BYTES = 8
_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a log's tree."""

    origin: str
    size: int
    root: Digest

    @property
    def text(self) -> str:
        """The text that a log signs."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


@dataclass(frozen=True, slots=True)
class Cosignature:
    """A witness's statement that it saw no larger tree of a log at some time."""

    key: VerifierKey
    time: int  # seconds since 1970
    line: NoteSignature


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with its log's signature, which was verified."""

    checkpoint: Checkpoint
    note: SignedNote
    by_log: tuple[NoteSignature, ...]

    def alone(self) -> SignedNote:
        return replace(self.note, signatures=self.by_log)

    def cosignatures(self, witnesses: Sequence[VerifierKey]) -> list[Cosignature]:
        """Return the cosignatures of known witnesses, the newest of each; others are ignored."""
        newest: dict[VerifierKey, Cosignature] = {}
        for key, line in self.note.by(witnesses):
            cosignature = Cosignature(key, _verified_time(self.note.text, key, line), line)
            if key not in newest or newest[key].time < cosignature.time:
                newest[key] = cosignature
        return list(newest.values())


def sign_checkpoint(checkpoint: Checkpoint, key: SigningKey) -> SignedCheckpoint:
    """Return a checkpoint with its log's signature alone."""
    signature = key.sign(checkpoint.text.encode())
    line = NoteSignature(key.name, key.verifier.key_id, signature)
    return SignedCheckpoint(checkpoint, SignedNote(checkpoint.text, (line,)), (line,))


def cosign(text: str, key: SigningKey, time: int) -> NoteSignature:
    """Return a witness's signature line; the time is in seconds since 1970."""
    signature = key.sign(_cosigned_message(text, time))
    return NoteSignature(key.name, key.verifier.key_id, time.to_bytes(_TIME_BYTES) + signature)


def open_checkpoint(data: bytes, logs: Sequence[VerifierKey]) -> SignedCheckpoint:
    """Return a checkpoint that is signed by a known log of its origin."""
    note = parse_note(data)
    checkpoint = parse_checkpoint(note.text)
    keys = [key for key in logs if key.name == checkpoint.origin and key.use is KeyUse.NOTE]
    if not keys:
        raise NoteError(f"the checkpoint is of another log, {checkpoint.origin[:200]!a}")
    lines = note.by(keys)
    for key, line in lines:
        if not key.is_signed(note.text.encode(), line.signature):
            raise NoteError(f"the signature of {key.name} does not hold for this checkpoint")
    if not lines:
        raise NoteError(f"the checkpoint of {checkpoint.origin} has no signature of that log's key")
    return SignedCheckpoint(checkpoint, note, tuple(line for _, line in lines))


def parse_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint in a note's text; what follows its three lines is not looked at."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):
        raise NoteError("a checkpoint has three lines or more, none empty: origin, size and root")
    origin, size, root = lines[:3]
    if not _NUMBER.fullmatch(size) or int(size) > MAX_SIZE:
        raise NoteError(f"the size of a checkpoint is {size[:40]!a}, no number below 2^63")
    digest = decode_base64(root)
    if len(digest) != HASH_BYTES:
        raise NoteError(f"the root of a checkpoint is {root[:60]!a}, not 32 bytes of base64")
    return Checkpoint(origin, int(size), Digest(digest))


def _verified_time(text: str, key: VerifierKey, line: NoteSignature) -> int:
    time = int.from_bytes(line.signature[:_TIME_BYTES])
    has_form = len(line.signature) == _TIME_BYTES + _SIGNATURE_BYTES and 0 < time <= MAX_SIZE
    message = _cosigned_message(text, time)
    if not has_form or not key.is_signed(message, line.signature[_TIME_BYTES:]):
        raise NoteError(f"the cosignature of {key.name} does not hold for this checkpoint")
    return time


def _cosigned_message(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()
