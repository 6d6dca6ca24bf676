"""Transactions wait for a block on a clock: many share it, and nobody crowds others out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eth.abc import SignedTransactionAPI
from eth_account import Account

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, EvmChain, address_of
from ledger.chain.ports import LogQuery
from ledger.chain.rpc import pool as pool_module
from ledger.chain.rpc import wire
from ledger.chain.rpc.methods import RpcMethods
from ledger.chain.rpc.pool import MAX_PER_ACCOUNT, TransactionPool
from ledger.protocol.encoding import to_hex
from tests.chain.probe import TOPIC, deploy, word, words

TRANSFERS = 70
FEE = 10**10
GAS = 30_000


@pytest.fixture
def pool(chain: EmbeddedChain) -> TransactionPool:
    return TransactionPool(chain)


def signed(chain: EmbeddedChain, key: int, **fields: Any) -> SignedTransactionAPI:
    """Return a transaction of a test key, to itself and with its next nonce if nothing else."""
    address = address_of(TEST_KEYS[key])
    about = {
        "type": 2,
        "chainId": chain.chain_id,
        "nonce": chain.account(address)[0],
        "maxFeePerGas": FEE,
        "maxPriorityFeePerGas": 0,
        "gas": GAS,
        "to": address,
        "value": 0,
        "data": b"",
    }
    raw = Account.sign_transaction(about | fields, TEST_KEYS[key]).raw_transaction
    return chain.read_transaction(bytes(raw))


def answer(chain: EmbeddedChain, pool: TransactionPool, method: str, *given: object) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(given)}
    found = RpcMethods(chain, pool=pool).answer(request)
    assert found is not None
    return found.get("result", found.get("error"))


def held(chain: EmbeddedChain, number: int) -> list[tuple[str, int]]:
    found = chain.transactions(chain.header(number))
    return [(to_hex(bytes(one.sender)), one.nonce) for one in found]


def test_one_client_that_sends_much_makes_no_more_blocks(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    for sent in range(TRANSFERS):
        if sent and sent % MAX_PER_ACCOUNT == 0:
            with pytest.raises(wire.RpcFault, match="account limit exceeded: 64 transactions of"):
                pool.add(signed(chain, 1, nonce=sent))
            pool.mine()
        pool.add(signed(chain, 1, nonce=sent))
    pool.mine()
    assert chain.head().number == -(-TRANSFERS // MAX_PER_ACCOUNT)
    assert chain.account(address_of(TEST_KEYS[1]))[0] == TRANSFERS
    chain.verify(execute=True)


def test_what_waits_is_shown_as_any_node_shows_it(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    sender = address_of(TEST_KEYS[1])
    first, second = signed(chain, 1), signed(chain, 1, nonce=1)
    for one in (first, second):
        name = answer(chain, pool, "eth_sendRawTransaction", to_hex(one.encode()))
        assert name == to_hex(one.hash)
    assert chain.head().number == 0
    count = "eth_getTransactionCount"
    assert [answer(chain, pool, count, sender, tag) for tag in ("latest", "pending")] == [
        *("0x0", "0x2")
    ]
    name = to_hex(second.hash)
    shown = answer(chain, pool, "eth_getTransactionByHash", name)
    assert (shown["hash"], shown["nonce"], shown["from"]) == (name, "0x1", sender)
    places = ("blockHash", "blockNumber", "transactionIndex")
    assert [shown[place] for place in places] == [None, None, None]
    assert answer(chain, pool, "eth_getTransactionReceipt", name) is None
    pool.mine()
    shown = answer(chain, pool, "eth_getTransactionByHash", name)
    assert [shown[place] for place in places] == [to_hex(chain.head().hash), "0x1", "0x1"]
    receipt = answer(chain, pool, "eth_getTransactionReceipt", name)
    assert (receipt["transactionIndex"], receipt["gasUsed"]) == ("0x1", hex(21_000))
    assert receipt["cumulativeGasUsed"] == hex(42_000)
    assert answer(chain, pool, count, sender, "pending") == "0x2"


def test_what_cannot_wait_is_refused_in_the_words_of_nodes(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    own = chain.account(address_of(TEST_KEYS[1]))[1]
    chain.send(address_of(TEST_KEYS[1]), b"", GAS, key=TEST_KEYS[1])
    pool.add(waits := signed(chain, 1, maxPriorityFeePerGas=10))
    for one, words_ in (
        (waits, "already known"),
        (signed(chain, 1, nonce=0), "nonce too low"),
        (signed(chain, 1, nonce=3), "nonce too high"),
        (signed(chain, 1, maxFeePerGas=1, nonce=2), "max fee per gas less than block base fee"),
        (signed(chain, 1, value=1, maxPriorityFeePerGas=10), "replacement transaction underp"),
        (signed(chain, 1, maxFeePerGas=2 * FEE), "replacement transaction underpriced"),
        (signed(chain, 1, nonce=2, value=own - 2 * GAS * FEE), "insufficient funds"),
        (signed(chain, 1, nonce=2, gas=20_999), "intrinsic gas too low"),
        (signed(chain, 1, nonce=2, gas=200_000_001), "exceeds block gas limit"),
    ):
        with pytest.raises(wire.RpcFault) as caught:
            pool.add(one)
        assert caught.value.words.startswith(words_)
    pool.mine()
    assert held(chain, 2) == [(to_hex(bytes(waits.sender)), 1)]


def test_a_better_paying_replacement_takes_the_place_in_the_queue(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    pool.add(first := signed(chain, 1))
    pool.add(signed(chain, 2))
    pool.add(signed(chain, 1, nonce=1))
    more = signed(chain, 1, value=7, maxFeePerGas=FEE * 9 // 8, maxPriorityFeePerGas=1)
    pool.add(more)
    assert pool.find(bytes(first.hash)) is None
    pool.mine()
    names = [bytes(one.hash) for one in chain.transactions(chain.header())]
    assert names[0] == more.hash
    assert bytes(first.hash) not in names
    assert len(names) == 3


def test_each_accounts_first_goes_before_anybodys_second(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    for nonce in range(4):
        pool.add(signed(chain, 1, nonce=nonce))
    for key in (2, 3):
        pool.add(signed(chain, key))
    pool.mine()
    own = {key: address_of(TEST_KEYS[key]).lower() for key in (1, 2, 3)}
    assert held(chain, 1) == [
        *((own[1], 0), (own[2], 0), (own[3], 0)),
        *((own[1], 1), (own[1], 2), (own[1], 3)),
    ]


def test_what_finds_no_gas_left_waits_for_the_next_block(tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "small.sqlite", gas_limit=70_000) as chain:
        pool = TransactionPool(chain)
        for nonce in range(2):
            pool.add(signed(chain, 1, nonce=nonce))
        for key in (2, 3):
            pool.add(signed(chain, key))
        blocks = []
        for number in (1, 2, 3):
            pool.mine()
            blocks.append([nonce for _, nonce in held(chain, number)])
        assert blocks == [[0, 0], [1, 0], []]
        chain.verify(execute=True)


def test_one_that_reverts_takes_no_other_with_it(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    probe = deploy(chain)
    calls = [
        signed(chain, key, to=probe, data=words(key % 2, key), gas=200_000) for key in (1, 2, 3)
    ]
    for one in calls:
        pool.add(one)
    pool.mine()
    receipts = [chain.receipt(bytes(one.hash)) for one in calls]
    assert [one.status for one in receipts if one] == [1, 0, 1]
    assert {one.block_number for one in receipts if one} == {2}
    logs = answer(chain, pool, "eth_getLogs", {"fromBlock": "0x0", "address": probe})
    places = [(one["transactionIndex"], one["logIndex"], one["topics"][2]) for one in logs]
    assert places == [("0x0", "0x0", to_hex(word(1))), ("0x2", "0x1", to_hex(word(3)))]
    assert [log.topics[2] for log in chain.logs(LogQuery(probe, [TOPIC], 0, 2))] == [
        word(1),
        word(3),
    ]
    chain.verify(execute=True)


def test_an_unminable_transaction_is_dropped_with_its_successors(
    chain: EmbeddedChain, pool: TransactionPool
) -> None:
    for nonce in range(2):
        pool.add(signed(chain, 1, nonce=nonce, value=10**18))
    pool.add(signed(chain, 2))
    # What the pool counted on is gone: the account has sent something else, and given all away.
    own = chain.account(address_of(TEST_KEYS[1]))[1]
    chain.send(address_of(TEST_KEYS[3]), b"", 21_000, key=TEST_KEYS[1], value=own - 10**17)
    pool.mine()
    assert [nonce for _, nonce in held(chain, 2)] == [0]
    assert pool.next_nonce(address_of(TEST_KEYS[1])) == 0
    assert pool.next_nonce(address_of(TEST_KEYS[2])) == 0


def test_a_full_pool_makes_room_for_who_has_fewest(
    chain: EmbeddedChain, pool: TransactionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_TRANSACTIONS", 5)
    for nonce in range(5):
        pool.add(signed(chain, 1, nonce=nonce))
    for key in (2, 3, 4):
        pool.add(signed(chain, key))
    assert pool.next_nonce(address_of(TEST_KEYS[1])) == 2
    with pytest.raises(wire.RpcFault, match="txpool is full: 5 transactions wait"):
        pool.add(signed(chain, 2, nonce=1))
    pool.mine()
    assert len(held(chain, 1)) == 5


def test_what_the_machine_does_not_bear_stops_no_blocks(
    chain: EmbeddedChain, pool: TransactionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add(signed(chain, 1))
    with monkeypatch.context() as patched:
        [(_, machine)] = EvmChain.vm_configuration
        patched.setattr(machine, "make_receipt", None)
        pool.mine()
    assert (chain.head().number, held(chain, 1)) == (1, [])
    pool.add(signed(chain, 1))
    pool.mine()
    assert len(held(chain, 2)) == 1
    chain.verify(execute=True)
