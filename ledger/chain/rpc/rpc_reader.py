"""Any chain whose node speaks JSON-RPC over HTTP: anvil, geth, besu, a public test network.

The node is not trusted to be well behaved: answers are bounded, read strictly, and every failure
is a `NotServedError`, which says nothing about the chain. It *is* trusted for what it says about
its chain; who wants to check that, runs an own node or asks several.
"""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from web3 import Web3

from ledger.chain.ports import (
    Block,
    Log,
    NotServedError,
    Receipt,
    Transaction,
    TransactionRevertedError,
    WrongChainIdError,
    WrongGenesisError,
)
from ledger.chain.rpc import wire
from ledger.chain.rpc.fees import FeeCaps
from ledger.chain.rpc.http_transport import (
    AnswerTooLargeError,
    HttpTransport,
    MomentaryFailureError,
)
from ledger.io.retry import RetryPolicy
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ledger.chain.ports import TopicFilter

T = TypeVar("T")

GWEI = 10**9
_PAUSE_GROWTH = 3
_NO_SUCH_TAG = {wire.UNKNOWN_METHOD, wire.INVALID_PARAMETERS, -39001}


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """How patient, how careful and how generous we are with a node.

    Attributes:
        confirmations: blocks on top of a transaction's own before it counts.
        request_timeout_seconds: for one request; no retry begins later, also where the node asks
            for a longer pause.
        retries: how often a read that failed for a moment is tried again.
        retry_pause_seconds: before the first retry; each later pause is three times as long.
        receipt_timeout_seconds: how long a transaction is waited for.
        resend_seconds: after how long a transaction that no block holds is sent once more.
        replace_seconds: after how long it is replaced by one that pays more.
        poll_seconds: the longest pause between two looks.
        most_answer_bytes: how large one answer may be.
        most_fee_per_gas_wei: never offered more, base fee and tip together.
        most_tip_per_gas_wei: never offered more as tip.
    """

    confirmations: int = 0
    request_timeout_seconds: float = 30.0
    retries: int = 3
    retry_pause_seconds: float = 0.1
    receipt_timeout_seconds: float = 180.0
    resend_seconds: float = 10.0
    replace_seconds: float = 30.0
    poll_seconds: float = 1.0
    max_answer_bytes: int = 64 * 2**20
    max_fee_per_gas_wei: int = 500 * GWEI
    max_tip_per_gas_wei: int = 2 * GWEI

    @property
    def fee_caps(self) -> FeeCaps:
        """What a transaction never offers more than."""
        return FeeCaps(self.max_fee_per_gas_wei, self.max_tip_per_gas_wei)


