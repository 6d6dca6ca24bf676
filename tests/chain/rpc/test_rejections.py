"""What nodes say of transactions that they do not take, in the words of each."""

from __future__ import annotations

import pytest

from ledger.chain.rpc.rejections import RejectionReason, classify_rejection
from ledger.chain.rpc.wire import (
    INTERNAL_ERROR,
    LIMIT_EXCEEDED,
    SERVER_ERROR,
    RpcFault,
    revert_data,
)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("already known", RejectionReason.KNOWN),
        ("transaction already imported", RejectionReason.KNOWN),
        ("Known transaction", RejectionReason.KNOWN),
        ("AlreadyKnown", RejectionReason.KNOWN),
        ("ALREADY_EXISTS: already known", RejectionReason.KNOWN),
        ("INTERNAL_ERROR: existing tx with same hash", RejectionReason.KNOWN),
        ("OldNonce, Current nonce: 3, nonce of rejected tx: 2", RejectionReason.NONCE_USED),
        ("NonceGap, Future nonce. Expected nonce: 2", RejectionReason.NONCE_TOO_HIGH),
        (
            "Transaction nonce is too distant from current sender nonce",
            RejectionReason.NONCE_TOO_HIGH,
        ),
        ("An invalid transaction with a lower nonce exists", RejectionReason.NONCE_TOO_HIGH),
        ("ReplacementNotAllowed", RejectionReason.UNDERPRICED),
        ("INTERNAL_ERROR: could not replace existing tx", RejectionReason.UNDERPRICED),
        ("Upfront cost exceeds account balance", RejectionReason.FINAL),
        ("nonce too low: next nonce 3, tx nonce 2", RejectionReason.NONCE_USED),
        ("Nonce too low", RejectionReason.NONCE_USED),
        ("nonce too high: address 0x1, tx: 9 state: 3", RejectionReason.NONCE_TOO_HIGH),
        ("replacement transaction underpriced", RejectionReason.UNDERPRICED),
        ("Replacement transaction underpriced", RejectionReason.UNDERPRICED),
        ("transaction underpriced: tip needed 1, tip permitted 0", RejectionReason.FINAL),
        ("insufficient funds for gas * price + value", RejectionReason.FINAL),
        ("intrinsic gas too low", RejectionReason.FINAL),
        ("request timed out", RejectionReason.UNCLEAR),
        ("Too Many Requests", RejectionReason.UNCLEAR),
    ],
)
def test_words_have_a_meaning(words: str, why: RejectionReason) -> None:
    refused = classify_rejection(RpcFault(SERVER_ERROR, words))
    assert (refused.why, refused.words) == (why, words)


def test_a_nodes_address_says_nothing() -> None:
    fault = RpcFault(SERVER_ERROR, "txpool is full", by="https://nonce-replacement.example: ")
    assert classify_rejection(fault).why is RejectionReason.FINAL
    assert classify_rejection(fault).words == "https://nonce-replacement.example: txpool is full"
    assert revert_data(RpcFault(SERVER_ERROR, "header not found", by="https://revert: ")) is None


@pytest.mark.parametrize("code", [INTERNAL_ERROR, LIMIT_EXCEEDED])
def test_a_node_that_has_failed_has_not_refused(code: int) -> None:
    assert classify_rejection(RpcFault(code, "")).why is RejectionReason.UNCLEAR
    assert classify_rejection(RpcFault(code, "already known")).why is RejectionReason.KNOWN
