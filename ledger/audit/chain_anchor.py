"""The chain as an audit finds it: its newest blocks, its own check, and whether it changed.

A chain file is read in one snapshot and takes nothing back. A node may answer from another branch
at every call: what it has not called final when the audit begins proves nothing yet, and if even
what it called final is another at the end, or cannot be looked at again, nothing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ledger.audit.checks.common import REORGANISED
from ledger.audit.checks.head_chain import (
    CHAIN_FILE_DAMAGED,
    CHAIN_FILE_UNCHECKED,
    HEAD_BLOCK_UNAVAILABLE,
    HEAD_NOTE_UNREADABLE,
    ROLLED_BACK,
)
from ledger.audit.observations import Disagreement, Unavailable
from ledger.chain.ports import Block, ChainDamagedError, ChainReader
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError


@dataclass(frozen=True, slots=True)
class ChainAnchor:
    """A chain's newest and its newest final block as an audit begins.

    Attributes:
        final: the newest final one; None if the chain does not say.
    """

    head: Block
    final: Block | None

    @classmethod
    def read(cls, chain: ChainReader) -> Self:
        """Return a chain's head and its final block."""
        head = chain.head()
        try:
            number = min(chain.finalized(), head.number)
            final = head if number == head.number else chain.block(number)
        except ChainDamagedError:
            raise
        except ChainError:
            final = None
        return cls(head, final)

    @property
    def final_number(self) -> int:
        """Number of the newest final block; -1 if the chain does not say."""
        return -1 if self.final is None else self.final.number

    def is_final(self, block: int) -> bool:
        """Say whether nothing up to a block can be taken back."""
        return block <= self.final_number

    def check_file(self, chain: ChainReader) -> Iterator[Disagreement | Unavailable]:
        """Let a chain that is a file check itself: a forger of one table has to forge them all."""
        if (verify := getattr(chain, "verify", None)) is not None:
            try:
                verify()
            except ChainDamagedError as error:
                yield Disagreement(0, CHAIN_FILE_DAMAGED, true=str(error))
            except ChainError as error:
                yield Unavailable(0, CHAIN_FILE_UNCHECKED, detail=str(error))
        if (acknowledged := getattr(chain, "acknowledged", None)) is None:
            return
        try:
            noted = acknowledged()
        except ChainError as error:
            yield Unavailable(0, HEAD_NOTE_UNREADABLE, detail=str(error))
            return
        if noted is not None:
            head = self.head.number
            block_hash = chain.block(noted.number).hash if noted.number <= head else None
            if block_hash != noted.hash:
                there = f"there it is {to_hex(block_hash)}" if block_hash else ""
                true = there or f"it ends with block {head}"
                yield Disagreement(0, ROLLED_BACK, str(noted.number), to_hex(noted.hash), true)

    def changes(self, chain: ChainReader) -> Iterator[Unavailable]:
        """Yield what keeps one from saying that the chain stayed as it was."""
        try:
            again = chain.block(self.head.number)
        except ChainDamagedError:
            return
        except ChainError as error:
            yield Unavailable(self.head.number, HEAD_BLOCK_UNAVAILABLE, detail=str(error))
            return
        if again.hash != self.head.hash:
            yield Unavailable(self.head.number, REORGANISED)

    def holds(self, chain: ChainReader) -> bool:
        """Say whether what was final still is there."""
        if self.final is None:
            return False
        try:
            return chain.block(self.final.number).hash == self.final.hash
        except ChainDamagedError:
            return True  # it contradicts itself, which is no change of mind
        except ChainError:
            return False