class RpcReader:
    """A chain behind a node, read-only. Safe to share between threads.

    Args:
        url: the node, http or https.
        chain_id: the expected id.
        genesis_hash: the expected block 0; None accepts any.
        settings: time-outs and limits.
        sleep: how to wait, in seconds.
        clock: seconds that only go forward.

    Raises:
        WrongChainIdError: the node serves another chain.
        WrongGenesisError: it serves another chain of the same id.
        ChainError: it is unreachable, or no Ethereum node.
    """

    def __init__(
        self,
        url: str,
        *,
        chain_id: int,
        genesis_hash: bytes | None = None,
        settings: RpcSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = RpcSettings() if settings is None else settings
        self._sleep, self._clock = sleep, clock
        self._newest_seen = 0
        self._has_named_final = False
        self._node = HttpTransport(
            url, self._settings.request_timeout_seconds, self._settings.max_answer_bytes
        )
        # A node that has never answered is asked once: more likely, its address is wrong.
        self._patience = self._patience_of(retries=0)
        try:
            self._verify_identity(chain_id, genesis_hash)
        except ChainError:
            self._node.close()
            raise
        self._patience = self._patience_of(self._settings.retries)

    def _patience_of(self, retries: int) -> RetryPolicy:
        waits = (self._settings.retry_pause_seconds * _PAUSE_GROWTH**n for n in range(retries))
        most = self._settings.request_timeout_seconds
        return RetryPolicy(tuple(waits), most, self._sleep, self._clock)

    def _verify_identity(self, chain_id: int, genesis_hash: bytes | None) -> None:
        found = self._ask(wire.quantity, "eth_chainId")
        if found != chain_id:
            raise WrongChainIdError(
                f"{self._node.shown_url}: has chain id {found}, expected {chain_id}"
            )
        self.chain_id = found
        self.genesis_hash = self.block(0).hash
        if genesis_hash is not None and genesis_hash != self.genesis_hash:
            raise WrongGenesisError(
                f"{self._node.shown_url}: begins with block 0x{self.genesis_hash.hex()}, "
                f"expected 0x{genesis_hash.hex()}"
            )

    @property
    def node(self) -> str | None:
        """The node's address without credentials."""
        return self._node.shown_url

    @functools.cached_property
    def web3(self) -> Web3:
        """This node behind web3's own interface, over the same connection and limits."""
        return Web3(self._node)

    def _ask(self, read: Callable[[Any], T], method: str, *parameters: object) -> T:
        """Return the result of one request in a form of ours; for what may be asked twice.

        Raises:
            MalformedAnswerError: it has none; the message names node and method.
        """
        # Only for what may be asked twice: reads, and transactions that are signed already, whose
        # nonce keeps them from being taken twice.
        answer = self._patience.ask(
            lambda: self._node.ask(method, *parameters), _passes, least_wait=_least_wait
        )
        try:
            return read(answer)
        except wire.MalformedAnswerError as error:
            raise wire.MalformedAnswerError(f"{self._node.shown_url}: {method}: {error}") from None

    def head(self) -> Block:
        """Return the newest block."""
        newest = self._ask(wire.block, "eth_getBlockByNumber", "latest", False)
        self._newest_seen = max(self._newest_seen, newest.number)
        return newest

    def block(self, number: int) -> Block:
        """Return one block.

        Args:
            number: 0 for genesis, at most the head's.

        Raises:
            ChainError: the number is negative.
            NotServedError: the node has no such block.
            MalformedAnswerError: it gives another one.
        """
        if number < 0:
            raise ChainError(f"no block {number}")
        block = self._block_or_none(hex(number))
        if block is None:
            raise NotServedError(f"{self._node.shown_url}: the node has no block {number}")
        if block.number != number:
            raise wire.MalformedAnswerError(
                f"{self._node.shown_url}: block {block.number} where {number} was asked for"
            )
        return block

    def _block_or_none(self, tag: str) -> Block | None:
        def read(answer: object) -> Block | None:
            return None if answer is None else wire.block(answer)

        return self._ask(read, "eth_getBlockByNumber", tag, False)

    def finalized(self) -> int:
        """Return the newest final block: the node's opinion, else the head less confirmations.

        A chain without final blocks and a node that has not heard of any yet answer alike. So the
        head is final only where nothing speaks against it: this node has never named a final block,
        and the chain is none of proof of stake.

        Raises:
            RpcFault: the node may know final blocks, but does not say now.
            NotServedError: the chain must have final blocks, and the node names none.
        """
        try:
            found = self._block_or_none("finalized")
        except wire.RpcFault as fault:
            if not _knows_no_final_blocks(fault):
                raise
            found = None
        if found is not None:
            self._has_named_final = True
            return found.number
        if self._has_named_final or not self._may_call_its_head_final():
            raise NotServedError(
                f"{self._node.shown_url}: names no final block now, on a chain that has them: it "
                "may be starting or lag behind; wait, or say how deep is enough"
            )
        return max(0, self.head().number - self._settings.confirmations)

    def _may_call_its_head_final(self) -> bool:
        if self._settings.confirmations > 0:
            return True  # whoever gives a depth has not the head in mind
        return not self._ask(_is_of_stake, "eth_getBlockByNumber", "latest", False)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what a contract answers, without recording anything.

        Args:
            to: the contract.
            data: selector and ABI-encoded arguments.
            block_number: the block whose state answers; None for the head.

        Returns:
            The ABI-encoded answer.
        """
        return self._call({"to": to, "data": wire.to_hex(data)}, block_number)

    def _call(self, request: dict[str, str], block_number: int | None) -> bytes:
        tag = "latest" if block_number is None else hex(block_number)
        try:
            return self._ask(wire.data, "eth_call", request, tag)
        except wire.RpcFault as fault:
            reverted = wire.revert_data(fault)
            if reverted is None:
                raise
            raise TransactionRevertedError(reverted) from fault

    def code(self, address: str) -> bytes:
        """Return a contract's runtime code; empty where there is none.

        Args:
            address: the contract.
        """
        return self._ask(wire.data, "eth_getCode", address, "latest")

    def balance_of(self, address: str) -> int:
        """Return what an account has, in wei.

        Args:
            address: EIP-55.
        """
        return self._ask(wire.quantity, "eth_getBalance", address, "latest")

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
        """Return the logs that match; ranges that the node refuses are asked for in parts.

        Args:
            address: the contract; None for every one.
            topics: per position a topic, several of which one must match, or None for any.
            from_block: first block, included.
            to_block: last block, included; beyond the head is allowed.
            limit: how many logs at most; None for all.
            descending: newest first.

        Raises:
            NotServedError: the node lacks blocks that it had before.
        """
        request = _log_request(address, topics)
        newest = self.head().number
        last = min(to_block, newest)
        if last < min(to_block, self._newest_seen):
            # Behind one URL there may be several nodes, and one of them behind the others.
            raise NotServedError(
                f"{self._node.shown_url}: the node had block {self._newest_seen}, and now ends "
                f"with {newest}"
            )
        if request is None or last < max(from_block, 0):
            return []
        found: list[Log] = []
        for part in self._log_parts(request, max(from_block, 0), last, descending=descending):
            found += part
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def _log_parts(
        self, request: dict[str, Any], first: int, last: int, *, descending: bool
    ) -> Iterator[list[Log]]:
        waiting = [(first, last)]
        while waiting:
            low, high = waiting.pop()
            bounds = {"fromBlock": hex(low), "toBlock": hex(high)}
            try:
                logs = self._ask(_read_logs, "eth_getLogs", {**request, **bounds})
            except (wire.RpcFault, AnswerTooLargeError) as error:
                # Nodes word and number their limits in many ways, so any refusal of a range is
                # answered by halving it; one that was meant otherwise comes back at one block.
                if low == high or getattr(error, "code", None) == wire.UNKNOWN_METHOD:
                    raise
                middle = (low + high) // 2
                halves = [(low, middle), (middle + 1, high)]
                waiting += halves if descending else reversed(halves)
                continue
            _verify_logs(logs, request, low, high)
            logs.sort(key=lambda log: (log.block_number, log.log_index), reverse=descending)
            yield logs

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction that a block holds.

        Args:
            transaction_hash: its hash, 32 bytes.

        Raises:
            NotServedError: no block of the node's holds it.
        """
        transaction = self._ask(
            _mined(wire.transaction), "eth_getTransactionByHash", wire.to_hex(transaction_hash)
        )
        if transaction is None:
            raise NotServedError(
                f"{self._node.shown_url}: as the node has it, no block holds transaction "
                f"0x{transaction_hash.hex()}"
            )
        require_same_hash(transaction.hash, transaction_hash)
        return transaction

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return a transaction's receipt; None while no block holds it.

        Args:
            transaction_hash: its hash, 32 bytes.
        """
        receipt = self._ask(
            _mined(wire.receipt), "eth_getTransactionReceipt", wire.to_hex(transaction_hash)
        )
        if receipt is None:
            return None
        require_same_hash(receipt.transaction_hash, transaction_hash)
        return receipt

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[RpcReader]:
        """Yield this reader: a node cannot hold its chain still, so its reader compares heads."""
        yield self

    def close(self) -> None:
        """Close the connections to the node."""
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _passes(error: Exception) -> bool:
    return isinstance(error, MomentaryFailureError)


def _least_wait(error: Exception) -> float:
    return error.retry_after_seconds if isinstance(error, MomentaryFailureError) else 0.0


def _mined(read: Callable[[object], T]) -> Callable[[object], T | None]:
    """Return how to read what a block holds: None where the node has nothing, or none does yet."""

    def read_mined(answer: object) -> T | None:
        if answer is None or wire.members(answer).get("blockNumber") is None:
            return None
        return read(answer)

    return read_mined


def _read_logs(answer: object) -> list[Log]:
    return [wire.log(entry) for entry in wire.items(answer)]


def _log_request(address: str | None, topics: Sequence[TopicFilter]) -> dict[str, Any] | None:
    wanted: list[str | list[str] | None] = []
    for topic in topics:
        if isinstance(topic, bytes):
            wanted.append(wire.to_hex(topic))
        elif topic is None:
            wanted.append(None)
        elif topic:
            wanted.append([wire.to_hex(one) for one in topic])
        else:
            return None  # none of no topics matches; a node would read it as any
    while wanted and wanted[-1] is None:
        wanted.pop()  # a node would demand that the log has so many topics
    if len(wanted) > 4:
        return None
    request: dict[str, Any] = {"topics": wanted}
    return request if address is None else {**request, "address": address}


def _verify_logs(logs: Sequence[Log], request: dict[str, Any], low: int, high: int) -> None:
    places = {(log.block_number, log.log_index) for log in logs}
    if len(places) < len(logs):
        raise wire.MalformedAnswerError("two logs at one place of the chain")
    for log in logs:
        if not low <= log.block_number <= high:
            raise wire.MalformedAnswerError(
                f"a log of block {log.block_number}, outside {low} to {high}"
            )
        if not _is_asked_for(log, request):
            raise wire.MalformedAnswerError(
                f"a log of block {log.block_number} that the filter does not match"
            )


def _is_asked_for(log: Log, request: dict[str, Any]) -> bool:
    contract = request.get("address")
    if contract is not None and contract.lower() != log.address.lower():
        return False
    found = [wire.to_hex(topic) for topic in log.topics]
    wanted = request["topics"]
    return len(found) >= len(wanted) and all(
        one is None or topic == one or topic in one
        for one, topic in zip(wanted, found, strict=False)
    )


def require_same_hash(found: bytes, asked: bytes) -> None:
    """Accept an answer that is about the hash that was asked for.

    Args:
        found: the hash in the answer.
        asked: the hash in the question.

    Raises:
        MalformedAnswerError: it is about another.
    """
    if found != asked:
        raise wire.MalformedAnswerError(f"0x{found.hex()} where 0x{asked.hex()} was asked for")


def _is_of_stake(block: object) -> bool:
    """Say whether a block is of a chain with a consensus layer, which makes blocks final."""
    difficulty = wire.members(block).get("difficulty")
    # EIP-3675 has it at 0 since the merge; Clique and QBFT have at least 1 there.
    return difficulty is not None and wire.quantity(difficulty) == 0


def _knows_no_final_blocks(fault: wire.RpcFault) -> bool:
    """Say whether a node refuses the tag itself; nodes have several codes for that."""
    return fault.code in _NO_SUCH_TAG or "finalized" in fault.words
