"""Sending to anvil with a block time, that drops transactions, makes no blocks, and reorganises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.chain.ports import TransactionTimeoutError
from ledger.chain.rpc.node import RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.sender import InFlightTransaction
from tests.chain.test_port_contract import anvil
from tests.chain.web3_provider import transport_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.network

SOMEBODY = "0x" + "11" * 20
GAS = 50_000
SETTINGS = RpcSettings(
    poll_seconds=0.05,
    receipt_timeout_seconds=PATIENCE_SECONDS,
    resend_seconds=0.2,
    replace_seconds=0.3,
)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[RpcChain]:
    for found in anvil(tmp_path, "--block-time", "1", settings=SETTINGS):
        assert isinstance(found, RpcChain)
        yield found


def told(chain: RpcChain, method: str, *parameters: Any) -> Any:
    return transport_to(chain).ask(method, *parameters)


def received(pending: InFlightTransaction) -> Any:
    receipt = wait_until(pending.poll)
    assert receipt is not None
    return receipt


def sent_again(chain: RpcChain, pending: InFlightTransaction) -> None:
    """Poll a transaction that the node has lost until the node has it once more."""
    wait_until(lambda: pending.poll() or chain.nonce(chain.sender, pending=True))


def test_a_transaction_below_later_base_fees_is_replaced(chain: RpcChain) -> None:
    told(chain, "evm_setIntervalMining", 0)
    pending = chain.submit(SOMEBODY, b"", GAS)
    first = pending.hash
    offered = int(told(chain, "eth_getTransactionByHash", f"0x{first.hex()}")["maxFeePerGas"], 16)
    for _ in range(2):
        told(chain, "anvil_setNextBlockBaseFeePerGas", hex(2 * offered))
        told(chain, "evm_mine")
    wait_until(lambda: pending.poll() or pending.hash != first)
    assert pending.poll() is None, "the first did not pay the base fee of any block"
    told(chain, "evm_mine")
    receipt = received(pending)
    assert receipt.transaction_hash == pending.hash != first
    assert chain.nonce(chain.sender, pending=False) == 1


def test_a_receipt_lost_in_a_reorganisation_is_awaited_again(tmp_path: Path) -> None:
    settings = RpcSettings(
        poll_seconds=0.05,
        receipt_timeout_seconds=PATIENCE_SECONDS,
        resend_seconds=0.2,
        confirmations=3,
    )
    for chain in anvil(tmp_path, settings=settings):
        assert isinstance(chain, RpcChain)
        chain.mine(3)
        told(chain, "evm_setAutomine", False)
        pending = chain.submit(SOMEBODY, b"", GAS)
        told(chain, "evm_mine")
        assert pending.poll() is None, "it is in a block, but not deep enough"
        before = chain.receipt(pending.hash)
        assert before is not None
        told(chain, "anvil_reorg", 1, [])
        told(chain, "anvil_dropTransaction", f"0x{pending.hash.hex()}")
        assert chain.receipt(pending.hash) is None
        sent_again(chain, pending)
        told(chain, "anvil_mine", "0x4")
        after = received(pending)
        assert after.transaction_hash == before.transaction_hash
        assert after.block_number == before.block_number + 1
        assert chain.nonce(chain.sender, pending=False) == 1


@pytest.mark.parametrize("blocks", [0, 100])
def test_a_transaction_behind_lost_ones_is_given_up_before_its_time_out(
    chain: RpcChain, blocks: int
) -> None:
    taken = told(chain, "evm_snapshot")
    for _ in range(2):
        assert chain.send(SOMEBODY, b"", GAS).status == 1
    told(chain, "evm_setIntervalMining", 0)
    told(chain, "anvil_mine", hex(blocks))
    pending = chain.submit(SOMEBODY, b"", GAS)
    assert told(chain, "evm_revert", taken)
    told(chain, "evm_setIntervalMining", 1)
    with pytest.raises(TransactionTimeoutError, match="lacks 2 earlier confirmed transactions"):
        received(pending)
    assert chain.send(SOMEBODY, b"", GAS).status == 1, "the next one begins at the node's nonce"
    assert chain.nonce(chain.sender, pending=False) >= 1
