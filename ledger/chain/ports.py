"""What the rest of the ledger may ask of a chain, whichever chain it is.

Two chains stand behind these ports: `embedded/` (an EVM inside this process over one SQLite
file) and `rpc/` (any node that speaks JSON-RPC). Everything above - deployment, events, the
committee ledger, the audit - is written against `ChainReader` and `ChainWriter` only, and one
contract test class runs over both.

Addresses are EIP-55 strings, hashes and call data are bytes, block numbers are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

TopicFilter: TypeAlias = bytes | Sequence[bytes] | None
"""One position of a log filter: this topic, one of these, or (None) any."""


class ChainLockedError(ChainError):
    """Another process, or another object in this one, writes to this chain."""


class WrongChainIdError(ChainError):
    """The chain, or a transaction, carries another chain id than the expected one."""


class WrongGenesisError(ChainError):
    """The chain has the expected chain id but another block 0: it is another chain."""


class NotServedError(ChainError):
    """What was asked for cannot be had from here: says something of the node, not of the chain.

    An error of the node's own, a malformed answer, null where it must know, a time-out, an index or
    a state that it has dropped.
    """


class ChainUnreachableError(NotServedError):
    """The node does not answer; the message names its address without credentials."""


class ChainMovedError(NotServedError):
    """The chain was reorganised while it was read: who asks again is told of another block."""

    def __init__(self, node: str | None, block_number: int) -> None:
        super().__init__(
            f"{node or 'the chain'}: block {block_number} became another one while it was read: "
            "ask again"
        )


class IncompleteLogsError(NotServedError):
    """The logs do not add up to what the contract says: some are left out, or are of another state.

    Attributes:
        node: the node's address without credentials; None where a file or memory is read.
    """

    def __init__(self, node: str | None, fact: str) -> None:
        self.node = node
        place, cause = "the chain", "its logs are damaged"
        if node is not None:
            place, cause = node, "the node leaves logs out, or answers from two states"
        super().__init__(f"{place}: {fact}: {cause}, and nothing follows from it")


class ChainRolledBackError(ChainError):
    """The chain lacks a block that its home has acknowledged: a backup, or a damaged file."""


class ReorganisedError(ChainError):
    """The chain has taken back a block that was final when it was acted on.

    Attributes:
        block_number: the oldest such block that is known.
        hash_then: what it was.
        hash_now: what the chain has there now.
        unchanged_up_to: the newest block below it that is known to be unchanged.
    """

    def __init__(
        self, block_number: int, hash_then: bytes, hash_now: bytes, unchanged_up_to: int
    ) -> None:
        self.block_number = block_number
        self.hash_then = hash_then
        self.hash_now = hash_now
        self.unchanged_up_to = unchanged_up_to
        super().__init__(
            f"block {block_number} was 0x{hash_then.hex()} when it was final and acted on, and is "
            f"0x{hash_now.hex()} now; unchanged up to block {unchanged_up_to}. The chain was "
            "reorganised more deeply than was believed possible, or is an older copy"
        )


class ChainBehindError(NotServedError):
    """The chain ends before a block that was acted on: a node that lags, or an older copy.

    Attributes:
        block_number: the newest block that was acted on.
        block_hash: its hash.
        head_number: where the chain ends now.
    """

    def __init__(self, block_number: int, block_hash: bytes, head_number: int) -> None:
        self.block_number = block_number
        self.block_hash = block_hash
        self.head_number = head_number
        super().__init__(
            f"the chain ends with block {head_number}, but block {block_number} "
            f"0x{block_hash.hex()} was acted on: the node lags behind, or was given an older copy"
        )


class ChainDamagedError(ChainError):
    """The chain contradicts itself; the message names the block and what is wrong with it."""


class BlockDamagedError(ChainDamagedError):
    """One block contradicts itself or its neighbours.

    Attributes:
        block_number: which one.
    """

    def __init__(self, block_number: int, fact: str) -> None:
        self.block_number = block_number
        super().__init__(f"block {block_number}: {fact}")


class TransactionRefusedError(ChainError):
    """The chain did not take the transaction: no block holds it."""


class TransactionTimeoutError(ChainError):
    """No receipt, or too few confirmations, within the time allowed."""


class TransactionRevertedError(ChainError):
    """The contract reverted: in a call, or in a transaction that a block now holds.

    Attributes:
        data: what the contract reverted with, ABI-encoded; empty if it gave none.
        transaction_hash: the transaction's hash; None for a call.
    """

    def __init__(self, data: bytes, transaction_hash: bytes | None = None) -> None:
        self.data = data
        self.transaction_hash = transaction_hash
        what = "the call" if transaction_hash is None else f"0x{transaction_hash.hex()}"
        shown = f"0x{data.hex()}" if data else "no data"
        super().__init__(f"{what} reverted with {shown}")


@dataclass(frozen=True, slots=True)
class Block:
    """A block's header, as far as the ledger needs it; the time is in Unix seconds."""

    number: int
    hash: bytes
    parent_hash: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Log:
    """One event as a block records it; `log_index` counts from 0 within the block."""

    address: str
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that a block holds; `to` is None where it creates a contract."""

    hash: bytes
    sender: str
    to: str | None
    input: bytes
    block_number: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a transaction did; `status` is 1, or 0 where it reverted."""

    transaction_hash: bytes
    block_number: int
    status: int
    gas_used: int
    contract_address: str | None
    logs: tuple[Log, ...]


