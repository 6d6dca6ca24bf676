"""The contract's transactions as the chain holds them: logs, call data and blocks that agree.

What a chain says twice must agree: a log's place, its block's hash, its transaction. Signatures
are in call data only. Where a transaction was not sent to the ledger (an account with code of its
own, EIP-7702, may call it from within), or the chain no longer has it, they cannot be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed
from ledger.chain.contract.calls import decode_call
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import BlockContext
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.findings import AuditLog
    from ledger.chain.contract.calls import Call
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import Block, Log, Transaction

BLOCKS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A transaction that left events of the contract.

    Attributes:
        hash: its hash.
        block_number: of the block that its logs name.
        logs: its events, in order.
        call: what it asked of the contract; None if that cannot be read.
        block: what it saw of its block; None if that cannot be read.
    """

    hash: bytes
    block_number: int
    logs: tuple[Log, ...]
    call: Call | None
    block: BlockContext | None


class TransactionReader:
    """Reads a contract's transactions, oldest first, and writes down what disagrees."""

    def __init__(self, ledger: CommitteeLedger, log: AuditLog) -> None:
        self._ledger = ledger
        self._log = log
        self._block: Block | None = None

    def read(self, to_block: int) -> Iterator[RecordedTransaction]:
        """Yield every transaction that left an event.

        Args:
            to_block: last block that is read.

        Yields:
            The transactions in the chain's order.

        Raises:
            ChainUnreachableError: the node went away.
        """
        ledger = self._ledger
        for first in range(ledger.from_block, to_block + 1, BLOCKS_AT_ONCE):
            last = min(first + BLOCKS_AT_ONCE - 1, to_block)
            try:
                logs = ledger.chain.logs(ledger.address, [], first, last)
            except ChainUnreachableError:
                raise
            except ChainError as error:
                blocks = f"{first} to {last}"
                self._contradict(Fact.LOGS_UNREADABLE, subject=blocks, true=str(error))
                continue
            self._check_order(logs)
            for _, group in groupby(logs, key=lambda log: log.transaction_hash):
                yield self._transaction(tuple(group))

    def _transaction(self, logs: tuple[Log, ...]) -> RecordedTransaction:
        call, block = self._call(logs[0]), self._context(logs)
        number = logs[0].block_number
        return RecordedTransaction(logs[0].transaction_hash, number, logs, call, block)

    def _check_order(self, logs: list[Log]) -> None:
        for one, other in pairwise(logs):
            if (one.block_number, one.log_index) >= (other.block_number, other.log_index):
                before, after = (
                    f"log {x.log_index} of block {x.block_number}" for x in (one, other)
                )
                self._contradict(Fact.LOG_ORDER, subject=before, recorded=after)
        for log in logs:
            if log.address != self._ledger.address:
                self._contradict(Fact.LOG_ADDRESS, true=log.address)

    def _call(self, log: Log) -> Call | None:
        """Return what the log's transaction asks of the contract, None if it cannot be read.

        Raises:
            ChainUnreachableError: the node went away.
        """
        try:
            transaction = self._ledger.chain.transaction(log.transaction_hash)
        except ChainUnreachableError:
            raise
        except ChainDamagedError as error:
            self._disagrees(log, str(error))
            return None
        except ChainError:
            return None  # nodes may drop the index of old transactions: nothing is contradicted
        if not self._is_of(log, transaction) or transaction.to != self._ledger.address:
            return None
        try:
            return decode_call(transaction.input)
        except ChainError:
            return None

    def _is_of(self, log: Log, transaction: Transaction) -> bool:
        """Say whether a transaction is the one that a log names, where the log says it is."""
        if transaction.hash != log.transaction_hash:
            self._disagrees(log, f"the chain answers with {hexed(transaction.hash)}")
            return False
        if transaction.block_number != log.block_number:
            self._disagrees(log, f"it is in block {transaction.block_number}")
            return False
        return True

    def _disagrees(self, log: Log, true: str) -> None:
        subject = hexed(log.transaction_hash)
        self._log.contradict(
            Step.CERTIFICATES, Contradiction(Fact.TRANSACTION, subject=subject, true=true)
        )

    def _context(self, logs: tuple[Log, ...]) -> BlockContext | None:
        """Return the block of a transaction, checked against its neighbour and the logs.

        Raises:
            ChainUnreachableError: the node went away.
        """
        number, last = logs[0].block_number, self._block
        subject = str(number)
        try:
            block = self._ledger.chain.block(number)
        except ChainUnreachableError:
            raise
        except ChainError as error:
            self._contradict(Fact.BLOCK_UNREADABLE, subject=subject, true=str(error))
            return None
        self._block = block
        wrong = [log for log in logs if (log.block_number, log.block_hash) != (number, block.hash)]
        if block.number != number or wrong:
            recorded = hexed((wrong or logs)[0].block_hash)
            true = f"block {block.number}, {hexed(block.hash)}"
            self._contradict(Fact.LOG_BLOCK, subject=subject, recorded=recorded, true=true)
        if last is not None and last.number == number - 1 and last.hash != block.parent_hash:
            recorded, true = hexed(block.parent_hash), hexed(last.hash)
            self._contradict(Fact.PARENT_BLOCK, subject=subject, recorded=recorded, true=true)
        return BlockContext(number, Digest(block.parent_hash))

    def _contradict(
        self, fact: Fact, *, subject: str = "", recorded: str = "", true: str = ""
    ) -> None:
        contradiction = Contradiction(fact, subject=subject, recorded=recorded, true=true)
        self._log.contradict(Step.HEAD, contradiction)
