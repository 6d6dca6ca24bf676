"""Signed notes (c2sp.org/signed-note): text, a blank line, and one line for each signature."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ledger.transparency.errors import NoteError
from ledger.transparency.keys import VerifierKey, decode_base64, require_key_name

MAX_NOTE_BYTES = 100_000
MAX_SIGNATURES = 300
"""More than a policy has witnesses, for a checkpoint may have the cosignatures of all of them."""
_DASH = "— "
_KEY_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line.

    Attributes:
        key_id: its four bytes.
        signature: the bytes after the key id.
    """

    name: str
    key_id: bytes
    signature: bytes

    def __str__(self) -> str:
        """The line, with its newline."""
        encoded = base64.b64encode(self.key_id + self.signature).decode()
        return f"{_DASH}{self.name} {encoded}\n"

    def is_of(self, key: VerifierKey) -> bool:
        """Say whether the line names a key."""
        return (self.name, self.key_id) == (key.name, key.key_id)


@dataclass(frozen=True, slots=True)
class SignedNote:
    """A text and the signatures below it, verified or not."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def encoded(self) -> bytes:
        return f"{self.text}\n{''.join(map(str, self.signatures))}".encode()

    def with_signatures(self, signatures: Iterable[NoteSignature]) -> SignedNote:
        """Return the note with further lines; one of a key that has a line already replaces it."""
        lines = {(line.name, line.key_id): line for line in (*self.signatures, *signatures)}
        return replace(self, signatures=tuple(lines.values()))

    def by(self, keys: Sequence[VerifierKey]) -> list[tuple[VerifierKey, NoteSignature]]:
        """Return the lines that name one of some keys, each once; they are not verified."""
        lines = dict.fromkeys(self.signatures)
        return [(key, line) for line in lines for key in keys if line.is_of(key)]


def parse_note(data: bytes) -> SignedNote:
    """Return a note and its signatures, none of which is verified."""
    if len(data) > MAX_NOTE_BYTES:
        raise NoteError(f"a note of over {MAX_NOTE_BYTES} bytes is not read")
    text, separator, lines = _text_of(data).rpartition("\n\n")
    if not separator or not text:
        raise NoteError("a note is a text, a blank line and signatures")
    return SignedNote(f"{text}\n", parse_signatures(lines))


def parse_signatures(lines: str) -> tuple[NoteSignature, ...]:
    """Return the signatures of one or more lines."""
    parts = lines.split("\n")
    if parts.pop() or not parts:
        raise NoteError("a note ends with one signature line or more, each with a newline")
    if len(parts) > MAX_SIGNATURES:
        raise NoteError(f"a note has at most {MAX_SIGNATURES} signatures, not {len(parts)}")
    return tuple(map(_signature_of, parts))


def signature_lines(data: bytes) -> tuple[NoteSignature, ...]:
    """Return the signatures of a witness's answer."""
    return parse_signatures(_text_of(data))


def _signature_of(line: str) -> NoteSignature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    data = decode_base64(encoded)
    if not line.startswith(_DASH) or len(data) <= _KEY_ID_BYTES:
        raise NoteError(f"the line {line[:80]!a} is no signature: — name base64 is")
    require_key_name(name)
    return NoteSignature(name, data[:_KEY_ID_BYTES], data[_KEY_ID_BYTES:])


def _text_of(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NoteError("a note is UTF-8 text") from None
    if any(sign < " " and sign != "\n" for sign in text):
        raise NoteError("a note has no control characters but newlines")
    return text