class ChainReader(Protocol):
    """A chain to read from."""

    @property
    def chain_id(self) -> int:
        """The chain's EIP-155 id."""

    @property
    def genesis_hash(self) -> bytes:
        """The hash of block 0, which tells two chains with one id apart."""

    @property
    def node(self) -> str | None:
        """The address of the node that answers, without credentials; None where none is asked."""

    def head(self) -> Block:
        """Return the newest block.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def block(self, number: int) -> Block:
        """Return one block.

        Args:
            number: 0 for genesis, at most the head's.

        Raises:
            ChainError: there is no such block, or the chain is unreachable or damaged.
        """

    def finalized(self) -> int:
        """Return the number of the newest block that is regarded as final.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what a contract answers, without recording anything.

        Args:
            to: the contract.
            data: selector and ABI-encoded arguments.
            block_number: the block whose state answers; None for the head.

        Raises:
            TransactionRevertedError: the contract reverted; carries the revert data.
            ChainError: there is no such block, or the chain is unreachable or damaged.
        """

    def code(self, address: str) -> bytes:
        """Return a contract's runtime code; empty where there is none.

        Args:
            address: the contract.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def logs(
        self,
        address: str | None,
        topics: Sequence[TopicFilter],
        from_block: int,
        to_block: int,
        limit: int | None = None,
        *,
        descending: bool = False,
    ) -> list[Log]:
        """Return the logs that match, in the chain's order.

        Args:
            address: the contract; None for every one.
            topics: per position a topic, several of which one must match, or None for any.
            from_block: first block, included.
            to_block: last block, included; beyond the head is allowed.
            limit: how many logs at most; None for all.
            descending: newest first.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction that a block holds.

        Args:
            transaction_hash: its hash, 32 bytes.

        Raises:
            ChainError: no block holds it, or the chain is unreachable or damaged.
        """

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return a transaction's receipt; None while no block holds it.

        Args:
            transaction_hash: its hash, 32 bytes.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def snapshot(self) -> AbstractContextManager[ChainReader]:
        """Open a view of the chain as it is now; a chain file's does not move while it is open.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def close(self) -> None:
        """Give back what the chain holds: files, locks, connections."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ChainWriter(ChainReader, Protocol):
    """A chain to send transactions to, from one account."""

    @property
    def sender(self) -> str:
        """The address of the account that signs."""

    def send(self, to: str | None, data: bytes, gas: int) -> Receipt:
        """Sign and submit a transaction; return its receipt once it is confirmed.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.

        Raises:
            TransactionRevertedError: it is in a block, but reverted.
            TransactionRefusedError: the chain did not take it.
            TransactionTimeoutError: no receipt or confirmation in time.
            ChainError: the chain is unreachable or damaged.
        """

    def next_nonce(self) -> int:
        """Return the number of the account's next transaction; those count that still wait.

        Raises:
            ChainError: the chain is unreachable or damaged.
        """

    def create_contract(
        self, creation: bytes, gas: int, nonce: int, *, again: bool = False
    ) -> Receipt:
        """Create a contract by the transaction with this nonce, or by none; return its receipt.

        A block holds one transaction for each nonce of an account. So who asks again with the same
        nonce gets no second contract, whatever has become of the first attempt.

        Args:
            creation: creation code and arguments.
            gas: the limit of gas; never estimated.
            nonce: of the transaction.
            again: whether what waits with this nonce may be an earlier attempt, to be replaced.

        Raises:
            TransactionRevertedError: it is in a block, but reverted.
            TransactionRefusedError: the chain did not take it, or has another with this nonce.
            TransactionTimeoutError: no receipt or confirmation in time.
            ChainError: the chain is unreachable or damaged.
        """

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the confirmed receipt of an account's transaction; None while no block holds it.

        Args:
            sender: the account.
            nonce: of the transaction.

        Raises:
            TransactionTimeoutError: a block holds it, but it is not confirmed in time.
            ChainError: the chain is unreachable or damaged.
        """

    def wait_for_pending(self, sender: str) -> None:
        """Return once no transaction of an account is on its way any more.

        Args:
            sender: the account.

        Raises:
            TransactionTimeoutError: one of them does not come into a block.
            ChainError: the chain is unreachable or damaged.
        """

    def mine(self, blocks: int) -> None:
        """Let so many empty blocks pass: made where the chain lets us, else waited for.

        Args:
            blocks: how many, at least 0.

        Raises:
            TransactionTimeoutError: they did not come in time.
            ChainError: the chain is unreachable or damaged.
        """
