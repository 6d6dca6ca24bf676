"""An account that signs transactions, each with a unique hash.

A key can sign many copies of a transaction that differ only in the signature's random part. Here
that part is drawn anew for each signature, so two processes with one key never produce the same
bytes, even for equal transactions. A node that reports one of our transactions as already known
can therefore only mean ours, delivered twice on the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import coincurve
from coincurve._libsecp256k1 import ffi
from eth_account.typed_transactions.typed_transaction import TypedTransaction

from ledger.chain.addresses import checksum
from ledger.protocol.keccak import keccak
from ledger.protocol.signing import KeySigner


@dataclass(frozen=True, slots=True)
class RawTransaction:
    """A signed transaction as a node accepts it."""

    hash: bytes
    raw: bytes


class SendingAccount:
    """An account whose transactions are signed in this process.

    Args:
        key: the private key, 32 bytes; it never leaves this process.
        entropy: returns a number of random bytes; no secret depends on them.

    Attributes:
        address: EIP-55.
    """

    def __init__(self, key: bytes, entropy: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self.address: str = checksum(KeySigner(key).address)
        self._key = coincurve.PrivateKey(key)
        self._entropy = entropy

    def sign(self, fields: dict[str, Any]) -> RawTransaction:
        """Sign an EIP-1559 transaction; each call returns different bytes."""
        digest = bytes(TypedTransaction.from_dict(fields).hash())
        # RFC 6979 with additional data: the key stays safe whatever these bytes are.
        extra = ffi.new("unsigned char[32]", self._entropy(32))
        recoverable = self._key.sign_recoverable(
            digest, hasher=None, custom_nonce=(ffi.NULL, extra)
        )
        signature = {
            "v": recoverable[64],
            "r": int.from_bytes(recoverable[:32]),
            "s": int.from_bytes(recoverable[32:64]),
        }
        raw = bytes(TypedTransaction.from_dict({**fields, **signature}).encode())
        return RawTransaction(keccak(raw), raw)
