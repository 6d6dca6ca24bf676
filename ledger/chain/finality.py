"""Finality: one rule for the newest final block, and a record of the blocks that were acted on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ledger.chain.ports import (
    Block,
    ChainBehindError,
    ChainReader,
    ReorganisedError,
    require_identity,
)
from ledger.io.home import DISK, Disk, read_file
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ChainError


def final_number(chain: ChainReader, newest: Block, confirmations: int | None) -> int:
    """Return the number of the newest final block.

    Args:
        newest: its newest block, as the caller has seen it.
        confirmations: depth at which a block is final; None for the chain's own finality.
    """
    if confirmations is None:
        return min(chain.finalized(), newest.number)
    if confirmations < 0:
        raise ValueError(f"{confirmations} confirmations: there are none below 0")
    return max(0, newest.number - confirmations)


def final_block(chain: ChainReader, confirmations: int | None) -> Block:
    """Return the newest final block; see `final_number`."""
    return chain.block(final_number(chain, chain.head(), confirmations))


class AncestryCheck:
    """Descent between blocks of one chain: whether the newest one descends from an earlier one.

    A block names its parent by hash, so descendants share everything below their ancestor. Most
    heads directly follow the previous one, which needs no request; for others one block is
    requested, once for all callers.
    """

    def __init__(self, block: Callable[[int], Block]) -> None:
        """Store how to read a block by number; nothing is requested yet."""
        self._block = block
        self._checked: tuple[bytes, bytes] | None = None
        self._answer = False

    def connects(self, older: Block, newest: Block) -> bool:
        """Return whether the chain's newest block is an earlier one, or descends from it."""
        if older.hash in {newest.hash, newest.parent_hash}:
            return True
        if newest.number <= older.number:
            return False
        if self._checked != (older.hash, newest.hash):
            self._answer = self._block(older.number).hash == older.hash
            self._checked = older.hash, newest.hash
        return self._answer


class LatestBlock:
    """Memory of the block with the latest time stamp, as long as the chain has it.

    A node may report a time stamp in the far future by mistake. A clock that follows the latest
    time has to know when the chain no longer has that block, or it would stay in the future.
    """

    def __init__(self) -> None:
        self._block: Block | None = None

    def is_gone(self, newest: Block) -> bool:
        """Return whether the latest block so far has left the chain; remember the newest.

        Time stamps increase along a chain: one that is at least as high and earlier does not
        contain it.
        """
        latest = self._block
        if latest is None or newest.number >= latest.number:
            self._block = newest
            return latest is not None and newest.timestamp < latest.timestamp
        if newest.timestamp > latest.timestamp:
            self._block = newest
        return False


FORMAT = 1
MOST_BYTES = 64 * 1024
_RECENT = 16


