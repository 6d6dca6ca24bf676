"""Ed25519 keys of logs and witnesses, as C2SP signed notes name them.

A signing key is derived from the secret of a keystore, the key's use and its name: one keystore
serves any number of logs, no two of which share a key, and never signs twice as two cosigners.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

from Crypto.Signature import eddsa

from ledger.protocol.encoding import sha256
from ledger.transparency.errors import NoteError

if TYPE_CHECKING:
    from Crypto.PublicKey.ECC import EccKey

MAX_NAME = 255
PUBLIC_KEY_BYTES = 32
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
    """A public key with its name.

    Attributes:
        name: of the key; a log's is the origin of its checkpoints.
        public_key: 32 bytes, RFC 8032.
    """

    name: str
    use: KeyUse
    public_key: bytes

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
        """Say whether this key has signed a message."""
        try:
            verifier = eddsa.new(eddsa.import_public_key(self.public_key), "rfc8032")
            verifier.verify(message, signature)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key with its name.

    Attributes:
        seed: the private key of RFC 8032, 32 bytes.
    """

    name: str
    use: KeyUse
    seed: bytes

    @classmethod
    def derived(cls, secret: bytes, use: KeyUse, name: str) -> Self:
        """Return the key of a use and a name."""
        message = _DERIVATION + bytes([use]) + require_key_name(name).encode()
        return cls(name, use, hmac.digest(secret, message, "sha256"))

    @property
    def verifier(self) -> VerifierKey:
        """The public key."""
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
    """Return a public key from its text, `name+id+key`.

    Args:
        use: that it must have; None for any.
    """
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


def _is_public_key(data: bytes) -> bool:
    """Say whether bytes are a point that has a private key: under one of small order all verify."""
    try:
        point = eddsa.import_public_key(data).pointQ
    except ValueError:
        return False
    return not (point * _COFACTOR).is_point_at_infinity()


def _shown(text: str) -> str:
    return ascii(text[:_SHOWN])
