"""A relay: a contract between the sender of a transaction and the ledger."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.chain.addresses import to_canonical
from ledger.chain.contract.abi import refusal
from ledger.chain.contract.calls import encode_call
from ledger.chain.contract.committee_ledger import LedgerWriter
from ledger.chain.ports import TransactionRevertedError

if TYPE_CHECKING:
    from ledger.chain.contract.calls import Call
    from ledger.chain.ports import ChainWriter, Receipt

SOURCE = Path(__file__).with_name("relay.vy")


class RelayedLedger(LedgerWriter):
    """A ledger whose transactions all go through a relay contract of their own."""

    def __init__(self, chain: ChainWriter, ledger: LedgerWriter) -> None:
        super().__init__(chain, ledger.address, ledger.from_block)
        creation = _creation_code() + bytes(12) + to_canonical(ledger.address)
        self._relay = chain.send(None, creation, 1_000_000).contract_address

    def _send(self, call: Call, gas: int) -> Receipt:
        try:
            return self.writer.send(self._relay, encode_call(call), gas + 100_000)
        except TransactionRevertedError as error:
            raise refusal(error) from error


@cache
def _creation_code() -> bytes:
    vyper = pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    outputs = vyper.compile_code(SOURCE.read_text("utf-8"), output_formats=["bytecode"])
    return bytes.fromhex(outputs["bytecode"][2:])
