"""Damaged and forged chain files: one line says what is wrong, and nothing is believed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import rlp  # type: ignore[import-untyped]
from eth_hash.auto import keccak
from trie.hexary import HexaryTrie

from ledger.chain.embedded import chain_store
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import BlockDamagedError, ChainDamagedError, LogQuery
from ledger.protocol.encoding import to_canonical
from ledger.protocol.errors import ChainError
from tests.chain.probe import deploy, words

BLOCKS = 6
PROBE_BLOCK = 4


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        probe = deploy(chain)
        for value in range(2, BLOCKS + 1):
            chain.send(probe, words(value, 0), 200_000)
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "chain.sqlite"))


def change(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement, values in statements:
            assert connection.execute(statement, values).rowcount, "the forgery changes something"
    connection.close()


def verify(path: Path, *, execute: bool = False) -> None:
    with EmbeddedReader.open(path) as chain:
        chain.verify(execute=execute)


def test_the_untouched_chain_is_accepted(path: Path) -> None:
    seen: list[int] = []
    with EmbeddedReader.open(path) as chain:
        chain.verify(progress=seen.append)
        chain.verify(execute=True)
    assert seen == list(range(BLOCKS + 1))


class TestFilesThatAreNoChain:
    @pytest.mark.parametrize("content", [b"not SQLite at all" * 100, b"SQLite format 3\x00", b"x"])
    def test_other_content_is_refused(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        refused(path, ChainError)

    def test_an_empty_file_is_refused(self, path: Path) -> None:
        path.write_bytes(b"")
        refused(path, ChainDamagedError, "does not contain a chain")

    def test_another_database_is_refused(self, path: Path) -> None:
        path.unlink()
        change(path, ("CREATE TABLE t (x)", ()), ("INSERT INTO t VALUES (1)", ()))
        refused(path, ChainDamagedError, "does not have a chain's tables")

    def test_a_trigger_or_a_view_is_refused(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON logs BEGIN DELETE FROM logs WHERE id = new.id; END"
        )
        connection.close()
        refused(path, ChainDamagedError, "does not have a chain's tables")

    def test_a_pipe_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ChainError, match="is not a file"):
            chain_store.ChainStore.is_blank(tmp_path / "pipe")

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        refused(tmp_path, ChainError, "no such chain file")

    @pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
    def test_a_truncated_file_is_refused_or_found_out(self, path: Path, share: float) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(ChainError):
            verify(path)

    @pytest.mark.parametrize("name", ["chain_id", "genesis_hash", "fork", "schema"])
    def test_an_incomplete_meta_table_is_refused(self, path: Path, name: str) -> None:
        change(path, ("DELETE FROM meta WHERE name = ?", (name,)))
        refused(path, ChainDamagedError, f"lacks {name}")

    @pytest.mark.parametrize(
        ("name", "value", "words_in_it"),
        [
            ("chain_id", "many", "damaged"),
            ("genesis_hash", "11" * 32, "block 0 is missing"),
            ("genesis_hash", "no hex", "damaged"),
            ("chain_id", "013_1337", "'013_1337' is not a canonical chain id"),
            ("chain_id", " 131337", "is not a canonical chain id"),
            ("genesis_hash", " ", "is not a canonical genesis hash"),
            ("genesis_hash", "AB" * 32, "is not a canonical genesis hash"),
            ("fork", "Osaka", "runs Osaka, not Prague"),
            ("schema", "2", "format 2, this program reads 1"),
        ],
    )
    def test_a_wrong_meta_table_is_refused(
        self, path: Path, name: str, value: str, words_in_it: str
    ) -> None:
        change(path, ("UPDATE meta SET value = ? WHERE name = ?", (value, name)))
        refused(path, ChainError, words_in_it)

    @pytest.mark.parametrize("table", ["kv", "logs", "meta"])
    def test_a_missing_table_is_refused(self, path: Path, table: str) -> None:
        connection = sqlite3.connect(path)
        connection.execute(f"DROP TABLE {table}")
        connection.close()
        refused(path, ChainDamagedError)

    def test_a_missing_head_is_refused(self, path: Path) -> None:
        change(path, ("DELETE FROM kv WHERE key = ?", (b"v1:canonical_head_hash",)))
        refused(path, ChainDamagedError, "the head of the chain is missing")

    def test_a_head_of_another_hash_is_refused(self, path: Path) -> None:
        head = value_of(path, b"v1:canonical_head_hash")
        change(path, ("UPDATE kv SET value = ? WHERE key = ?", (b"\xc0", head)))
        refused(path, ChainDamagedError, "has another hash")


def refused(path: Path, kind: type[ChainError], words_in_it: str | None = None) -> None:
    with pytest.raises(kind, match=words_in_it) as reading:
        EmbeddedReader.open(path)
    with pytest.raises(kind, match=words_in_it) as writing:
        EmbeddedChain.open(path)
    for caught in (reading, writing):
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_never_pass_and_never_raise_anything_else(
    original: Path, path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(20):
        content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    try:
        found = everything(path)
    except ChainError:
        return
    # What was hit is the free space of a page: nothing that anybody reads.
    assert found == everything(original)


def everything(path: Path) -> list[object]:
    with EmbeddedReader.open(path) as chain:
        headers = [chain.header(number) for number in range(BLOCKS + 1)]
        sent = [bytes(one.hash) for header in headers for one in chain.transactions(header)]
        chain.verify(execute=True)
        return [headers, chain.logs(LogQuery(None, [], 0, BLOCKS)), *map(chain.receipt, sent)]


class TestForgeries:
    """Each kind of thing in the file, changed as by somebody who can write it."""

    def named(self, path: Path, words_in_it: str, block: int = PROBE_BLOCK) -> None:
        with pytest.raises(BlockDamagedError, match=words_in_it) as caught:
            verify(path)
        assert caught.value.block_number == block
        assert str(caught.value).startswith(f"block {block}: ")

    @pytest.mark.parametrize("column", ["address", "topic0", "topic1", "topic2", "data"])
    def test_a_changed_log_row_is_named(self, path: Path, column: str) -> None:
        row = chain_store.row_id(PROBE_BLOCK, 0)
        change(path, (f"UPDATE logs SET {column} = ? WHERE id = ?", (b"\x07" * 32, row)))
        self.named(path, "log 0 in the log table is not the receipt's")

    def test_a_log_row_of_another_transaction_is_named(self, path: Path) -> None:
        row = chain_store.row_id(PROBE_BLOCK, 0)
        change(path, ("UPDATE logs SET transaction_hash = ? WHERE id = ?", (b"\x07" * 32, row)))
        self.named(path, "log 0 in the log table is not the receipt's")

    def test_a_missing_log_row_is_named(self, path: Path) -> None:
        change(path, ("DELETE FROM logs WHERE id = ?", (chain_store.row_id(PROBE_BLOCK, 0),)))
        self.named(path, "has 1 logs, the log table 0")

    def test_an_added_log_row_is_named(self, path: Path) -> None:
        self.copy_log(path, chain_store.row_id(PROBE_BLOCK, 1))
        self.named(path, "has 1 logs, the log table 2")

    def test_an_index_that_hides_a_log_is_found_out(self, path: Path) -> None:
        """The row stays, but no filter by topic would find it."""
        connection = sqlite3.connect(path, isolation_level=None)
        [(sql,)] = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'logs_by_topic1'"
        ).fetchall()
        connection.execute("DROP INDEX logs_by_topic1")
        connection.execute(f"{sql} AND id != {chain_store.row_id(PROBE_BLOCK, 0)}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'logs_by_topic1'", (sql,))
        connection.close()
        with EmbeddedReader.open(path) as chain:
            assert chain.logs(LogQuery(None, [None, words(PROBE_BLOCK)], 0, 1000)) == []
        with pytest.raises(ChainDamagedError, match="missing from index logs_by_topic1"):
            verify(path)

    def test_a_log_row_beyond_the_head_is_named(self, path: Path) -> None:
        self.copy_log(path, chain_store.row_id(BLOCKS + 5, 0))
        self.named(path, "has logs but is not in the chain", BLOCKS + 5)

    def copy_log(self, path: Path, row: int) -> None:
        columns = chain_store.COLUMNS.removeprefix("id, ")
        change(
            path,
            (
                f"INSERT INTO logs SELECT ?, {columns} FROM logs WHERE id = ?",
                (row, chain_store.row_id(PROBE_BLOCK, 0)),
            ),
        )

    @pytest.mark.parametrize("part", ["receipt_root", "transaction_root", "state_root"])
    def test_a_changed_receipt_transaction_or_state_is_named(self, path: Path, part: str) -> None:
        with EmbeddedReader.open(path) as chain:
            key = getattr(chain.header(PROBE_BLOCK), part)
        value = bytearray(value_of(path, key))
        value[-1] ^= 1
        change(path, ("UPDATE kv SET value = ? WHERE key = ?", (bytes(value), key)))
        with pytest.raises(ChainDamagedError, match=f"0x{key.hex()} has another hash"):
            verify(path)

    @pytest.mark.parametrize("part", ["receipt_root", "transaction_root", "state_root"])
    def test_a_missing_receipt_transaction_or_state_is_found(self, path: Path, part: str) -> None:
        with EmbeddedReader.open(path) as chain:
            key = getattr(chain.header(PROBE_BLOCK), part)
        change(path, ("DELETE FROM kv WHERE key = ?", (key,)))
        with pytest.raises(ChainDamagedError):
            verify(path, execute=True)

    def test_a_changed_header_is_named(self, path: Path) -> None:
        with EmbeddedReader.open(path) as chain:
            header = chain.header(PROBE_BLOCK)
            forged = header.copy(timestamp=header.timestamp + 1)
        change(path, ("UPDATE kv SET value = ? WHERE key = ?", (rlp.encode(forged), header.hash)))
        with pytest.raises(ChainDamagedError, match=f"0x{header.hash.hex()} has another hash"):
            verify(path)

    def test_a_rebuilt_block_does_not_fit_its_successor(self, path: Path) -> None:
        rebuild(path, PROBE_BLOCK, lambda header: header.copy(timestamp=header.timestamp + 1))
        self.named(path, "does not follow block 4", PROBE_BLOCK + 1)

    def test_a_rebuilt_genesis_is_not_the_recorded_one(self, path: Path) -> None:
        rebuild(path, 0, lambda header: header.copy(timestamp=header.timestamp + 1))
        self.named(path, "is not the recorded genesis", 0)

    def test_a_block_filed_under_another_number_is_named(self, path: Path) -> None:
        with EmbeddedReader.open(path) as chain:
            other = chain.block(2).hash
        change(path, ("UPDATE kv SET value = ? WHERE key = ?", (rlp.encode(other), number_key(4))))
        self.named(path, "is filed as block 2")
        with EmbeddedReader.open(path) as chain, pytest.raises(ChainDamagedError):
            chain.block(4)

    def test_a_missing_block_is_named(self, path: Path) -> None:
        change(path, ("DELETE FROM kv WHERE key = ?", (number_key(4),)))
        self.named(path, "is missing")

    def test_a_misled_transaction_look_up_is_named(self, path: Path) -> None:
        with EmbeddedReader.open(path) as chain:
            [transaction] = chain.transactions(chain.header(PROBE_BLOCK))
        key = f"transaction-hash-to-block:{transaction.hash!r}".encode()
        change(path, ("UPDATE kv SET value = ? WHERE key = ?", (rlp.encode([2, 0]), key)))
        with EmbeddedReader.open(path) as chain, pytest.raises(ChainDamagedError):
            chain.receipt(bytes(transaction.hash))
        self.named(path, "is looked up elsewhere")
        change(path, ("DELETE FROM kv WHERE key = ?", (key,)))
        self.named(path, "cannot be looked up")

    @pytest.mark.parametrize("number", [PROBE_BLOCK, BLOCKS])
    def test_any_change_of_a_transaction_look_up_is_named(self, path: Path, number: int) -> None:
        with EmbeddedReader.open(path) as chain:
            [transaction] = chain.transactions(chain.header(number))
        key = f"transaction-hash-to-block:{transaction.hash!r}".encode()
        value = value_of(path, key)
        flips = [(at, 1 << bit) for at in range(len(value)) for bit in range(8)]
        changed = [bytes([*value[:at], value[at] ^ bit, *value[at + 1 :]]) for at, bit in flips]
        # An empty list where a number stands is decoded as 0.
        for other in (*changed, value[:2] + b"\xc0", value + b"\x80", value[:-1], b""):
            change(path, ("UPDATE kv SET value = ? WHERE key = ?", (other, key)))
            self.named(path, "is looked up elsewhere", number)

    def test_an_invented_transaction_look_up_is_named(self, path: Path) -> None:
        key = f"transaction-hash-to-block:{bytes(32)!r}".encode()
        change(path, ("INSERT INTO kv VALUES (?, ?)", (key, rlp.encode([2, 0]))))
        with pytest.raises(ChainDamagedError, match="7 transactions can be looked up"):
            verify(path)

    def test_invented_receipts_in_a_head_do_not_survive_replay(self, path: Path) -> None:
        """The strongest forger: consistent everywhere, and only the EVM disagrees."""
        with EmbeddedReader.open(path) as chain:
            [receipt] = chain.receipts(chain.header(BLOCKS))
            [log] = receipt.logs
        forged = b"\x02" + rlp.encode(receipt.copy(logs=(log.copy(data=b"\x09" * 32),)))
        nodes: dict[bytes, bytes] = {}
        trie = HexaryTrie(nodes)
        trie[rlp.encode(0)] = forged
        root = trie.root_hash
        change(
            path,
            *[("INSERT INTO kv VALUES (?, ?)", (key, value)) for key, value in nodes.items()],
            (
                "UPDATE logs SET data = ? WHERE id = ?",
                (b"\x09" * 32, chain_store.row_id(BLOCKS, 0)),
            ),
        )
        rebuild(path, BLOCKS, lambda header: header.copy(receipt_root=root))
        verify(path)
        with pytest.raises(
            BlockDamagedError, match="block 6: does not follow from its transactions"
        ):
            verify(path, execute=True)


def value_of(path: Path, key: bytes) -> bytes:
    connection = sqlite3.connect(path)
    [(value,)] = connection.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchall()
    connection.close()
    assert isinstance(value, bytes)
    return value


def number_key(number: int) -> bytes:
    return f"block-number-to-hash:{number}".encode()


def score_key(block_hash: bytes) -> bytes:
    return f"block-hash-to-score:{block_hash!r}".encode()


def rebuild(path: Path, number: int, forge: Callable[..., object]) -> None:
    """Put another header in the place of a block's, under its own hash, number and score."""
    with EmbeddedReader.open(path) as chain:
        true_hash = chain.header(number).hash
        header = forge(chain.header(number))
        is_head = chain.head().number == number
    encoded = rlp.encode(header)
    block_hash = keccak(encoded)
    pointers = [(number_key(number), rlp.encode(block_hash))]
    pointers += [(b"v1:canonical_head_hash", block_hash)] if is_head else []
    change(
        path,
        ("INSERT INTO kv VALUES (?, ?)", (block_hash, encoded)),
        ("UPDATE kv SET key = ? WHERE key = ?", (score_key(block_hash), score_key(true_hash))),
        *[("UPDATE kv SET value = ? WHERE key = ?", (value, key)) for key, value in pointers],
    )


