"""A relay between sender and ledger, and a sender that delegates to one (EIP-7702)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from eth.vm.forks.prague import PragueVM
from eth_account import Account

from ledger.chain.contract.abi import refusal
from ledger.chain.contract.codec import Call, encode_call
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.evm import address_of
from ledger.chain.ports import ChainWriter, Receipt, TransactionRevertedError
from ledger.protocol.encoding import keccak256, to_canonical

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain

SOURCE = Path(__file__).with_name("relay.vy")
DELEGATION = bytes.fromhex("ef0100")
"""The code of an account that delegates begins so; an address follows."""


class RelayedLedger(LedgerWriter):
    """A ledger whose transactions all go through a relay contract of their own."""

    def __init__(self, chain: ChainWriter, ledger: LedgerWriter) -> None:
        super().__init__(chain, ledger.address, ledger.from_block)
        creation = _creation_code() + bytes(12) + to_canonical(ledger.address)
        self.relay = chain.send(None, creation, 1_000_000).contract_address

    def _send(self, call: Call, gas: int) -> Receipt:
        try:
            return self.writer.send(self.relay, encode_call(call), gas + 100_000)
        except TransactionRevertedError as error:
            raise refusal(error) from error


class DelegatedLedger(LedgerWriter):
    """A ledger whose transactions come from an account that delegates to a relay."""

    def __init__(self, chain: EmbeddedChain, ledger: LedgerWriter) -> None:
        super().__init__(chain, ledger.address, ledger.from_block)
        relay = RelayedLedger(chain, ledger).relay
        assert relay is not None
        self._embedded = chain
        self.key = keccak256(b"PUBLIC TEST KEY of an account that delegates" + relay.encode())
        self.owner = address_of(self.key)
        chain.send(self.owner, b"", 21_000, value=10**20)
        raw = delegation(chain.chain_id, self.key, 0, relay)
        chain._mine([PragueVM.get_transaction_builder().decode(raw)], must_fit=True)
        assert chain.code(self.owner) == DELEGATION + to_canonical(relay)

    def _send(self, call: Call, gas: int) -> Receipt:
        return self.send_to(self.address, call, gas)

    def send_to(self, to: str, call: Call, gas: int) -> Receipt:
        """Send a call from the account; to itself, its code passes the call on."""
        try:
            return self._embedded.send(to, encode_call(call), gas, key=self.key)
        except TransactionRevertedError as error:
            raise refusal(error) from error


def delegation(chain_id: int, key: bytes, nonce: int, contract: str) -> bytes:
    """Return an account's signed transaction by which it delegates to a contract (EIP-7702)."""
    account = Account.from_key(key)
    authorization = {"chainId": chain_id, "address": contract, "nonce": nonce + 1}
    transaction = {
        "type": 4,
        "chainId": chain_id,
        "nonce": nonce,
        "gas": 100_000,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 0,
        "to": account.address,
        "value": 0,
        "data": b"",
        "authorizationList": [Account.sign_authorization(authorization, key)],
    }
    return bytes(account.sign_transaction(transaction).raw_transaction)


@cache
def _creation_code() -> bytes:
    vyper = pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    outputs = vyper.compile_code(SOURCE.read_text("utf-8"), output_formats=["bytecode"])
    return bytes.fromhex(outputs["bytecode"][2:])
