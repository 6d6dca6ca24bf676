"""What the contract's code cannot do at all, and that no account is worth more than another."""

from __future__ import annotations

import json

from contracts.build import ARTIFACT
from ledger.chain.contract import abi
from ledger.chain.contract.codec import Call, encode_call
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.ports import Receipt
from tests.contracts import faults, support
from tests.contracts.twins import Shape, Twins

TIME, CALL = 0x42, 0xF1
REPLACING = {0xF0: "CREATE", 0xF2: "CALLCODE", 0xF4: "DELEGATECALL", 0xF5: "CREATE2"}
FORBIDDEN = {TIME: "TIMESTAMP", CALL: "CALL", 0xFF: "SELFDESTRUCT", **REPLACING}
PUSH1, PUSH32 = 0x60, 0x7F
TRANSACTIONS = {
    *("register_clients", "commit_updates", "decide"),
    *("abandon_round", "report_equivocation"),
}


def operations(code: bytes) -> set[int]:
    """Return every operation in a code, from its first byte to its last; not what is pushed."""
    found, place = set(), 0
    while place < len(code):
        operation = code[place]
        found.add(operation)
        place += 1 + (operation - PUSH1 + 1 if PUSH1 <= operation <= PUSH32 else 0)
    return found


def test_the_code_uses_no_clock_call_or_proxy() -> None:
    found = operations(abi.artifact().runtime)
    assert [name for operation, name in FORBIDDEN.items() if operation in found] == []
    # What is pushed is no operation, and what follows it is one.
    assert operations(bytes([PUSH1, CALL])) == {PUSH1}
    assert operations(bytes([PUSH1, CALL, CALL])) == {PUSH1, CALL}


def test_there_is_no_transaction_but_those_of_a_run() -> None:
    entries = [e for e in json.loads(ARTIFACT.read_text("utf-8"))["abi"] if e["type"] != "event"]
    entries = [e for e in entries if e["type"] != "constructor"]
    assert {e["name"] for e in entries if e["stateMutability"] != "view"} == TRANSACTIONS
    assert all(e["stateMutability"] in {"view", "nonpayable"} for e in entries)


class SentBy(LedgerWriter):
    """A ledger whose transactions come from another account each time, and never the deployer's."""

    def __init__(self, chain: EmbeddedChain, ledger: LedgerWriter) -> None:
        super().__init__(chain, ledger.address, ledger.from_block)
        self._embedded = chain
        self.senders: list[bytes] = []

    def _send(self, call: Call, gas: int) -> Receipt:
        key = TEST_KEYS[1 + len(self.senders) % (len(TEST_KEYS) - 1)]
        self.senders.append(key)
        return self._embedded.send(self.address, encode_call(call), gas, key=key)


def test_anybody_may_carry_signed_messages_whoever_deployed_the_contract(
    embedded_chain: EmbeddedChain,
) -> None:
    twins = Twins.opened(embedded_chain, Shape(commit_blocks=30, deadline_blocks=34))
    twins.ledger = twins.sender = others = SentBy(embedded_chain, twins.ledger)
    first, *rest = support.active_of(twins.state)
    for clients in ([first], rest):
        assert isinstance(support.commit_all(twins, clients), tuple)
    assert isinstance(twins.decide(faults.honest(twins)), tuple)
    twins.wait()
    assert isinstance(twins.abandon(2), tuple)
    assert len(set(others.senders)) > 2
    twins.compare_clients()
