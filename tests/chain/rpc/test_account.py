"""Signed transactions: by the key, and no two of one hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from eth_account import Account

from ledger.chain.rpc.account import SendingAccount
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from collections.abc import Callable

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