def refused_next(path: Path, words_in_it: str) -> None:
    """A reader still shows what it can; verification and the next writer say what is wrong."""
    before = path.read_bytes()
    with EmbeddedReader.open(path) as reader:
        assert reader.head().number == BLOCKS
        with pytest.raises(ChainDamagedError, match=words_in_it):
            reader.verify()
    with pytest.raises(ChainDamagedError, match=words_in_it):
        EmbeddedChain.open(path)
    assert path.read_bytes() == before


def delete(path: Path, key: bytes) -> None:
    change(path, ("DELETE FROM kv WHERE key = ?", (key,)))


def replace(path: Path, key: bytes, value: bytes) -> None:
    change(path, ("UPDATE kv SET value = ? WHERE key = ?", (value, key)))


def head_of(path: Path) -> bytes:
    with EmbeddedReader.open(path) as reader:
        return reader.head().hash


def state_nodes(path: Path) -> dict[str, bytes]:
    """Return what the newest state is made of: its root's child, a storage trie, a code."""
    with EmbeddedReader.open(path) as reader:
        root = reader.header().state_root
        [probe] = {log.address for log in reader.logs(LogQuery(None, [], 0, BLOCKS))}
        accounts = HexaryTrie(reader._database, root)
        storage_root, code_hash = rlp.decode(accounts[keccak(to_canonical(probe))])[2:]
    [*children, _] = rlp.decode(value_of(path, root))
    return {
        "the accounts of the newest block": next(child for child in children if len(child) == 32),
        "the contracts' storage": storage_root,
        "the contracts' code": code_hash,
    }


