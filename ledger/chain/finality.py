"""Finality: one rule for the newest final block, and a record of the blocks that were acted on."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ledger.chain import ports
from ledger.io.home import DISK, Disk
from ledger.io.parsing import read_record, require_format
from ledger.protocol.errors import ChainError


def final_number(chain: ports.ChainReader, newest: ports.Block, confirmations: int | None) -> int:
    """Return the newest final number: at a depth, or None for the chain's own finality."""
    if confirmations is None:
        return min(chain.finalized(), newest.number)
    if confirmations < 0:
        raise ValueError(f"{confirmations} confirmations: must be at least 0")
    return max(0, newest.number - confirmations)


def final_block(chain: ports.ChainReader, confirmations: int | None) -> ports.Block:
    """Return the newest final block; see `final_number`."""
    return chain.block(final_number(chain, chain.head(), confirmations))


class AncestryCheck:
    """Whether the newest block descends from an earlier one; most heads need no request."""

    def __init__(self, block: Callable[[int], ports.Block]) -> None:
        self._block = block
        self._checked: tuple[bytes, bytes] | None = None
        self._answer = False

    def connects(self, older: ports.Block, newest: ports.Block) -> bool:
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
        self._block: ports.Block | None = None

    def is_gone(self, newest: ports.Block) -> bool:
        """Return whether the latest block so far has left the chain; remember the newest."""
        # Time stamps increase along a chain: one as high and earlier does not contain it.
        latest = self._block
        if latest is None or newest.number >= latest.number:
            self._block = newest
            return latest is not None and newest.timestamp < latest.timestamp
        if newest.timestamp > latest.timestamp:
            self._block = newest
        return False


_FORMAT = 1
_RECENT = 16


class FinalityCheckpoints:
    """The final blocks that one process has acted on. Safe to share between threads.

    A deeper reorganisation than expected, or an older copy of the chain, can revert a final block,
    and the chain does not show it. An actor that signs therefore records the blocks it relies on
    in a local file, and verifies them before it signs again.
    """

    def __init__(self, path: Path, chain: ports.ChainReader, disk: Disk = DISK) -> None:
        """Read the checkpoints in a file, which must be of this chain; none if there is no file."""
        self._path = path
        self._chain_id, self._genesis_hash = chain.chain_id, chain.genesis_hash
        self._disk = disk
        self._lock = threading.Lock()
        self._blocks: dict[int, bytes] = {}
        if path.exists():
            kinds = {"format": int, "chain_id": int, "genesis_hash": str, "blocks": dict}
            value = read_record(path, "checkpoints", kinds, partial(require_format, _FORMAT))
            genesis_hash = _hash(path, value["genesis_hash"])
            self._blocks = {
                _number(path, number): _hash(path, hash_)
                for number, hash_ in value["blocks"].items()
            }
            ports.require_identity(f"the chain of {path}", chain, value["chain_id"], genesis_hash)

    @property
    def newest(self) -> int | None:
        return max(self._blocks, default=None)

    def note(self, block: ports.Block) -> None:
        """Record a final block before it is acted on, durably, if it is newer than all others."""
        with self._lock:
            recorded = self._blocks.get(block.number)
            if recorded is not None and recorded != block.hash:
                agreed = max((each for each in self._blocks if each < block.number), default=0)
                raise ports.ReorganisedError(block.number, recorded, block.hash, agreed)
            if block.number > max(self._blocks, default=-1):
                self._replace(_thinned({**self._blocks, block.number: block.hash}))

    def require_unchanged(
        self, chain: ports.ChainReader, newest: ports.Block | None = None
    ) -> None:
        blocks = dict(self._blocks)
        if not blocks:
            return
        head = (chain.head() if newest is None else newest).number
        # If the newest one on the chain is unchanged, so are its ancestors.
        oldest: tuple[int, bytes] | None = None
        unchanged = 0
        for number in sorted((number for number in blocks if number <= head), reverse=True):
            current = chain.block(number).hash
            if current == blocks[number]:
                unchanged = number
                break
            oldest = number, current
        if oldest is not None:
            raise ports.ReorganisedError(oldest[0], blocks[oldest[0]], oldest[1], unchanged)
        last = max(blocks)
        if last > head:
            raise ports.NotServedError(
                f"the chain ends with block {head}, but block {last} 0x{blocks[last].hex()} "
                "was used before; the node lags, or has an older copy"
            )

    def accept(self, chain: ports.ChainReader) -> list[int]:
        """Forget the checkpoints that the chain has reverted, and return their numbers."""
        with self._lock:
            head = chain.head().number
            retained = {
                number: hash_
                for number, hash_ in self._blocks.items()
                if number <= head and chain.block(number).hash == hash_
            }
            removed = sorted(set(self._blocks) - set(retained))
            if removed:
                self._replace(retained)
            return removed

    def _replace(self, blocks: dict[int, bytes]) -> None:
        content = {
            "format": _FORMAT,
            "chain_id": self._chain_id,
            "genesis_hash": f"0x{self._genesis_hash.hex()}",
            "blocks": {str(number): f"0x{blocks[number].hex()}" for number in sorted(blocks)},
        }
        self._disk.write_whole(self._path, json.dumps(content, indent=1).encode() + b"\n")
        self._blocks = blocks


def _thinned(blocks: dict[int, bytes]) -> dict[int, bytes]:
    """Return the newest blocks, and of the older ones about one for each doubling of age."""
    numbers = sorted(blocks, reverse=True)
    newest = numbers[0]
    # The oldest of each doubling: the newest would be replaced before it could grow old.
    older = {(newest - number).bit_length(): number for number in numbers[_RECENT:]}
    return {number: blocks[number] for number in (*numbers[:_RECENT], *older.values())}


def _number(path: Path, text: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,19}", text):
        raise ChainError(f"checkpoints {path}: {text[:40]!r} is not a block number")
    return int(text)


def _hash(path: Path, value: object) -> bytes:
    if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]{64}", value):
        return bytes.fromhex(value[2:])
    fact = f"checkpoints {path}: {str(value)[:80]!r} is not a hash of 32 bytes, 0x and hex digits"
    raise ChainError(fact)
