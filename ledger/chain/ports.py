"""The ports of a chain: what the rest of the ledger may request from it.

Two adapters implement them: `embedded/` (an EVM in this process over one SQLite file) and `rpc/`
(any node that speaks JSON-RPC).

Addresses are EIP-55 strings, hashes and call data are bytes, block numbers are integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from ledger.protocol.errors import ChainError

TopicFilter: TypeAlias = bytes | Sequence[bytes] | None


class ChainLockedError(ChainError):
    """Another writer has this chain."""


class WrongChainError(ChainError):
    """The chain, or a transaction, has another chain id or block 0 than expected."""


class NotServedError(ChainError):
    """The node cannot answer, which says nothing about the chain: an error, a time-out, pruning."""


class UncheckableCreationError(NotServedError):
    """The creation code of a contract is not served, or another contract ran it."""


class ChainUnreachableError(NotServedError):
    """The node does not answer; the message names its address without credentials."""


class ChainMovedError(NotServedError):
    """The chain was reorganised while it was read; retry."""

    def __init__(self, node: str | None, block_number: int) -> None:
        super().__init__(
            f"{node or 'the chain'}: block {block_number} became another one while it was read: "
            "ask again"
        )


class IncompleteLogsError(NotServedError):
    """The logs contradict the contract's state: some are missing, or are of another state."""

    def __init__(self, node: str | None, fact: str) -> None:
        self.node = node
        source, cause = "the chain", "its logs are damaged"
        if node is not None:
            source, cause = node, "the node leaves logs out, or answers from two states"
        super().__init__(f"{source}: {fact}: {cause}, and nothing follows from it")


class ChainRolledBackError(ChainError):
    """The chain lacks a block that its home has acknowledged: a backup, or a damaged file."""


class ReorganisedError(ChainError):
    """The chain has reverted a block that was final when it was acted on: the oldest known one."""

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


class ChainDamagedError(ChainError):
    """The chain contradicts itself; the message names the block and the fault."""


class BlockDamagedError(ChainDamagedError):
    """One block contradicts itself or its neighbours."""

    def __init__(self, block_number: int, fact: str) -> None:
        self.block_number = block_number
        super().__init__(f"block {block_number}: {fact}")


class ForeignCodeError(ChainError):
    """The code at an address, or its creation, is not the one of this program's contract."""


class TransactionRefusedError(ChainError):
    """The chain did not accept the transaction."""


class TransactionTimeoutError(ChainError):
    """No receipt, or too few confirmations, within the time-out."""


class TransactionRevertedError(ChainError):
    """The contract reverted, with ABI-encoded data or none; a call has no transaction hash."""

    def __init__(self, data: bytes, transaction_hash: bytes | None = None) -> None:
        self.data = data
        self.transaction_hash = transaction_hash
        subject = "the call" if transaction_hash is None else f"0x{transaction_hash.hex()}"
        shown = f"0x{data.hex()}" if data else "no data"
        super().__init__(f"{subject} reverted with {shown}")


@dataclass(frozen=True, slots=True)
class Block:
    """The used part of a block's header; the time is in Unix seconds."""

    number: int
    hash: bytes
    parent_hash: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Log:
    """An event log; `log_index` counts from 0 within the block."""

    address: str
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A request for logs of one contract or all (None), and of blocks up to and including `last`.

    Each position of `topics` is a topic, alternatives, or None for any. `last` may be beyond the
    head, and `descending` is newest first.
    """

    address: str | None
    topics: Sequence[TopicFilter]
    first: int
    last: int
    limit: int | None = None
    descending: bool = False

    def matches(self, log: Log) -> bool:
        if self.address not in {None, log.address} or len(self.topics) > len(log.topics):
            return False
        for alternatives, topic in zip(self.topics, log.topics, strict=False):
            allowed = [alternatives] if isinstance(alternatives, bytes) else alternatives
            if allowed is not None and topic not in allowed:
                return False
        return self.first <= log.block_number <= self.last

    def of(self, logs: Iterable[Log]) -> list[Log]:
        matching = [log for log in logs if self.matches(log)]
        return (matching[::-1] if self.descending else matching)[: self.limit]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A mined transaction; `to` is None if it creates a contract."""

    hash: bytes
    sender: str
    to: str | None
    input: bytes
    block_number: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A transaction's receipt; `status` is 1, or 0 if it reverted."""

    transaction_hash: bytes
    block_number: int
    status: int
    gas_used: int
    contract_address: str | None
    logs: tuple[Log, ...]


