"""Keys and signed notes (c2sp.org/signed-note).

A signing key is derived from the secret of a keystore, the key's use and its name: one keystore
serves any number of logs, no two of which share a key, and never signs twice as two cosigners.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Self

from Crypto.Signature import eddsa

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError, EncodingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from Crypto.PublicKey.ECC import EccKey


class NoteError(EncodingError):
    """Bytes that are no signed note, checkpoint or key, or a signature that does not verify."""


class ProofError(CmflError):
    """A Merkle proof that does not verify."""


class TileError(EncodingError):
    """A tile or a bundle of entries that does not hash to the checkpoint."""


class LogConflictError(CmflError):
    """A log contradicts what its key has signed before; nothing more is signed."""


class WitnessError(CmflError):
    """A witness or a log gave no usable answer; the message names it."""


MAX_NAME = 255
HASH_BYTES = 32
MAX_PROOF = 63
"""Hashes of a Merkle proof in a tree of fewer than 2^63 leaves."""
_DERIVATION = b"cmfl-ledger note key v1\n"
_KEY_ID = re.compile("[0-9a-f]{8}")
_SHOWN = 80
_COFACTOR = 8


class KeyUse(IntEnum):
    """What a key signs, by the signature type's byte."""

    NOTE = 1
    """Ed25519 over a note's text: a log's checkpoints."""
    COSIGNATURE = 4
    """A witness's Ed25519 cosignature, version 1, with the time."""


_OWNERS = {KeyUse.NOTE: "a log", KeyUse.COSIGNATURE: "a witness"}


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with its name."""

    name: str  # a log's is the origin of its checkpoints
    use: KeyUse
    public_key: bytes  # 32 bytes, RFC 8032

    @property
    def key_id(self) -> bytes:
        """The first four bytes of the hash of name, use and key."""
        encoded = self.name.encode() + b"\n" + bytes([self.use]) + self.public_key
        return sha256(encoded)[:4]

    def __str__(self) -> str:
        """The key as a vkey, `name+id+key`."""
        key = base64.b64encode(bytes([self.use]) + self.public_key).decode()
        return f"{self.name}+{self.key_id.hex()}+{key}"

    def is_signed(self, message: bytes, signature: bytes) -> bool:
        try:
            verifier = eddsa.new(eddsa.import_public_key(self.public_key), "rfc8032")
            verifier.verify(message, signature)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key with its name."""

    name: str
    use: KeyUse
    seed: bytes  # the private key of RFC 8032, 32 bytes

    @classmethod
    def derived(cls, secret: bytes, use: KeyUse, name: str) -> Self:
        message = _DERIVATION + bytes([use]) + require_key_name(name).encode()
        return cls(name, use, hmac.digest(secret, message, "sha256"))

    @property
    def verifier(self) -> VerifierKey:
        public_key = self._private().public_key().export_key(format="raw")
        return VerifierKey(self.name, self.use, bytes(public_key))

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of a signature."""
        return bytes(eddsa.new(self._private(), "rfc8032").sign(message))

    def _private(self) -> EccKey:
        return eddsa.import_private_key(self.seed)

    def __repr__(self) -> str:
        """The key without its secret."""
        return f"<SigningKey {self.name}>"


def parse_vkey(text: str, use: KeyUse | None = None) -> VerifierKey:
    """Return a public key from its text, `name+id+key`; it must have the use that is given."""
    name, _, rest = text.partition("+")
    key_id, _, encoded = rest.partition("+")
    data = decode_base64(encoded)
    if not _KEY_ID.fullmatch(key_id) or not data:
        raise NoteError(f"{_shown(text)} is no verifier key: name+id+key is")
    require_key_name(name)
    if data[0] not in set(KeyUse):
        raise NoteError(
            f"the key {_shown(text)} has signature type {data[0]:#04x}: 0x01 (a log's Ed25519) and "
            f"0x04 (a witness's) are read"
        )
    if not _is_public_key(data[1:]):
        raise NoteError(f"the key {_shown(text)} is no Ed25519 public key")
    key = VerifierKey(name, KeyUse(data[0]), data[1:])
    if use is not None and key.use is not use:
        raise NoteError(
            f"the key {_shown(text)} is {_OWNERS[key.use]}'s, and must be {_OWNERS[use]}'s"
        )
    if key.key_id.hex() != key_id:
        raise NoteError(
            f"the key {_shown(text)} has id {key_id}, and its name and bytes give "
            f"{key.key_id.hex()}"
        )
    return key


def require_key_name(name: str) -> str:
    """Return a name that a key can have."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        length = 0
    is_plain = all(sign.isprintable() and not sign.isspace() and sign != "+" for sign in name)
    if not 0 < length <= MAX_NAME or not is_plain:
        raise NoteError(
            f"the key name {_shown(name)} must be 1 to {MAX_NAME} bytes of printable UTF-8 without "
            f"spaces and plus"
        )
    return name


def decode_base64(text: str) -> bytes:
    """Return the bytes of standard, padded base64; none if it is anything else."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
    return data if base64.b64encode(data).decode() == text else b""


def decode_hashes(lines: Sequence[str]) -> tuple[Digest, ...] | None:
    """Return the hashes of a Merkle proof in lines of base64; None if a line is anything else."""
    hashes = tuple(Digest(decode_base64(line)) for line in lines)
    is_proof = len(hashes) <= MAX_PROOF and all(len(each) == HASH_BYTES for each in hashes)
    return hashes if is_proof else None


def encode_hashes(hashes: Iterable[Digest]) -> list[str]:
    """Return the lines of a Merkle proof."""
    return [base64.b64encode(each).decode() for each in hashes]


def _is_public_key(data: bytes) -> bool:
    """Say whether bytes are a point that has a private key: under one of small order all verify."""
    try:
        point = eddsa.import_public_key(data).pointQ
    except ValueError:
        return False
    return not (point * _COFACTOR).is_point_at_infinity()


def _shown(text: str) -> str:
    return ascii(text[:_SHOWN])


MAX_NOTE_BYTES = 100_000
MAX_SIGNATURES = 300
"""More than a policy has witnesses, for a checkpoint may have the cosignatures of all of them."""
_DASH = "— "
_KEY_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line."""

    name: str
    key_id: bytes  # four bytes
    signature: bytes  # the bytes after the key id

    def __str__(self) -> str:
        """The line, with its newline."""
        encoded = base64.b64encode(self.key_id + self.signature).decode()
        return f"{_DASH}{self.name} {encoded}\n"

    def is_of(self, key: VerifierKey) -> bool:
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
