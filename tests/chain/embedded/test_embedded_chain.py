"""The embedded chain's own promises: durable, one writer, many readers, one chain id."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import rlp  # type: ignore[import-untyped]
from eth_account import Account

from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.embedded.reader import ContractCall, EmbeddedReader
from ledger.chain.ports import ChainLockedError, LogQuery, TransactionRefusedError, WrongChainError
from ledger.protocol.errors import ChainError
from ledger.protocol.signing import GROUP_ORDER
from tests.chain.probe import deploy, word, words
from tests.chain.web3_provider import web3_over

GAS = 200_000


def signed(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "type": 2,
        "chainId": DEFAULT_CHAIN_ID,
        "nonce": 0,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 0,
        "gas": 100_000,
        "to": "0x" + "11" * 20,
        "value": 0,
        "data": b"",
    }
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    return bytes(Account.sign_transaction(fields, TEST_KEYS[0]).raw_transaction)


def test_creating_over_a_chain_is_refused_and_leaves_it(path: Path) -> None:
    with EmbeddedChain.create(path) as chain:
        genesis = chain.genesis_hash
    with pytest.raises(ChainError, match="exists; open it"):
        EmbeddedChain.create(path)
    with EmbeddedChain.open(path) as chain:
        assert chain.genesis_hash == genesis


def test_creation_continues_over_the_empty_file_of_a_killed_one(path: Path) -> None:
    path.touch()
    with EmbeddedChain.create(path) as chain:
        assert chain.head().number == 0


@pytest.mark.parametrize("opener", [EmbeddedChain.open, EmbeddedReader.open])
def test_opening_what_is_not_there_says_so(path: Path, opener: type[EmbeddedReader]) -> None:
    with pytest.raises(ChainError, match="no such chain file"):
        opener(path)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_second_writer_is_refused_and_told_who_writes(chain: EmbeddedChain, path: Path) -> None:
    with pytest.raises(ChainLockedError, match=rf"process {os.getpid()} \(.+\) writes"):
        EmbeddedChain.open(path)
    chain.mine(1)


def test_a_failed_opening_gives_the_lock_back(path: Path) -> None:
    EmbeddedChain.create(path).close()
    with pytest.raises(WrongChainError):
        EmbeddedChain.open(path, chain_id=1)
    EmbeddedChain.open(path).close()


def test_using_a_closed_chain_is_a_chain_error(path: Path) -> None:
    chain = EmbeddedChain.create(path)
    chain.close()
    chain.close()
    with pytest.raises(ChainError, match="closed"):
        chain.head()


def test_a_reader_takes_no_lock_and_cannot_write(path: Path) -> None:
    EmbeddedChain.create(path).close()
    with EmbeddedReader.open(path) as reader, EmbeddedChain.open(path) as writer:
        writer.mine(2)
        assert reader.head().number == 2
        assert not hasattr(reader, "send")
        with pytest.raises(ChainError, match="readonly"):
            reader._store.commit({b"key": b"value"}, parent=reader.head().hash)


def test_the_file_is_untouched_by_reading(path: Path) -> None:
    with EmbeddedChain.create(path) as chain:
        chain.send(deploy(chain), words(1, 2), GAS)
    before = path.read_bytes()
    with EmbeddedReader.open(path) as reader:
        reader.call("0x" + "11" * 20, b"")
        reader.verify(execute=True)
    assert path.read_bytes() == before


def test_an_own_key_is_funded_at_genesis(path: Path) -> None:
    with EmbeddedChain.create(path, key=b"\x05" * 32) as chain:
        assert chain.sender == address_of(b"\x05" * 32)
        deploy(chain)


class TestChainId:
    def test_is_ours_and_the_same_everywhere(self, chain: EmbeddedChain, path: Path) -> None:
        assert chain.chain_id == web3_over(chain).eth.chain_id == DEFAULT_CHAIN_ID == 1_129_137_740
        assert web3_over(chain).net.version == str(DEFAULT_CHAIN_ID)
        returned = chain.execute(
            ContractCall(None, bytes.fromhex("465f5260205ff3"))
        )  # CHAINID, return it
        assert bytes(returned.output) == word(DEFAULT_CHAIN_ID)
        with EmbeddedReader.open(path) as reader:
            assert reader.chain_id == DEFAULT_CHAIN_ID

    def test_must_be_the_expected_one(self, path: Path) -> None:
        EmbeddedChain.create(path, chain_id=77).close()
        with pytest.raises(WrongChainError, match="has chain id 77, expected 78"):
            EmbeddedReader.open(path, chain_id=78)
        with pytest.raises(WrongChainError, match="expected 0x0101"):
            EmbeddedReader.open(path, chain_id=77, genesis_hash=b"\x01" * 32)

    def test_a_transaction_for_another_chain_is_refused(self, chain: EmbeddedChain) -> None:
        with pytest.raises(WrongChainError, match="have 1 want 1129137740"):
            chain.submit(signed(chainId=1))
        assert chain.head().number == 0

    @pytest.mark.parametrize("chain_id", [None, DEFAULT_CHAIN_ID])
    def test_an_untyped_transaction_is_refused(
        self, chain: EmbeddedChain, chain_id: int | None
    ) -> None:
        legacy = signed(
            type=None,
            maxFeePerGas=None,
            maxPriorityFeePerGas=None,
            gasPrice=10**10,
            chainId=chain_id,
        )
        with pytest.raises(TransactionRefusedError, match="only EIP-1559 and access-list"):
            chain.submit(legacy)

    @pytest.mark.parametrize(
        "raw", [b"", b"\x02", b"\x02\xc0", b"\x02" + b"\xff" * 40, b"\x04\xc0", b"\x7f" * 9]
    )
    def test_a_malformed_transaction_is_refused(self, chain: EmbeddedChain, raw: bytes) -> None:
        with pytest.raises(TransactionRefusedError):
            chain.submit(raw)
        assert chain.head().number == 0

    def test_a_transaction_of_endless_lists_is_refused(self, chain: EmbeddedChain) -> None:
        nested = b"\xc0"
        for _ in range(12_000):  # more than any library lets Python recurse
            nested = rlp_list(nested)
        with pytest.raises(TransactionRefusedError, match="malformed"):
            chain.submit(b"\x02" + nested)

    @pytest.mark.parametrize(
        "signature",
        [
            (0, 5, 1),  # no point of the curve has this x
            (1, 2**256 - 1, 2**256 - 1),
            (0, 0, 0),
            (0, 1, 0),
            (0, 0, 1),
            (1, GROUP_ORDER, 1),
            (7, 1, 1),
        ],
    )
    def test_a_transaction_that_nobody_can_have_signed_is_refused(
        self, chain: EmbeddedChain, signature: tuple[int, int, int]
    ) -> None:
        fields = rlp.decode(signed()[1:])[:-3]
        with pytest.raises(TransactionRefusedError):
            chain.submit(b"\x02" + rlp.encode([*fields, *signature]))
        assert chain.head().number == 0
        chain.submit(signed())

    def test_no_transaction_is_taken_twice(self, chain: EmbeddedChain) -> None:
        chain.submit(signed())
        with pytest.raises(TransactionRefusedError, match="nonce"):
            chain.submit(signed())
        assert chain.head().number == 1


def rlp_list(content: bytes) -> bytes:
    size = len(content)
    if size < 56:
        return bytes([0xC0 + size]) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0xF7 + len(digits)]) + digits + content


class TestTime:
    def test_timestamps_never_precede_the_parent_and_lead_by_a_second(self, path: Path) -> None:
        ticks = iter([1000.0, 1000.2, 1000.9, 2000.0, 500.0])
        with EmbeddedChain.create(path, clock=lambda: next(ticks)) as chain:
            chain.mine(4)
            times = [chain.block(number).timestamp for number in range(5)]
        assert times == [1000, 1001, 1001, 2000, 2000]

    def test_of_a_clock_before_1970_begins_at_0(self, path: Path) -> None:
        with EmbeddedChain.create(path, clock=lambda: -86_400.5) as chain:
            chain.mine(2)
            assert [chain.block(number).timestamp for number in range(3)] == [0, 1, 1]
            chain.verify(execute=True)


class TestInterruptedTransactions:
    def test_leave_no_trace_and_the_next_one_succeeds(
        self, chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        probe = deploy(chain)
        head = chain.head()
        with monkeypatch.context() as patch:
            patch.setattr(chain._store, "commit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                chain.send(probe, words(3, 3), GAS)
        assert chain.head() == head
        assert chain.call(probe, b"") == word(0)
        assert chain.logs(LogQuery(probe, [], 0, 9)) == []
        assert chain.send(probe, words(4, 4), GAS).block_number == head.number + 1
        chain.verify(execute=True)

    def test_a_full_disk_is_a_chain_error_and_loses_nothing(self, chain: EmbeddedChain) -> None:
        probe = deploy(chain)
        [(pages,)] = chain._store.rows("PRAGMA page_count")
        chain._store.rows(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ChainError, match="full"):
            chain.mine(1000)
        [(pages,)] = chain._store.rows("PRAGMA max_page_count = 1000000")
        chain.send(probe, words(1, 1), GAS)
        chain.verify(execute=True)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_slow_signatures_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECC_BACKEND_CLASS", "eth_keys.backends.NativeECCBackend")
    with pytest.raises(ChainError, match="NativeECCBackend; install coincurve"):
        EmbeddedChain.create(tmp_path / "chain.sqlite")
