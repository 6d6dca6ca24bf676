"""A key that signs transactions, each with a hash that nobody else's can have.

Of one transaction a key can sign many copies that differ in nothing but the signature's random
part. Drawn anew for each, two processes with one key never come to the same bytes, even where they
do the same with the same nonce. So a node that says that it knows a transaction of ours already
can mean ours alone: whoever stands between has asked it twice.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import coincurve
from coincurve._libsecp256k1 import ffi
from eth_account.typed_transactions.typed_transaction import TypedTransaction

from ledger.chain.addresses import checksum
from ledger.protocol.keccak import keccak
from ledger.protocol.signing import KeySigner

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class RawTransaction:
    """A transaction as a node takes it."""

    hash: bytes
    raw: bytes


class SendingAccount:
    """An account whose transactions are signed here.

    Args:
        key: the private key, 32 bytes; it never leaves this process.
        entropy: returns so many random bytes, on which no secret depends.

    Attributes:
        address: EIP-55.
    """

    def __init__(self, key: bytes, entropy: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self.address: str = checksum(KeySigner(key).address)
        self._key = coincurve.PrivateKey(key)
        self._entropy = entropy

    def sign(self, fields: dict[str, Any]) -> RawTransaction:
        """Return a transaction as a node takes it; another one each time.

        Args:
            fields: of an EIP-1559 transaction, unsigned.
        """
        digest = bytes(TypedTransaction.from_dict(fields).hash())
        # RFC 6979 with more to draw from: the key is as safe as without, whatever the bytes are.
        more = ffi.new("unsigned char[32]", self._entropy(32))
        found = self._key.sign_recoverable(digest, hasher=None, custom_nonce=(ffi.NULL, more))
        signature = {
            "v": found[64],
            "r": int.from_bytes(found[:32]),
            "s": int.from_bytes(found[32:64]),
        }
        raw = bytes(TypedTransaction.from_dict({**fields, **signature}).encode())
        return RawTransaction(keccak(raw), raw)
