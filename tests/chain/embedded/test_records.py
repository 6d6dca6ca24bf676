"""Records of a chain file: rlp alone reads what py-evm reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rlp  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from trie.hexary import HexaryTrie

from ledger.chain.embedded.chain_store import HEAD_KEY, TrieNodes, number_key
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader, Header, SignedTransaction
from ledger.chain.ports import ChainDamagedError, TransactionRevertedError
from ledger.protocol.encoding import to_canonical
from tests.chain.embedded.test_embedded_chain import signed
from tests.chain.probe import deploy, words

ACCESS = [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "00" * 31 + "07"]}]
PRICED = {"type": 1, "gasPrice": 10**10, "maxFeePerGas": None, "maxPriorityFeePerGas": None}


@pytest.fixture
def chain(tmp_path: Path) -> Any:
    """A chain with a creation, logs, a reverted call, both types, and an access list."""
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        probe = deploy(chain)
        chain.send(probe, words(7, 1), 200_000)
        with pytest.raises(TransactionRevertedError):
            chain.send(probe, words(0, 1), 200_000)
        raw = [signed(nonce=3, **PRICED, accessList=ACCESS), signed(nonce=4, to=probe, value=0)]
        chain.mine_pending([chain.read_transaction(each) for each in raw])
        yield chain


def test_headers_transactions_and_receipts_are_those_of_py_evm(chain: EmbeddedChain) -> None:
    machine = chain._chain
    for number in range(chain.head().number + 1):
        header = chain.header(number)
        true: Any = machine.get_canonical_block_header_by_number(number)  # type: ignore[arg-type]
        assert (header.as_dict(), header.hash) == (true.as_dict(), true.hash)
        block = machine.get_block_by_header(true)
        for found, sent in zip(chain.transactions(header), block.transactions, strict=True):
            names = set(SignedTransaction.__dataclass_fields__) - {"encoded", "access_list"}
            for name in (*names, "hash", "sender"):
                assert getattr(found, name) == getattr(sent, name), name
            assert found.encoded == sent.encode()
            assert found.access_list == tuple(map(tuple, sent.access_list))
        receipts = machine.get_vm_class(true).get_receipt_builder()
        for mine, theirs in zip(
            chain.receipts(header), machine.chaindb.get_receipts(true, receipts), strict=True
        ):
            assert rlp.encode(mine) == theirs.encode()[1:]


def test_accounts_and_code_are_those_of_the_state(chain: EmbeddedChain) -> None:
    probe = chain.receipt(chain.transactions(chain.header(1))[0].hash)
    assert probe is not None
    for number in range(chain.head().number + 1):
        header = chain._chain.get_canonical_block_header_by_number(number)  # type: ignore[arg-type]
        state = chain._chain.get_vm(header).state
        for address in (chain.sender, str(probe.contract_address), "0x" + "99" * 20):
            owner = to_canonical(address)
            assert chain.account(address, number) == (
                state.get_nonce(owner),
                state.get_balance(owner),
            )
            assert chain.code(address, number) == state.get_code(owner)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=300))
def test_every_item_of_a_list_is_read_in_its_place(items: list[bytes]) -> None:
    database: dict[bytes, bytes] = {}
    trie, nodes = HexaryTrie(database), TrieNodes(database)
    for index, item in enumerate(items):
        trie[rlp.encode(index)] = item
    expected = [*items, b"", b""]
    keys = map(rlp.encode, range(len(expected)))
    assert [nodes.value(trie.root_hash, key) for key in keys] == expected


@pytest.mark.parametrize(
    "encoded", [b"\x03\xc0", b"\xc0", b"\x02\xc0", b"\x01" + rlp.encode([b"\0"] * 11)]
)
def test_a_transaction_of_another_form_is_refused(encoded: bytes) -> None:
    with pytest.raises((ValueError, rlp.exceptions.RLPException)):
        SignedTransaction.decode(encoded)


@pytest.mark.parametrize("key", [HEAD_KEY, number_key(1)])
def test_a_header_under_a_key_that_is_no_hash_is_damage(chain: EmbeddedChain, key: bytes) -> None:
    chain._store.rows("INSERT INTO kv VALUES (x'07', ?)", (rlp.encode(chain.header(1)),))
    value = b"\x07" if key == HEAD_KEY else rlp.encode(b"\x07")
    chain._store.rows("UPDATE kv SET value = ? WHERE key = ?", (value, key))
    with (
        pytest.raises(ChainDamagedError, match="damaged"),
        EmbeddedReader.open(chain._store.path) as reader,
    ):
        reader.header(1)


def test_a_header_lacks_no_field() -> None:
    with pytest.raises(rlp.exceptions.DeserializationError):
        rlp.decode(rlp.encode([b""] * 20), Header)
