"""What nodes say of transactions that they do not take, in the words of each."""

from __future__ import annotations

import pytest

from ledger.chain.rpc.refusals import Refusal, read_refusal
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
        ("already known", Refusal.KNOWN),
        ("transaction already imported", Refusal.KNOWN),
        ("Known transaction", Refusal.KNOWN),
        ("AlreadyKnown", Refusal.KNOWN),
        ("ALREADY_EXISTS: already known", Refusal.KNOWN),
        ("INTERNAL_ERROR: existing tx with same hash", Refusal.KNOWN),
        ("OldNonce, Current nonce: 3, nonce of rejected tx: 2", Refusal.NONCE_USED),
        ("NonceGap, Future nonce. Expected nonce: 2", Refusal.NONCE_TOO_HIGH),
        (
            "Transaction nonce is too distant from current sender nonce",
            Refusal.NONCE_TOO_HIGH,
        ),
        ("An invalid transaction with a lower nonce exists", Refusal.NONCE_TOO_HIGH),
        ("ReplacementNotAllowed", Refusal.UNDERPRICED),
        ("INTERNAL_ERROR: could not replace existing tx", Refusal.UNDERPRICED),
        ("Upfront cost exceeds account balance", Refusal.FINAL),
        ("nonce too low: next nonce 3, tx nonce 2", Refusal.NONCE_USED),
        ("Nonce too low", Refusal.NONCE_USED),
        ("nonce too high: address 0x1, tx: 9 state: 3", Refusal.NONCE_TOO_HIGH),
        ("replacement transaction underpriced", Refusal.UNDERPRICED),
        ("Replacement transaction underpriced", Refusal.UNDERPRICED),
        ("transaction underpriced: tip needed 1, tip permitted 0", Refusal.FINAL),
        ("insufficient funds for gas * price + value", Refusal.FINAL),
        ("intrinsic gas too low", Refusal.FINAL),
        ("request timed out", Refusal.UNCLEAR),
        ("Too Many Requests", Refusal.UNCLEAR),
    ],
)
def test_words_have_a_meaning(words: str, why: Refusal) -> None:
    refused = read_refusal(RpcFault(SERVER_ERROR, words))
    assert (refused.why, refused.words) == (why, words)


def test_a_nodes_address_says_nothing() -> None:
    fault = RpcFault(SERVER_ERROR, "txpool is full", by="https://nonce-replacement.example: ")
    assert read_refusal(fault).why is Refusal.FINAL
    assert read_refusal(fault).words == "https://nonce-replacement.example: txpool is full"
    assert revert_data(RpcFault(SERVER_ERROR, "header not found", by="https://revert: ")) is None


@pytest.mark.parametrize("code", [INTERNAL_ERROR, LIMIT_EXCEEDED])
def test_a_node_that_has_failed_has_not_refused(code: int) -> None:
    assert read_refusal(RpcFault(code, "")).why is Refusal.UNCLEAR
    assert read_refusal(RpcFault(code, "already known")).why is Refusal.KNOWN