class ChainReader(Protocol):
    """Read access to a chain: any method may raise ChainError; `node` shows no credentials."""

    @property
    def chain_id(self) -> int: ...

    @property
    def genesis_hash(self) -> bytes: ...

    @property
    def node(self) -> str | None: ...

    def head(self) -> Block:
        """Return the newest block."""

    def block(self, number: int) -> Block:
        """Return one block; ChainError if there is none."""

    def finalized(self) -> int:
        """Return the number of the newest final block."""

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return a contract's answer as of a block, None for the head; a revert is an error."""

    def code(self, address: str) -> bytes:
        """Return a contract's runtime code; empty where there is none."""

    def logs(self, query: LogQuery) -> list[Log]:
        """Return the logs that match, in the order of the query."""

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a mined transaction; ChainError if there is none."""

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return a transaction's receipt; None until it is mined."""

    def snapshot(self) -> AbstractContextManager[ChainReader]:
        """Open a view of the chain as it is now; a chain file's view never changes."""

    def verify_not_behind(self) -> None:
        """Raise ChainRolledBackError if a chain file lacks its newest acknowledged block."""

    def close(self) -> None:
        """Release files, locks and connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ReceiptReader(ChainReader, Protocol):
    """A chain that finds an account's transactions."""

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the receipt of an account's transaction, confirmed; None until it is mined."""


class ChainWriter(ReceiptReader, Protocol):
    """Write access to a chain, from one account, whose address is `sender`.

    Gas limits are never estimated. A transaction that was mined but reverted raises a
    TransactionRevertedError. One that the chain does not accept raises a TransactionRefusedError,
    and one that is not confirmed in time a TransactionTimeoutError.
    """

    @property
    def sender(self) -> str: ...

    def require_suitable(self, *, needs_block_hash: bool) -> None:
        """Reject a chain that cannot run the contract, before anything is paid."""

    def mines_at_once(self) -> bool:
        """Return whether a transaction makes its block, so that its sender chooses the block."""

    def send(self, to: str | None, data: bytes, gas: int) -> Receipt:
        """Send a transaction, to None to create a contract; return its receipt once confirmed."""

    def next_nonce(self) -> int:
        """Return the nonce of the account's next transaction, pending ones counted."""

    def create_contract(
        self, creation: bytes, gas: int, nonce: int, *, again: bool = False
    ) -> Receipt:
        """Create a contract by the transaction with this nonce, or not at all; return its receipt.

        One transaction per nonce of an account is mined, so a retry creates no second contract. A
        retry (`again`) may replace a pending transaction with this nonce.
        """

    def wait_for_pending(self, sender: str) -> None:
        """Wait until an account has no pending transaction, or raise TransactionTimeoutError."""

    def mine(self, blocks: int) -> None:
        """Let a number of blocks pass: mined at once where possible, else waited for."""


class ChainBase:
    """Base class of `ChainReader`s: a chain without file or connection, unchanged by itself."""

    node: str | None = None

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        yield self

    def verify_not_behind(self) -> None:
        return

    def close(self) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_identity(
    where: object, chain: ChainReader, chain_id: int | None, genesis_hash: bytes | None
) -> None:
    """Accept the expected chain; None accepts any id or block 0. The message names `where`."""
    if chain_id is not None and chain_id != chain.chain_id:
        raise WrongChainError(f"{where}: has chain id {chain.chain_id}, expected {chain_id}")
    if genesis_hash is not None and genesis_hash != chain.genesis_hash:
        found, expected = chain.genesis_hash.hex(), genesis_hash.hex()
        raise WrongChainError(f"{where}: begins with block 0x{found}, expected 0x{expected}")


def require_plain_sender(chain: ChainReader, account: str) -> None:
    """Reject a sender with code, before anything is paid: the contract refuses its transactions."""
    if code := chain.code(account):
        fact, remedy = "is a contract", "use an account without code"
        if code.startswith(bytes.fromhex("ef0100")) and len(code) == 23:
            fact = f"delegates to the code at 0x{code[-20:].hex()} (EIP-7702)"
            remedy = "end the delegation, or use another account"
        raise ChainError(
            f"account {account} {fact}, and the ledger refuses transactions of accounts with "
            f"code. Nothing was sent; {remedy}"
        )
