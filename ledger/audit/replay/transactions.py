"""The contract's transactions as the chain holds them: logs, call data and blocks that agree.

What a chain says twice must agree: a log's place, its block's hash, its transaction. Signatures
are in call data only. Where a transaction was not sent to the ledger (an account with code of its
own, EIP-7702, may call it from within), or the chain does not serve it, they cannot be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, TypeAlias

from ledger.audit.checks.certificates import TRANSACTION_DIFFERS
from ledger.audit.checks.common import BLOCK_UNAVAILABLE, CHAIN_UNAVAILABLE
from ledger.audit.checks.head_chain import (
    BLOCK_UNREADABLE,
    LOG_ADDRESS,
    LOG_BLOCK,
    LOG_ORDER,
    LOGS_UNREADABLE,
    PARENT_BLOCK,
)
from ledger.audit.observations import Disagreement, Unavailable
from ledger.chain.contract.codec import Call, decode_call
from ledger.chain.ports import (
    Block,
    ChainDamagedError,
    ChainReader,
    ChainUnreachableError,
    Log,
    Transaction,
)
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import BlockContext
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.chain.contract.ledger import CommitteeLedger

LOG_BATCH_BLOCKS = 512

Inconsistency: TypeAlias = Disagreement | Unavailable


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A transaction that left events of the contract.

    Attributes:
        call: what it asked of the contract; None if that cannot be read.
        unserved: why the chain does not serve the transaction; empty if it does.
        block: what it saw of its block; None if that cannot be read.
        inconsistencies: what disagrees about it, or could not be had.
    """

    hash: bytes
    block_number: int
    logs: tuple[Log, ...]
    call: Call | None
    unserved: str
    block: BlockContext | None
    inconsistencies: tuple[Inconsistency, ...]


class ReadingEndedError(Exception):
    """The chain does not serve what everything after it rests on."""

    def __init__(self, observed: Inconsistency) -> None:
        self.observed = observed
        super().__init__(str(observed))


class TransactionReader:
    """Reads a contract's transactions, oldest first, and says what disagrees about them."""

    def __init__(self, ledger: CommitteeLedger) -> None:
        self._ledger = ledger
        self._chain: ChainReader = ledger.chain
        self._block: Block | None = None

    def read(self, to_block: int) -> Iterator[RecordedTransaction | Inconsistency]:
        """Yield every transaction that left an event, and what is wrong among their logs."""
        ledger = self._ledger
        for first in range(ledger.from_block, to_block + 1, LOG_BATCH_BLOCKS):
            last = min(first + LOG_BATCH_BLOCKS - 1, to_block)
            logs = self._logs(first, last)
            yield from self._disorder(logs)
            for _, group in groupby(logs, key=lambda log: log.transaction_hash):
                yield self._transaction(tuple(group))

    def _logs(self, first: int, last: int) -> list[Log]:
        try:
            return self._chain.logs(self._ledger.address, [], first, last)
        except ChainUnreachableError:
            raise
        except ChainDamagedError as error:
            blocks, fact = f"{first} to {last}", LOGS_UNREADABLE
            raise ReadingEndedError(Disagreement(first, fact, blocks, true=str(error))) from error
        except ChainError as error:
            raise ReadingEndedError(
                Unavailable(first, CHAIN_UNAVAILABLE, detail=str(error))
            ) from error

    def _disorder(self, logs: list[Log]) -> Iterator[Inconsistency]:
        for one, other in pairwise(logs):
            if (one.block_number, one.log_index) >= (other.block_number, other.log_index):
                before, after = (
                    f"log {x.log_index} of block {x.block_number}" for x in (one, other)
                )
                yield Disagreement(other.block_number, LOG_ORDER, before, after)
        for log in logs:
            if log.address != self._ledger.address:
                yield Disagreement(log.block_number, LOG_ADDRESS, true=log.address)

    def _transaction(self, logs: tuple[Log, ...]) -> RecordedTransaction:
        inconsistencies: list[Inconsistency] = []
        call, unserved = self._call(logs[0], inconsistencies)
        block = self._context(logs, inconsistencies)
        identity = logs[0].transaction_hash, logs[0].block_number
        return RecordedTransaction(*identity, logs, call, unserved, block, tuple(inconsistencies))

    def _call(self, log: Log, found: list[Inconsistency]) -> tuple[Call | None, str]:
        """Return what the log's transaction asks of the contract, and why it cannot be had."""
        number, subject = log.block_number, to_hex(log.transaction_hash)
        try:
            transaction = self._chain.transaction(log.transaction_hash)
        except ChainUnreachableError:
            raise
        except ChainDamagedError as error:
            found.append(Disagreement(number, TRANSACTION_DIFFERS, subject, true=str(error)))
            return None, ""
        except ChainError as error:  # nodes may drop the index of old transactions
            return None, str(error)
        other = _difference(log, transaction)
        if other is not None:
            found.append(Disagreement(number, TRANSACTION_DIFFERS, subject, true=other))
        if other is not None or transaction.to != self._ledger.address:
            return None, ""
        try:
            return decode_call(transaction.input), ""
        except ChainError:
            return None, ""

    def _context(self, logs: tuple[Log, ...], found: list[Inconsistency]) -> BlockContext | None:
        """Return the block of a transaction, checked against its neighbour and the logs."""
        number, last = logs[0].block_number, self._block
        subject = str(number)
        try:
            block = self._chain.block(number)
        except ChainUnreachableError:
            raise
        except ChainDamagedError as error:
            found.append(Disagreement(number, BLOCK_UNREADABLE, subject, true=str(error)))
            return None
        except ChainError as error:
            found.append(Unavailable(number, BLOCK_UNAVAILABLE, detail=f"{number}: {error}"))
            return None
        self._block = block
        wrong = [log for log in logs if (log.block_number, log.block_hash) != (number, block.hash)]
        if block.number != number or wrong:
            recorded = to_hex((wrong or logs)[0].block_hash)
            true = f"block {block.number}, {to_hex(block.hash)}"
            found.append(Disagreement(number, LOG_BLOCK, subject, recorded, true))
        if last is not None and last.number == number - 1 and last.hash != block.parent_hash:
            recorded, true = to_hex(block.parent_hash), to_hex(last.hash)
            found.append(Disagreement(number, PARENT_BLOCK, subject, recorded, true))
        return BlockContext(number, Digest(block.parent_hash))


def _difference(log: Log, transaction: Transaction) -> str | None:
    """Return what tells a transaction from the one that a log names; None if it is that one."""
    if transaction.hash != log.transaction_hash:
        return f"the chain answers with {to_hex(transaction.hash)}"
    if transaction.block_number != log.block_number:
        return f"it is in block {transaction.block_number}"
    return None
