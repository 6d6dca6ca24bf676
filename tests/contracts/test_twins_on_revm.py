"""The same machine beside the contract on revm: what holds on py-evm holds on another EVM."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis.stateful import run_state_machine_as_test

from ledger.chain.ports import ChainWriter, TransactionRevertedError
from ledger.protocol.errors import ChainError
from tests.contracts.revm_chain import RevmChain
from tests.contracts.test_twins import TwinsMachine, settings_of
from tests.contracts.twins import MOST_COMPARED, Shape, Twins
from tests.faults import times


class RevmMachine(TwinsMachine):
    """The machine on a chain of revm's."""

    # Of the largest registry all clients are compared at the end, and after each step only by
    # `make faults`: that is 900 views.
    most_compared = times(13, MOST_COMPARED)

    def new_chain(self) -> ChainWriter:
        # As much of a chain as is asked for.
        return cast("ChainWriter", RevmChain())

    def compare_clients(self) -> None:
        self.twins.compare_clients()


def test_contract_and_specification_never_differ_on_revm() -> None:
    run_state_machine_as_test(RevmMachine, settings=settings_of(times(8, 2_000)))


def test_a_reverted_transaction_makes_a_block_and_changes_nothing() -> None:
    chain = RevmChain()
    twins = Twins.opened(cast("ChainWriter", chain), Shape())
    before, state = chain.head(), twins.ledger.state()
    with pytest.raises(TransactionRevertedError):
        chain.send(twins.ledger.address, b"\x01\x02\x03\x04", 100_000)
    assert chain.head().number == before.number + 1
    assert chain.head().parent_hash == before.hash
    assert twins.ledger.state() == state


def test_a_transaction_out_of_gas_is_no_refusal() -> None:
    twins = Twins.opened(cast("ChainWriter", RevmChain()), Shape())
    with pytest.raises(AssertionError, match="the machine halted"):
        twins.chain.send(twins.ledger.address, b"\x01\x02\x03\x04", 21_100)


def test_the_past_is_not_answered_with_the_present() -> None:
    twins = Twins.opened(cast("ChainWriter", RevmChain()), Shape())
    with pytest.raises(ChainError, match="no history"):
        twins.ledger.state(1)
