"""Classification of a node's refusal of a transaction.

JSON-RPC has no codes for the reasons; each client has its own messages, and only this module reads
them. An unknown message is a final refusal, unless it says that the node itself has failed: the
transaction may then be in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ledger.chain.rpc import wire
from ledger.chain.rpc.wire import RpcFault


class RejectionReason(Enum):
    """Why a node did not accept a transaction.

    Attributes:
        UNDERPRICED: another one with this nonce is pending, and this one does not pay enough more.
        UNCLEAR: the node has failed; the transaction may be in flight.
        FINAL: it cannot be accepted as it is.
    """

    KNOWN = auto()
    NONCE_USED = auto()
    NONCE_TOO_HIGH = auto()
    UNDERPRICED = auto()
    UNCLEAR = auto()
    FINAL = auto()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A transaction that a node did not accept."""

    why: RejectionReason
    words: str


# The order matters: "nonce too high" is not a used nonce. Messages of geth, Besu, Nethermind,
# Erigon, Reth and anvil.
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
    """Return the meaning of a node's error answer to a signed transaction."""
    for refusal, texts in _WORDS:
        if any(text in fault.words for text in texts):
            return Rejection(refusal, str(fault))
    has_failed = fault.code in {wire.INTERNAL_ERROR, wire.LIMIT_EXCEEDED}
    return Rejection(RejectionReason.UNCLEAR if has_failed else RejectionReason.FINAL, str(fault))
