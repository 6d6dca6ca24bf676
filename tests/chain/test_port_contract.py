"""What every chain behind the ports must do: the embedded one, its server, and a real node."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from web3 import Web3

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.ports import (
    ChainWriter,
    LogQuery,
    TransactionRefusedError,
    TransactionRevertedError,
)
from ledger.chain.rpc.node import RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.errors import ChainError
from tests.chain.anvil import anvil_program
from tests.chain.probe import REVERT_DATA, RUNTIME_CODE, TOPIC, creation_code, deploy, word, words
from tests.chain.web3_provider import NodeProvider, transport_to, web3_over
from tests.patience import PATIENCE_SECONDS, wait_until

GAS = 200_000
ANVIL_KEY = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
"""The first account of every anvil: public, printed by the program itself."""
SETTINGS = RpcSettings(poll_seconds=0.05, receipt_timeout_seconds=PATIENCE_SECONDS)


def embedded(folder: Path) -> Iterator[ChainWriter]:
    with EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        yield chain


def served(folder: Path) -> Iterator[ChainWriter]:
    with (
        EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain, max_logs=4) as server,
        RpcChain(server.url, TEST_KEYS[1], chain_id=chain.chain_id, settings=SETTINGS) as client,
    ):
        yield client


def anvil(
    folder: Path,
    *options: str,
    settings: RpcSettings = SETTINGS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ChainWriter]:
    """Start an anvil on a port that it chooses: one that is found first may be taken until then."""
    fork = () if "--hardfork" in options else ("--hardfork", "prague")
    command = [anvil_program(), "--port", "0", *fork, *options]
    with (
        tempfile.TemporaryFile("w+b") as said,
        subprocess.Popen(command, cwd=folder, stdout=said) as process,
    ):
        try:
            url = f"http://{listening_address(process, said)}"
            with RpcChain(url, ANVIL_KEY, chain_id=31337, settings=settings, clock=clock) as client:
                yield client
        finally:
            process.terminate()


def listening_address(process: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    """Return the address that an anvil names once it listens there."""

    def named() -> re.Match[bytes] | None:
        assert process.poll() is None, "anvil has ended"
        printed = os.pread(said.fileno(), 100_000, 0)
        return re.search(rb"^Listening on (\S+)\n", printed, re.MULTILINE)

    found = wait_until(named, lambda: "anvil does not print where it listens")
    assert found is not None
    return found[1].decode()


@pytest.fixture(
    params=[embedded, served, pytest.param(anvil, marks=pytest.mark.network)],
    ids=["embedded", "rpc", "anvil"],
)
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChainWriter]:
    yield from request.param(tmp_path)


class TestAnyChain:
    def test_deploys_a_contract_whose_code_can_be_compared(self, chain: ChainWriter) -> None:
        receipt = chain.send(None, creation_code(), 300_000)
        assert receipt.status == 1
        assert receipt.block_number == 1
        assert receipt.contract_address is not None
        assert chain.code(receipt.contract_address) == RUNTIME_CODE
        assert chain.code(chain.sender) == b""

    def test_a_transaction_leaves_state_receipt_and_log(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        receipt = chain.send(probe, words(7, 9), GAS)
        assert chain.call(probe, b"") == word(7)
        assert receipt == chain.receipt(receipt.transaction_hash)
        assert receipt.gas_used == 21_000 + calldata_gas(words(7, 9)) + EXECUTION_GAS
        [log] = receipt.logs
        assert (log.address, log.topics, log.data) == (probe, (TOPIC, word(7), word(9)), word(7))
        assert (log.block_number, log.log_index) == (2, 0)
        assert log.block_hash == chain.block(2).hash
        assert log.transaction_hash == receipt.transaction_hash

    def test_an_unknown_transaction_has_no_receipt(self, chain: ChainWriter) -> None:
        assert chain.receipt(b"\x01" * 32) is None
        with pytest.raises(ChainError, match="no mined transaction 0x0101"):
            chain.transaction(b"\x01" * 32)

    def test_a_call_sees_the_state_of_any_block(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        for value in (7, 8):
            chain.send(probe, words(value, 0), GAS)
        assert chain.call(probe, b"", 1) == word(0)
        assert chain.call(probe, b"", 2) == word(7)
        assert chain.call(probe, b"") == chain.call(probe, b"", 3) == word(8)

    def test_a_reverting_call_carries_its_reason(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        with pytest.raises(TransactionRevertedError) as caught:
            chain.call(probe, words(0, 0))
        assert caught.value.data == REVERT_DATA
        assert caught.value.transaction_hash is None

    def test_a_reverting_transaction_is_recorded_and_told(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        with pytest.raises(TransactionRevertedError) as caught:
            chain.send(probe, words(0, 0), GAS)
        assert caught.value.data == REVERT_DATA
        assert caught.value.transaction_hash is not None
        receipt = chain.receipt(caught.value.transaction_hash)
        assert receipt is not None
        assert (receipt.status, receipt.logs, receipt.block_number) == (0, (), 2)
        assert chain.send(probe, words(5, 5), GAS).block_number == 3

    def test_a_transaction_that_cannot_pay_its_gas_is_refused(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        with pytest.raises(TransactionRefusedError):
            chain.send(probe, words(1, 1), 100)
        assert chain.head().number == 1
        assert chain.send(probe, words(1, 1), GAS).status == 1

    def test_blocks_are_linked_and_no_earlier_than_their_parents(self, chain: ChainWriter) -> None:
        chain.mine(3)
        assert chain.head() == chain.block(3)
        for number in (1, 2, 3):
            assert chain.block(number).parent_hash == chain.block(number - 1).hash
            assert chain.block(number).timestamp >= chain.block(number - 1).timestamp

    @pytest.mark.parametrize("number", [-1, 1, 10**30])
    def test_a_block_that_is_not_there_is_refused(self, chain: ChainWriter, number: int) -> None:
        with pytest.raises(ChainError):
            chain.block(number)

    def test_logs_come_in_either_order_and_limited(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        for value in range(1, 8):
            chain.send(probe, words(value, value % 2), GAS)
        numbers = [log.block_number for log in chain.logs(LogQuery(probe, [TOPIC], 0, 10**9))]
        assert numbers == [2, 3, 4, 5, 6, 7, 8]
        newest = chain.logs(LogQuery(probe, [TOPIC], 0, 10**9, 2, descending=True))
        assert [log.block_number for log in newest] == [8, 7]
        odd = chain.logs(LogQuery(probe, [None, None, word(1)], 3, 7))
        assert [log.block_number for log in odd] == [4, 6]
        either = chain.logs(LogQuery(None, [[TOPIC, word(1)], [word(2), word(5), word(99)]], 0, 8))
        assert [log.block_number for log in either] == [3, 6]

    @pytest.mark.parametrize("topics", [[[]], [word(1)], [TOPIC, None, None, word(0)], [TOPIC] * 5])
    def test_filters_that_nothing_matches_find_nothing(
        self, chain: ChainWriter, topics: list[bytes | None]
    ) -> None:
        probe = deploy(chain)
        chain.send(probe, words(1, 1), GAS)
        assert chain.logs(LogQuery(probe, topics, 0, 100)) == []
        assert chain.logs(LogQuery(probe, [], 5, 3)) == []
        assert chain.logs(LogQuery(chain.sender, [], 0, 100)) == []

    def test_a_snapshot_shows_the_chain_as_it_is(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        with chain.snapshot() as view:
            assert view.head() == chain.head()
            assert view.genesis_hash == chain.genesis_hash
            assert view.code(probe) == RUNTIME_CODE

    def test_the_final_block_is_not_beyond_the_head(self, chain: ChainWriter) -> None:
        chain.mine(2)
        assert 0 <= chain.finalized() <= 2

    def test_web3_sees_the_same_chain(self, chain: ChainWriter) -> None:
        probe = deploy(chain)
        receipt = chain.send(probe, words(3, 4), GAS)
        if isinstance(chain, RpcChain):
            web3 = Web3(NodeProvider(transport_to(chain)))
        else:
            assert isinstance(chain, EmbeddedChain)
            web3 = web3_over(chain)
        assert web3.eth.chain_id == chain.chain_id
        assert web3.eth.block_number == 2
        seen = web3.eth.get_transaction_receipt(web3.to_hex(receipt.transaction_hash))
        assert (seen["status"], seen["gasUsed"]) == (1, receipt.gas_used)
        assert bytes(seen["logs"][0]["topics"][1]) == word(3)
        block = web3.eth.get_block(2, full_transactions=True)
        assert bytes(block["hash"]) == chain.block(2).hash
        [transaction] = block["transactions"]
        assert not isinstance(transaction, bytes)
        assert transaction["from"] == chain.sender


def calldata_gas(data: bytes) -> int:
    return sum(16 if byte else 4 for byte in data)


# SSTORE of a fresh slot 22,100; log 375 + 3 topics of 375 + 32 bytes of 8; one memory word 3;
# and the small instructions of its path, added up by hand from the listing: 73.
EXECUTION_GAS = 22_100 + 375 + 3 * 375 + 32 * 8 + 3 + 73


def test_the_test_accounts_are_distinct_and_stable() -> None:
    assert len({address_of(key) for key in TEST_KEYS}) == 10
    assert address_of(TEST_KEYS[0]) == "0xE24aDA8bA13A8F166e76413246D28f29A1ecA7d6"
