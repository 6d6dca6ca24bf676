"""What transactions are signed with and offer, and what nodes say of those they do not take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import NotServedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader, blocks_of
from ledger.chain.rpc.sender import RejectionReason, SendingAccount, classify_rejection
from ledger.chain.rpc.server import RpcServer
from ledger.chain.rpc.wire import (
    INTERNAL_ERROR,
    LIMIT_EXCEEDED,
    SERVER_ERROR,
    Fees,
    RpcFault,
    new_fees,
    replacement_fees,
    revert_data,
)
from ledger.protocol.encoding import keccak

WIDE = Fees(fee=10**18, tip=10**18)
amounts = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("base", "tip", "caps", "offer"),
    [
        (100, 10, WIDE, Fees(210, 10)),
        (100, 10, Fees(150, 12), Fees(150, 10)),
        (100, 10, Fees(150, 9), Fees(150, 8)),
        (100, 10, Fees(150, 3), Fees(150, 2)),
        (100, 10, Fees(110, 12), Fees(110, 10)),
        (100, 10, Fees(109, 12), None),
        (0, 0, Fees(0, 0), Fees(0, 0)),
    ],
)
def test_twice_the_base_fee_and_the_tip_within_the_caps(
    base: int, tip: int, caps: Fees, offer: Fees | None
) -> None:
    assert new_fees(base, tip, caps) == offer


@pytest.mark.parametrize(
    ("before", "market", "caps", "after"),
    [
        (Fees(80, 8), None, WIDE, Fees(90, 9)),
        (Fees(81, 0), None, WIDE, Fees(92, 1)),
        (Fees(80, 8), Fees(200, 3), WIDE, Fees(200, 9)),
        (Fees(80, 8), None, Fees(89, 9), None),
        (Fees(80, 8), None, Fees(90, 8), None),
        (Fees(0, 0), None, WIDE, Fees(1, 1)),
    ],
)
def test_an_eighth_more_or_what_the_market_asks(
    before: Fees, market: Fees | None, caps: Fees, after: Fees | None
) -> None:
    assert replacement_fees(before, market, caps) == after


@given(amounts, amounts, amounts, amounts)
def test_a_replacement_pays_a_tenth_more_within_the_caps(
    base: int, tip: int, fee_cap: int, tip_cap: int
) -> None:
    caps = Fees(fee_cap, tip_cap)
    before = new_fees(base, tip, caps)
    if before is None:
        assert base + min(tip, tip_cap) > fee_cap
        return
    assert before.tip <= before.fee <= fee_cap
    after = replacement_fees(before, None, caps)
    if after is not None:
        assert 10 * after.fee >= 11 * before.fee
        assert 10 * after.tip >= 11 * before.tip
        assert after.fee > before.fee
        assert after.tip > before.tip
        assert after.tip <= after.fee <= fee_cap
        assert after.tip <= tip_cap


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("already known", RejectionReason.KNOWN),
        ("transaction already imported", RejectionReason.KNOWN),
        ("ALREADY_EXISTS: already known", RejectionReason.KNOWN),
        ("INTERNAL_ERROR: existing tx with same hash", RejectionReason.KNOWN),
        ("OldNonce, Current nonce: 3, nonce of rejected tx: 2", RejectionReason.NONCE_USED),
        ("NonceGap, Future nonce. Expected nonce: 2", RejectionReason.NONCE_TOO_HIGH),
        (
            "Transaction nonce is too distant from current sender nonce",
            RejectionReason.NONCE_TOO_HIGH,
        ),
        ("An invalid transaction with a lower nonce exists", RejectionReason.NONCE_TOO_HIGH),
        ("INTERNAL_ERROR: could not replace existing tx", RejectionReason.UNDERPRICED),
        ("Upfront cost exceeds account balance", RejectionReason.FINAL),
        ("nonce too low: next nonce 3, tx nonce 2", RejectionReason.NONCE_USED),
        ("nonce too high: address 0x1, tx: 9 state: 3", RejectionReason.NONCE_TOO_HIGH),
        ("replacement transaction underpriced", RejectionReason.UNDERPRICED),
        ("transaction underpriced: tip needed 1, tip permitted 0", RejectionReason.FINAL),
        ("insufficient funds for gas * price + value", RejectionReason.FINAL),
        ("intrinsic gas too low", RejectionReason.FINAL),
        ("request timed out", RejectionReason.UNCLEAR),
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


KEY = keccak(b"PUBLIC TEST KEY of an account that sends, no secret")
CALL: dict[str, Any] = {
    "type": 2,
    "chainId": 7,
    "nonce": 3,
    "maxFeePerGas": 10,
    "maxPriorityFeePerGas": 1,
    "gas": 50_000,
    "to": "0x" + "11" * 20,
    "value": 5,
    "data": b"\x01\x02",
}
CREATION = {**CALL, "to": b"", "value": 0}


@pytest.mark.parametrize("fields", [CALL, CREATION])
@pytest.mark.parametrize("entropy", [bytes, lambda size: b"\xff" * size])
def test_what_is_signed_is_of_the_account_whatever_is_drawn(
    fields: dict[str, Any], entropy: Callable[[int], bytes]
) -> None:
    account = SendingAccount(KEY, entropy)
    signed = account.sign(fields)
    assert account.address == Account.from_key(KEY).address
    assert Account.recover_transaction(signed.raw) == account.address
    assert signed.hash == keccak(signed.raw)


def test_two_processes_with_one_key_never_sign_the_same_bytes() -> None:
    one, other = SendingAccount(KEY), SendingAccount(KEY)
    hashes = {account.sign(CALL).hash for account in (one, one, other)}
    assert len(hashes) == 3
    assert SendingAccount(KEY, bytes).sign(CALL) == SendingAccount(KEY, bytes).sign(CALL)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 600))
def test_one_block_suffices_with_an_archive_node(newest: int, depth: int, kept: int) -> None:
    holder, asked = max(1, newest - depth), []

    def count(number: int) -> int:
        asked.append(number)
        if number < newest - kept:
            raise wire.RpcFault(wire.SERVER_ERROR, "missing trie node")
        return 5 if number >= holder else 4

    if holder > newest:
        return
    found = blocks_of(4, newest, count)
    assert holder in found
    assert len(asked) <= 2 * (depth + 1).bit_length() + 1
    if kept >= newest:
        assert len(found) == 1


def test_a_node_missing_counted_blocks_does_not_deny_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
        RpcReader(server.url, chain_id=DEFAULT_CHAIN_ID) as node,
    ):
        chain.mine(1)
        monkeypatch.setattr(node, "nonce_at", lambda *_: 1)
        with pytest.raises(NotServedError, match="nonce 0, although it is mined"):
            node.receipt_of(chain.sender, 0)