class FinalityCheckpoints:
    """The final blocks that one process has acted on. Safe to share between threads.

    A final block can still be reverted: by a reorganisation deeper than expected, or when an
    operator restores an older copy of the chain. The chain itself does not show it. An actor that
    signs therefore records the blocks it relies on in a local file, and verifies them before it
    signs again.

    Args:
        genesis_hash: of the chain's block 0.
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
        """Return the checkpoints in a file; none if it does not exist.

        Args:
            chain: the chain they must be of.
        """
        content = _read(path)
        if content is None:
            return cls(path, chain.chain_id, chain.genesis_hash, {}, disk)
        chain_id, genesis_hash, blocks = content
        require_identity(f"the chain of {path}", chain, chain_id, genesis_hash)
        return cls(path, chain_id, genesis_hash, blocks, disk)

    @property
    def newest(self) -> int | None:
        """Number of the newest checkpoint; None if there is none."""
        return max(self._blocks, default=None)

    def note(self, block: Block) -> None:
        """Record a final block before it is acted on; it is durable when this returns.

        A block that is not newer than the newest checkpoint is not written.
        """
        with self._lock:
            recorded = self._blocks.get(block.number)
            if recorded is not None and recorded != block.hash:
                raise ReorganisedError(
                    block.number, recorded, block.hash, self._agreed(block.number)
                )
            if block.number <= max(self._blocks, default=-1):
                return
            retained = _thinned({**self._blocks, block.number: block.hash})
            self._disk.write_whole(self._path, self._encoded(retained))
            self._blocks = retained

    def require_unchanged(self, chain: ChainReader, newest: Block | None = None) -> None:
        """Verify that a chain still has all checkpoints."""
        blocks = dict(self._blocks)
        if not blocks:
            return
        head = (chain.head() if newest is None else newest).number
        # If the newest one on the chain is unchanged, so are its ancestors.
        number = max((height for height in blocks if height <= head), default=None)
        if number is not None:
            current = chain.block(number).hash
            if current != blocks[number]:
                raise self._reorganised(chain, blocks, number, current)
        last = max(blocks)
        if last > head:
            raise ChainBehindError(
                f"the chain ends with block {head}, but block {last} 0x{blocks[last].hex()} was "
                "acted on: the node lags, or has an older copy"
            )

    def accept(self, chain: ChainReader) -> list[int]:
        """Forget the checkpoints that the chain has reverted, on the operator's word.

        Returns:
            The numbers of the forgotten blocks, ascending.
        """
        with self._lock:
            head = chain.head().number
            retained = {
                number: hash_
                for number, hash_ in self._blocks.items()
                if number <= head and chain.block(number).hash == hash_
            }
            removed = sorted(set(self._blocks) - set(retained))
            if removed:
                self._disk.write_whole(self._path, self._encoded(retained))
                self._blocks = retained
            return removed

    def _reorganised(
        self, chain: ChainReader, blocks: dict[int, bytes], number: int, current_hash: bytes
    ) -> ReorganisedError:
        """Return the error that names the oldest changed block."""
        oldest, hash_now, agreed = number, current_hash, 0
        for older in sorted((height for height in blocks if height < number), reverse=True):
            current = chain.block(older).hash
            if current == blocks[older]:
                agreed = older
                break
            oldest, hash_now = older, current
        return ReorganisedError(oldest, blocks[oldest], hash_now, agreed)

    def _agreed(self, number: int) -> int:
        return max((height for height in self._blocks if height < number), default=0)

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
    """Return the newest blocks, and of the older ones about one for each doubling of age."""
    numbers = sorted(blocks, reverse=True)
    newest = numbers[0]
    # The oldest of each doubling: the newest would be replaced before it could grow old.
    older = {(newest - number).bit_length(): number for number in numbers[_RECENT:]}
    return {number: blocks[number] for number in (*numbers[:_RECENT], *older.values())}


def _read(path: Path) -> tuple[int, bytes, dict[int, bytes]] | None:
    subject = f"checkpoints {path}"
    try:
        data = read_file(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ChainError(f"{subject}: cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ChainError(f"{subject}: over {MOST_BYTES} bytes")
    try:
        content = parse_json(data, unique_keys=True)
    except ValueError as error:
        raise ChainError(f"{subject}: not JSON: {error}") from error
    fields = {"format": int, "chain_id": int, "genesis_hash": str, "blocks": dict}
    if not isinstance(content, dict) or set(content) != set(fields):
        raise ChainError(f"{subject}: it does not have the fields {', '.join(fields)}")
    for name, kind in fields.items():
        if type(content[name]) is not kind:
            raise ChainError(f"{subject}: {name} is not of type {kind.__name__}")
    if content["format"] != FORMAT:
        raise ChainError(f"{subject}: format {str(content['format'])[:20]} is not {FORMAT}")
    blocks = {
        _number(subject, number): _hash(subject, value)
        for number, value in content["blocks"].items()
    }
    return content["chain_id"], _hash(subject, content["genesis_hash"]), blocks


def _number(subject: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or str(int(text)) != text:
        raise ChainError(f"{subject}: {text[:40]!r} is not a block number")
    return int(text)


def _hash(subject: str, value: Any) -> bytes:
    try:
        content = bytes.fromhex(value[2:]) if str(value).startswith("0x") else b""
    except (ValueError, TypeError):
        content = b""
    if len(content) != 32:
        raise ChainError(
            f"{subject}: {str(value)[:80]!r} is not a hash of 32 bytes, 0x and hex digits"
        )
    return content