def test_a_chain_longer_than_blockhash_reaches_is_accepted(tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "long", synchronous="NORMAL") as chain:
        chain.mine(260)
    EmbeddedChain.open(tmp_path / "long").close()


@pytest.mark.parametrize(
    "part", ["the accounts of the newest block", "the contracts' storage", "the contracts' code"]
)
class TestTheState:
    def test_that_lacks_a_part_is_refused(self, path: Path, part: str) -> None:
        key = state_nodes(path)[part]
        delete(path, key)
        refused_next(path, f"0x{key.hex()} is missing, part of {part}")

    def test_that_has_an_altered_part_is_refused(self, path: Path, part: str) -> None:
        key = state_nodes(path)[part]
        replace(path, key, value_of(path, key) + b"\x00")
        refused_next(path, f"the value stored under 0x{key.hex()} has another hash, part of {part}")


class TestTheLookUps:
    def test_a_missing_score_is_named(self, path: Path) -> None:
        delete(path, score_key(head_of(path)))
        refused_next(path, f"block {BLOCKS}: has no score")

    def test_an_altered_score_is_named(self, path: Path) -> None:
        replace(path, score_key(head_of(path)), rlp.encode(1))
        refused_next(path, f"block {BLOCKS}: has a wrong score")

    def test_an_older_score_is_verified_too(self, path: Path) -> None:
        with EmbeddedReader.open(path) as reader:
            replace(path, score_key(reader.block(2).hash), rlp.encode(9))
            with pytest.raises(ChainDamagedError, match="block 2: has a wrong score"):
                reader.verify()
        EmbeddedChain.open(path).close()

    @pytest.mark.parametrize("what", ["header_chain_gaps", "chain_gaps"])
    @pytest.mark.parametrize("value", [None, b"", b"junk", rlp.encode([[], 3])])
    def test_the_list_of_missing_blocks_is_that_of_the_chain(
        self, path: Path, what: str, value: bytes | None
    ) -> None:
        key = f"v1:{what}".encode()
        if value is None:
            delete(path, key)
        else:
            replace(path, key, value)
        refused_next(path, "the list of missing (headers|blocks) is not that of a chain of 6")

    def test_a_missing_header_is_named(self, path: Path) -> None:
        with EmbeddedReader.open(path) as reader:
            delete(path, reader.block(3).hash)
        refused_next(path, "block 3: (lacks its header|is missing)")

    def test_a_block_after_the_newest_is_named(self, path: Path) -> None:
        insert(path, number_key(BLOCKS + 1), value_of(path, number_key(2)))
        refused_next(path, f"block {BLOCKS + 1}: is filed, but after the newest")

    def test_a_number_far_beyond_is_counted(self, path: Path) -> None:
        insert(path, number_key(BLOCKS + 9), value_of(path, number_key(2)))
        with (
            EmbeddedReader.open(path) as reader,
            pytest.raises(ChainDamagedError, match="8 block numbers can be looked up"),
        ):
            reader.verify()

    def test_logs_in_the_place_of_the_next_blocks_are_named(self, path: Path) -> None:
        rows = "UPDATE logs SET id = ? WHERE id = ?"
        change(path, (rows, (chain_store.row_id(BLOCKS + 1, 0), chain_store.row_id(BLOCKS, 0))))
        with pytest.raises(ChainDamagedError, match="block 7: has logs but is not in the chain"):
            EmbeddedChain.open(path)


def insert(path: Path, key: bytes, value: bytes) -> None:
    change(path, ("INSERT INTO kv VALUES (?, ?)", (key, value)))
