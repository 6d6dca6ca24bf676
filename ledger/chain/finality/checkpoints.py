"""The final blocks that an actor has acted on, and whether they still are the chain's.

What is final is not taken back - until it is: by a reorganisation deeper than was believed, or
where a chain's operator has restored an older copy. Nothing on the chain itself tells. So whoever
signs writes down what he has built on, on his own disk, and looks at it before he signs again.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Self

from ledger.chain.ports import (
    Block,
    ChainBehindError,
    ReorganisedError,
    WrongChainIdError,
    WrongGenesisError,
)
from ledger.io.home import DISK, read_file
from ledger.io.json import parse_json
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.ports import ChainReader
    from ledger.io.home import Disk

FORMAT = 1
MOST_BYTES = 64 * 1024
_NEWEST_KEPT = 16


class FinalityCheckpoints:
    """The final blocks that one process has acted on. Safe to share between threads.

    Args:
        path: of the file.
        chain_id: of the chain.
        genesis_hash: of the chain's block 0.
        blocks: hashes by number.
        disk: that the file is written on.
    """

    def __init__(
        self,
        path: Path,
        chain_id: int,
        genesis_hash: bytes,
        blocks: dict[int, bytes],
        disk: Disk = DISK,
    ) -> None:
        self._path = path
        self._chain_id = chain_id
        self._genesis_hash = genesis_hash
        self._blocks = blocks
        self._disk = disk
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, chain: ChainReader, disk: Disk = DISK) -> Self:
        """Return what a file holds, nothing where there is none yet.

        Args:
            path: of the file.
            chain: that it must be of.
            disk: that it is written on.

        Raises:
            WrongChainIdError: it is of a chain with another id.
            WrongGenesisError: it is of another chain with this id.
            ChainError: it cannot be read, or is none.
        """
        found = _read(path)
        if found is None:
            return cls(path, chain.chain_id, chain.genesis_hash, {}, disk)
        chain_id, genesis_hash, blocks = found
        if chain_id != chain.chain_id:
            raise WrongChainIdError(
                f"{path}: what was acted on is of chain {chain_id}, not {chain.chain_id}"
            )
        if genesis_hash != chain.genesis_hash:
            raise WrongGenesisError(
                f"{path}: what was acted on is of the chain with genesis 0x{genesis_hash.hex()}, "
                f"not 0x{chain.genesis_hash.hex()}"
            )
        return cls(path, chain_id, genesis_hash, blocks, disk)

    @property
    def newest(self) -> int | None:
        """The number of the newest block that was acted on, None before the first."""
        return max(self._blocks, default=None)

    def note(self, block: Block) -> None:
        """Write down a final block, before it is acted on; it is on the disk when this returns.

        One that is older than the newest says nothing new, and one that is known costs nothing.

        Args:
            block: a final block.

        Raises:
            ReorganisedError: it is not the block of this number that was acted on before.
            OSError: it cannot be written.
        """
        with self._lock:
            then = self._blocks.get(block.number)
            if then is not None and then != block.hash:
                raise ReorganisedError(block.number, then, block.hash, self._agreed(block.number))
            if block.number <= max(self._blocks, default=-1):
                return
            kept = _thinned({**self._blocks, block.number: block.hash})
            self._disk.write_whole(self._path, self._encoded(kept))
            self._blocks = kept

    def require_unchanged(self, chain: ChainReader, newest: Block | None = None) -> None:
        """Accept a chain that still has all that was acted on.

        Args:
            chain: as it is now.
            newest: its newest block, where that is known.

        Raises:
            ReorganisedError: it has another block where one was final.
            ChainBehindError: it ends before the newest of them: the node lags behind, or an older
                copy was restored, which its next blocks will tell.
            ChainError: it is unreachable or damaged.
        """
        blocks = dict(self._blocks)
        if not blocks:
            return
        head = (chain.head() if newest is None else newest).number
        # Where the newest that is there is unchanged, so are all that it stands on.
        number = max((one for one in blocks if one <= head), default=None)
        if number is not None:
            now = chain.block(number).hash
            if now != blocks[number]:
                raise self._reorganised(chain, blocks, number, now)
        last = max(blocks)
        if last > head:
            raise ChainBehindError(last, blocks[last], head)

    def accept(self, chain: ChainReader) -> list[int]:
        """Forget what the chain has taken back, because its operator says that this is so.

        Args:
            chain: as it is from now on.

        Returns:
            The numbers of the blocks that are forgotten, ascending.

        Raises:
            ChainError: it is unreachable or damaged.
            OSError: the file cannot be written.
        """
        with self._lock:
            head = chain.head().number
            kept = {
                number: found
                for number, found in self._blocks.items()
                if number <= head and chain.block(number).hash == found
            }
            gone = sorted(set(self._blocks) - set(kept))
            if gone:
                self._disk.write_whole(self._path, self._encoded(kept))
                self._blocks = kept
            return gone

    def _reorganised(
        self, chain: ChainReader, blocks: dict[int, bytes], number: int, now: bytes
    ) -> ReorganisedError:
        """Return the error that names the oldest block that has changed."""
        oldest, hash_now, agreed = number, now, 0
        for older in sorted((one for one in blocks if one < number), reverse=True):
            found = chain.block(older).hash
            if found == blocks[older]:
                agreed = older
                break
            oldest, hash_now = older, found
        return ReorganisedError(oldest, blocks[oldest], hash_now, agreed)

    def _agreed(self, number: int) -> int:
        return max((one for one in self._blocks if one < number), default=0)

    def _encoded(self, blocks: dict[int, bytes]) -> bytes:
        text = json.dumps(
            {
                "format": FORMAT,
                "chain_id": self._chain_id,
                "genesis_hash": f"0x{self._genesis_hash.hex()}",
                "blocks": {str(number): f"0x{blocks[number].hex()}" for number in sorted(blocks)},
            },
            indent=1,
        )
        return text.encode() + b"\n"


def _thinned(blocks: dict[int, bytes]) -> dict[int, bytes]:
    """Return the newest of these blocks, and of the older ones about one for each doubling."""
    numbers = sorted(blocks, reverse=True)
    newest = numbers[0]
    # The oldest of each doubling: the newest would give way to the next before it came of age.
    older = {(newest - number).bit_length(): number for number in numbers[_NEWEST_KEPT:]}
    return {number: blocks[number] for number in (*numbers[:_NEWEST_KEPT], *older.values())}


def _read(path: Path) -> tuple[int, bytes, dict[int, bytes]] | None:
    what = f"what was acted on, {path}"
    try:
        data = read_file(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ChainError(f"{what}: cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ChainError(f"{what}: over {MOST_BYTES} bytes")
    try:
        found = parse_json(data, unique_keys=True)
    except ValueError as error:
        raise ChainError(f"{what}: not JSON: {error}") from error
    fields = {"format": int, "chain_id": int, "genesis_hash": str, "blocks": dict}
    if not isinstance(found, dict) or set(found) != set(fields):
        raise ChainError(f"{what}: it does not have the fields {', '.join(fields)}")
    for name, kind in fields.items():
        if type(found[name]) is not kind:
            raise ChainError(f"{what}: {name} is not of type {kind.__name__}")
    if found["format"] != FORMAT:
        raise ChainError(f"{what}: format {str(found['format'])[:20]} is not {FORMAT}")
    blocks = {
        _number(what, number): _hash(what, value) for number, value in found["blocks"].items()
    }
    return found["chain_id"], _hash(what, found["genesis_hash"]), blocks


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or str(int(text)) != text:
        raise ChainError(f"{what}: {text[:40]!r} is no block number")
    return int(text)


def _hash(what: str, value: Any) -> bytes:
    try:
        found = bytes.fromhex(value[2:]) if str(value).startswith("0x") else b""
    except (ValueError, TypeError):
        found = b""
    if len(found) != 32:
        raise ChainError(f"{what}: {str(value)[:80]!r} is no hash of 32 bytes, 0x and hex digits")
    return found
