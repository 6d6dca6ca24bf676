"""Keys, notes, checkpoints and cosignatures (C2SP signed-note, tlog-checkpoint, -cosignature).

A signing key is derived from the secret of a keystore, the key's use and its name. So one keystore
serves any number of logs with a separate key each, and never signs twice as two cosigners.

A signature of the log alone binds it: two trees of one size, or a tree that the run does not have,
contradict. A quorum of witnesses states, as of the time of their cosignatures, that nothing newer
exists; so these may be neither old nor from the future.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

from Crypto.Signature import eddsa

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError, EncodingError
from ledger.protocol.types import Digest


class NoteError(EncodingError):
    """Bytes that cannot be read as a signed note, checkpoint or key, or a wrong signature."""


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
MAX_PROOF = 63  # hashes of a Merkle proof in a tree of fewer than 2^63 leaves


class KeyUse(IntEnum):
    """Use of a key, by the signature type's byte."""

    NOTE = 1  # Ed25519 over a note's text: a log's checkpoints
    COSIGNATURE = 4  # a witness's Ed25519 cosignature, version 1, with the time


_OWNERS = {KeyUse.NOTE: "a log", KeyUse.COSIGNATURE: "a witness"}


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with its name."""

    name: str  # a log's is the origin of its checkpoints
    use: KeyUse
    public_key: bytes  # 32 bytes, RFC 8032

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + bytes([self.use]) + self.public_key)[:4]

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
        prefix = b"cmfl-ledger note key v1\n" + bytes([use])
        message = prefix + require_key_name(name).encode()
        return cls(name, use, hmac.digest(secret, message, "sha256"))

    @property
    def verifier(self) -> VerifierKey:
        public_key = eddsa.import_private_key(self.seed).public_key().export_key(format="raw")
        return VerifierKey(self.name, self.use, bytes(public_key))

    def sign(self, message: bytes) -> bytes:
        return bytes(eddsa.new(eddsa.import_private_key(self.seed), "rfc8032").sign(message))

    def __repr__(self) -> str:
        return f"<SigningKey {self.name}>"


def parse_vkey(text: str, use: KeyUse | None = None) -> VerifierKey:
    """Return a public key from its text, `name+id+key`; it must have the use that is given."""
    name, _, rest = text.partition("+")
    key_id, _, encoded = rest.partition("+")
    data = decode_base64(encoded)
    if not re.fullmatch("[0-9a-f]{8}", key_id) or not data:
        raise NoteError(f"{quoted(text)} is not a verifier key; must be name+id+key")
    require_key_name(name)
    if data[0] not in set(KeyUse):
        raise NoteError(f"{quoted(text)} has signature type {data[0]:#04x}, not 0x01 or 0x04")
    try:
        point = eddsa.import_public_key(data[1:]).pointQ
        is_key = not (point * 8).is_point_at_infinity()  # under a key of small order all verify
    except ValueError:
        is_key = False
    if not is_key:
        raise NoteError(f"the key {quoted(text)} is not an Ed25519 public key")
    key = VerifierKey(name, KeyUse(data[0]), data[1:])
    if use is not None and key.use is not use:
        raise NoteError(f"{quoted(text)} is {_OWNERS[key.use]}'s; must be {_OWNERS[use]}'s")
    if key.key_id.hex() != key_id:
        raise NoteError(f"{quoted(text)} has key id {key_id}; must be {key.key_id.hex()}")
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
            f"the key name {quoted(name)} must be 1 to {MAX_NAME} bytes of printable UTF-8 without "
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


def quoted(text: str) -> str:
    """Return the beginning of a foreign text for a message."""
    return ascii(text[:80])


MAX_NOTE_BYTES = 100_000
MAX_SIGNATURES = 300  # more than a policy has witnesses: all of them may cosign
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
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.signature).decode()}\n"


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
        named = [(line, (line.name, line.key_id)) for line in dict.fromkeys(self.signatures)]
        return [(k, line) for line, name in named for k in keys if (k.name, k.key_id) == name]


def parse_note(data: bytes) -> SignedNote:
    """Return a note and its unverified signatures."""
    if len(data) > MAX_NOTE_BYTES:
        raise NoteError(f"a note of over {MAX_NOTE_BYTES} bytes is not read")
    text, separator, lines = _text_of(data).rpartition("\n\n")
    if not separator or not text:
        raise NoteError("a note must be a text, a blank line and signatures")
    return SignedNote(f"{text}\n", parse_signatures(lines))


def parse_signatures(lines: str) -> tuple[NoteSignature, ...]:
    """Return the signatures of one or more lines."""
    parts = lines.split("\n")
    if parts.pop() or not parts:
        raise NoteError("a note must end with one or more signature lines, each with a newline")
    if len(parts) > MAX_SIGNATURES:
        raise NoteError(f"a note may have at most {MAX_SIGNATURES} signatures, not {len(parts)}")
    signatures = []
    for line in parts:
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        data = decode_base64(encoded)
        if not line.startswith(_DASH) or len(data) <= _KEY_ID_BYTES:
            raise NoteError(f"the line {line[:80]!a} is not a signature; must be — name base64")
        require_key_name(name)
        signatures.append(NoteSignature(name, data[:_KEY_ID_BYTES], data[_KEY_ID_BYTES:]))
    return tuple(signatures)


def signature_lines(data: bytes) -> tuple[NoteSignature, ...]:
    """Return the signatures of a witness's answer."""
    return parse_signatures(_text_of(data))


def _text_of(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NoteError("a note must be UTF-8 text") from None
    if any(sign < " " and sign != "\n" for sign in text):
        raise NoteError("a note must not have control characters except newlines")
    return text


MAX_SIZE = 2**63 - 1  # most leaves of a tree, and the largest time of a cosignature
_TIME_BYTES = 8


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a log's tree."""

    origin: str
    size: int
    root: Digest

    @property
    def text(self) -> str:
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
    line = NoteSignature(key.name, key.verifier.key_id, key.sign(checkpoint.text.encode()))
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
            raise NoteError(f"the signature of {key.name} is invalid for this checkpoint")
    if not lines:
        raise NoteError(f"the checkpoint of {checkpoint.origin} has no signature of the log's key")
    return SignedCheckpoint(checkpoint, note, tuple(line for _, line in lines))


def parse_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint in a note's text; what follows its three lines is not looked at."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):
        raise NoteError("a checkpoint must begin with origin, size and root, without empty lines")
    origin, size, root = lines[:3]
    if not re.fullmatch("0|[1-9][0-9]{0,18}", size) or int(size) > MAX_SIZE:
        raise NoteError(f"the size of a checkpoint is {size[:40]!a}; must be a number below 2^63")
    digest = decode_base64(root)
    if len(digest) != HASH_BYTES:
        raise NoteError(f"the root of a checkpoint is {root[:60]!a}; must be 32 bytes of base64")
    return Checkpoint(origin, int(size), Digest(digest))


def _verified_time(text: str, key: VerifierKey, line: NoteSignature) -> int:
    time = int.from_bytes(line.signature[:_TIME_BYTES])
    has_form = len(line.signature) == _TIME_BYTES + 64 and 0 < time <= MAX_SIZE
    message = _cosigned_message(text, time)
    if not has_form or not key.is_signed(message, line.signature[_TIME_BYTES:]):
        raise NoteError(f"the cosignature of {key.name} is invalid for this checkpoint")
    return time


def _cosigned_message(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()
