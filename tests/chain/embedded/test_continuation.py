"""What the next block needs is looked at before a writer is let in, and by every verification."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import rlp  # type: ignore[import-untyped]
from eth_hash.auto import keccak
from trie.hexary import HexaryTrie

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.embedded.file import log_table
from ledger.chain.ports import ChainDamagedError
from tests.chain.embedded.test_damage import change, number_key, score_key, value_of
from tests.chain.probe import deploy, words

BLOCKS = 5


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("continuation") / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        probe = deploy(chain)
        for value in range(2, BLOCKS + 1):
            chain.send(probe, words(value, 0), 200_000)
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "chain.sqlite"))


def refused(path: Path, words_in_it: str) -> None:
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
        [probe] = {log.address for log in reader.logs(None, [], 0, BLOCKS)}
        accounts = HexaryTrie(reader._database, root)
        storage_root, code_hash = rlp.decode(accounts[keccak(to_canonical(probe))])[2:]
    [*children, _] = rlp.decode(value_of(path, root))
    return {
        "the accounts of the newest block": next(child for child in children if len(child) == 32),
        "the contracts' storage": storage_root,
        "the contracts' code": code_hash,
    }


def test_an_untouched_chain_is_accepted(path: Path) -> None:
    with EmbeddedChain.open(path) as chain:
        chain.mine(1)
        chain.verify(execute=True)


def test_a_chain_without_blocks_is_accepted(tmp_path: Path) -> None:
    EmbeddedChain.create(tmp_path / "new").close()
    with EmbeddedChain.open(tmp_path / "new") as chain:
        chain.verify(execute=True)


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
        refused(path, f"0x{key.hex()} is missing, part of {part}")

    def test_that_has_an_altered_part_is_refused(self, path: Path, part: str) -> None:
        key = state_nodes(path)[part]
        replace(path, key, value_of(path, key) + b"\x00")
        refused(path, f"the value stored under 0x{key.hex()} has another hash, part of {part}")


class TestTheLookUps:
    def test_a_missing_score_is_named(self, path: Path) -> None:
        delete(path, score_key(head_of(path)))
        refused(path, f"block {BLOCKS}: has no score")

    def test_an_altered_score_is_named(self, path: Path) -> None:
        replace(path, score_key(head_of(path)), rlp.encode(1))
        refused(path, f"block {BLOCKS}: has a wrong score")

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
        refused(path, "the list of missing (headers|blocks) is not that of a chain of 5 blocks")

    def test_a_missing_number_is_named(self, path: Path) -> None:
        delete(path, number_key(3))
        refused(path, "block 3: is missing")

    def test_a_number_that_leads_elsewhere_is_named(self, path: Path) -> None:
        replace(path, number_key(3), value_of(path, number_key(2)))
        refused(path, "block 3: is filed (under another hash|as block 2)")

    def test_a_missing_header_is_named(self, path: Path) -> None:
        with EmbeddedReader.open(path) as reader:
            delete(path, reader.block(3).hash)
        refused(path, "block 3: (lacks its header|is missing)")

    def test_a_block_after_the_newest_is_named(self, path: Path) -> None:
        insert(path, number_key(BLOCKS + 1), value_of(path, number_key(2)))
        refused(path, f"block {BLOCKS + 1}: is filed, but after the newest")

    def test_a_number_far_beyond_is_counted(self, path: Path) -> None:
        insert(path, number_key(BLOCKS + 9), value_of(path, number_key(2)))
        with (
            EmbeddedReader.open(path) as reader,
            pytest.raises(ChainDamagedError, match="7 block numbers can be looked up"),
        ):
            reader.verify()

    def test_logs_in_the_place_of_the_next_blocks_are_named(self, path: Path) -> None:
        rows = "UPDATE logs SET id = ? WHERE id = ?"
        change(path, (rows, (log_table.row_id(BLOCKS + 1, 0), log_table.row_id(BLOCKS, 0))))
        with pytest.raises(ChainDamagedError, match="block 6: has logs but is not in the chain"):
            EmbeddedChain.open(path)


def insert(path: Path, key: bytes, value: bytes) -> None:
    change(path, ("INSERT INTO kv VALUES (?, ?)", (key, value)))
