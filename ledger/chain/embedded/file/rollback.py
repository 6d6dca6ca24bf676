"""Refusing a chain that lacks what its home has acknowledged, before anything is written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.embedded.file.chain_store import ChainStore
from ledger.chain.embedded.file.head_note import read_note
from ledger.chain.ports import ChainRolledBackError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.embedded.embedded_reader import EmbeddedReader

_MEANING = (
    "a backup was restored, the file was replaced, or its write-ahead log is damaged or missing. "
    "Put back the newer files, or go on from what is there with --accept-rollback"
)


def verify_not_behind(chain: EmbeddedReader, path: Path) -> None:
    """Accept a chain that holds the newest block acknowledged here.

    Args:
        chain: the chain file, open for reading.
        path: the chain file.

    Raises:
        ChainRolledBackError: it does not.
    """
    noted = chain.acknowledged()
    if noted is None:
        return
    head = chain.head()
    if noted.genesis_hash != chain.genesis_hash:
        there = f"this is another chain, of genesis 0x{chain.genesis_hash.hex()}"
    elif noted.number > head.number:
        there = f"the chain ends with block {head.number} 0x{head.hash.hex()}"
    elif (other := chain.block(noted.number).hash) != noted.hash:
        there = f"the chain has another block {noted.number}, 0x{other.hex()}"
    else:
        return
    raise ChainRolledBackError(
        f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but {there}: "
        f"{_MEANING}"
    )


def verify_nothing_acknowledged(path: Path) -> None:
    """Accept a place for a new chain where none was acknowledged.

    Args:
        path: of the chain file, which may not be there.

    Raises:
        ChainRolledBackError: one was, and is gone.
    """
    noted = read_note(path)
    if noted is not None and (not path.exists() or ChainStore.is_blank(path)):
        raise ChainRolledBackError(
            f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but there "
            f"is no chain: {_MEANING}"
        )
