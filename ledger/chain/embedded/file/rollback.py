"""Rejection of a chain without the newest acknowledged block, before anything is written to it."""

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
    "Put back the newer files, or continue from the present state with --accept-rollback"
)


def verify_not_behind(chain: EmbeddedReader, path: Path) -> None:
    """Verify that a chain has the newest block acknowledged here.

    Raises:
        ChainRolledBackError: it does not.
    """
    noted = chain.acknowledged()
    if noted is None:
        return
    head = chain.head()
    if noted.genesis_hash != chain.genesis_hash:
        finding = f"this is another chain, of genesis 0x{chain.genesis_hash.hex()}"
    elif noted.number > head.number:
        finding = f"the chain ends with block {head.number} 0x{head.hash.hex()}"
    elif (other := chain.block(noted.number).hash) != noted.hash:
        finding = f"the chain has another block {noted.number}, 0x{other.hex()}"
    else:
        return
    raise ChainRolledBackError(
        f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but {finding}: "
        f"{_MEANING}"
    )


def verify_nothing_acknowledged(path: Path) -> None:
    """Verify that no chain was acknowledged where a new one is to be created.

    Raises:
        ChainRolledBackError: one was, and is gone.
    """
    noted = read_note(path)
    if noted is not None and (not path.exists() or ChainStore.is_blank(path)):
        raise ChainRolledBackError(
            f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but there "
            f"is no chain: {_MEANING}"
        )
