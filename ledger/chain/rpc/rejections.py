"""What a node means when it does not take a transaction.

JSON-RPC has no codes for it: every kind of node has words of its own, and this file alone reads
them. What it cannot place is a refusal, except where the words say that the node itself has failed:
then nobody knows whether the transaction is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from ledger.chain.rpc import wire

if TYPE_CHECKING:
    from ledger.chain.rpc.wire import RpcFault


class RejectionReason(Enum):
    """Why a node did not take a transaction.

    Attributes:
        KNOWN: it has this very transaction already.
        NONCE_USED: a block holds another transaction, or this one, with this nonce.
        NONCE_TOO_HIGH: transactions with lower nonces are missing.
        UNDERPRICED: another one with this nonce waits, and this one does not pay enough more.
        UNCLEAR: the node has failed; the transaction may be on its way all the same.
        FINAL: it cannot be taken as it is.
    """

    KNOWN = auto()
    NONCE_USED = auto()
    NONCE_TOO_HIGH = auto()
    UNDERPRICED = auto()
    UNCLEAR = auto()
    FINAL = auto()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A transaction that a node did not take.

    Attributes:
        why: what the node means.
        words: what it says.
    """

    why: RejectionReason
    words: str


# In this order: "nonce too high" must not be read as a nonce that is used. The words of geth, Besu,
# Nethermind, Erigon, Reth and anvil.
_WORDS: tuple[tuple[RejectionReason, tuple[str, ...]], ...] = (
    (
        RejectionReason.KNOWN,
        ("already known", "alreadyknown", "already imported", "known transaction", "same hash"),
    ),
    (
        RejectionReason.NONCE_TOO_HIGH,
        ("nonce too high", "too distant", "nonce gap", "noncegap", "lower nonce"),
    ),
    (RejectionReason.NONCE_USED, ("nonce",)),
    (RejectionReason.UNDERPRICED, ("replacement", "could not replace existing")),
    (
        RejectionReason.UNCLEAR,
        ("timeout", "timed out", "too many requests", "rate limit", "unavailable"),
    ),
)


def classify_rejection(fault: RpcFault) -> Rejection:
    """Return what a node's answer to a signed transaction means.

    Args:
        fault: the error that it answered with.
    """
    for refusal, signs in _WORDS:
        if any(sign in fault.words for sign in signs):
            return Rejection(refusal, str(fault))
    has_failed = fault.code in {wire.INTERNAL_ERROR, wire.LIMIT_EXCEEDED}
    return Rejection(RejectionReason.UNCLEAR if has_failed else RejectionReason.FINAL, str(fault))
