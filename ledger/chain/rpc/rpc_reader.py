"""Read access to a chain whose node speaks JSON-RPC over HTTP: anvil, geth, besu, a public network.

A node is not trusted to behave well: answers are bounded and parsed strictly, and every failure is
a `NotServedError`, which says nothing about the chain. It is trusted for the content of its chain;
to verify that, run your own node or compare several.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from ledger.chain.ports import (
    Block,
    Log,
    NotServedError,
    Receipt,
    TopicFilter,
    Transaction,
    TransactionRevertedError,
    WrongChainIdError,
    WrongGenesisError,
)
from ledger.chain.rpc import wire
from ledger.chain.rpc.fees import FeeCaps
from ledger.chain.rpc.http_transport import (
    HttpTransport,
    MomentaryFailureError,
)
from ledger.chain.rpc.log_ranges import log_parts, log_request, read_logs
from ledger.chain.rpc.requirements import Requirement, UnsuitableChainError, unmet_requirements
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.errors import ChainError

T = TypeVar("T")

GWEI = 10**9
_PAUSE_GROWTH = 3
_NO_SUCH_TAG = {wire.UNKNOWN_METHOD, wire.INVALID_PARAMETERS, -39001}


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """Time-outs, limits and fees.

    Attributes:
        confirmations: blocks on top of a transaction's own before it counts.
        request_timeout_seconds: for one request; no retry starts later, even after a longer pause
            requested by the node.
        retry_pause_seconds: before the first retry; each later pause is three times as long.
        receipt_timeout_seconds: limit of the wait for a transaction.
        max_fee_per_gas_wei: limit of base fee and tip together.
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
        """Upper limits of a transaction's fees."""
        return FeeCaps(self.max_fee_per_gas_wei, self.max_tip_per_gas_wei)


class RpcReader:
    """A chain behind a node, read-only. Safe to share between threads.

    Args:
        chain_id: the expected id; None accepts any.
        genesis_hash: the expected block 0; None accepts any.
        sleep: waits a number of seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        chain_id: int | None,
        genesis_hash: bytes | None = None,
        settings: RpcSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = RpcSettings() if settings is None else settings
        self._sleep, self._clock = sleep, clock
        self._highest_head = 0
        self._has_named_final = False
        self._node = HttpTransport(
            url, self._settings.request_timeout_seconds, self._settings.max_answer_bytes
        )
        # No retries before the first answer: the address is probably wrong.
        self._retry = self._retry_policy(retries=0)
        try:
            self._verify_identity(chain_id, genesis_hash)
        except ChainError:
            self._node.close()
            raise
        self._retry = self._retry_policy(self._settings.retries)

    def _retry_policy(self, retries: int) -> RetryPolicy:
        backoff = Backoff(self._settings.retry_pause_seconds, _PAUSE_GROWTH)
        deadline = self._settings.request_timeout_seconds
        return RetryPolicy(backoff, retries + 1, deadline, self._sleep, self._clock)

    def _verify_identity(self, chain_id: int | None, genesis_hash: bytes | None) -> None:
        actual = self._ask(wire.quantity, "eth_chainId")
        if chain_id is not None and actual != chain_id:
            raise WrongChainIdError(
                f"{self._node.shown_url}: has chain id {actual}, expected {chain_id}"
            )
        self.chain_id = actual
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

    def _ask(
        self,
        read: Callable[[Any], T],
        method: str,
        *parameters: object,
        is_momentary: Callable[[Any], bool] = lambda _: False,
    ) -> T:
        """Return the parsed result of an idempotent request, retried after momentary failures.

        So it is while `is_momentary` holds for the result.
        """
        # Idempotent: a read, or a signed transaction, which its nonce protects from duplication.
        answer = self._retry.call(
            lambda: self._node.ask(method, *parameters),
            _is_momentary,
            is_transient_result=is_momentary,
            least_pause=_least_wait,
        )
        try:
            return read(answer)
        except wire.MalformedAnswerError as error:
            raise wire.MalformedAnswerError(f"{self._node.shown_url}: {method}: {error}") from None

    def head(self) -> Block:
        newest = self._ask(wire.block, "eth_getBlockByNumber", "latest", False)
        self._highest_head = max(self._highest_head, newest.number)
        return newest

    def block(self, number: int) -> Block:
        """Return one block."""
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
        """Return the newest final block: the node's, else the head less confirmations.

        A chain without finality and a node that has not seen a final block yet answer alike. The
        head counts as final only if this node has never named a final block and the chain is not
        proof of stake.
        """
        try:
            final = self._block_or_none("finalized")
        except wire.RpcFault as fault:
            if not _knows_no_final_blocks(fault):
                raise
            final = None
        if final is not None:
            self._has_named_final = True
            return final.number
        if self._has_named_final or not self._head_may_be_final():
            raise NotServedError(
                f"{self._node.shown_url}: names no final block, on a chain that has them: it "
                "may be starting or lagging; wait, or give a number of confirmations"
            )
        return max(0, self.head().number - self._settings.confirmations)

    def _head_may_be_final(self) -> bool:
        if self._settings.confirmations > 0:
            return True  # an explicit depth replaces finality
        return not self._ask(_is_of_stake, "eth_getBlockByNumber", "latest", False)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
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

    def require_suitable(self, *, needs_block_hash: bool) -> None:
        """Reject a chain that cannot run the contract; see `ChainWriter.require_suitable`."""
        unmet = self.unmet_requirements()
        if not needs_block_hash:
            unmet.pop(Requirement.BLOCK_HASH, None)
        if unmet:
            raise UnsuitableChainError(self.node, unmet)

    def mines_at_once(self) -> bool:
        """Return whether the node makes a block for each transaction, as test nodes can."""
        try:
            return self._ask(wire.flag, "hardhat_getAutomine")
        except wire.RpcFault:  # other nodes have no such method
            return False

    def unmet_requirements(self) -> dict[Requirement, str]:
        """Return the contract's requirements that the chain does not meet."""
        newest = self._ask(wire.members, "eth_getBlockByNumber", "latest", False)

        def call(code: bytes, number: int) -> bytes:
            return self._ask(wire.data, "eth_call", {"data": wire.to_hex(code)}, hex(number))

        return unmet_requirements(newest, call)

    def code(self, address: str) -> bytes:
        return self._ask(wire.data, "eth_getCode", address, "latest")

    def balance_of(self, address: str) -> int:
        """Return an account's balance, in wei."""
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
        """Return the logs that match; see `ChainReader.logs`.

        A range that the node refuses is requested in parts.
        """
        request = log_request(address, topics)
        newest = self.head().number
        last = min(to_block, newest)
        if last < min(to_block, self._highest_head):
            # Several nodes may answer behind one URL, and one of them may lag.
            raise NotServedError(
                f"{self._node.shown_url}: the node had block {self._highest_head}, and now ends "
                f"with {newest}"
            )
        if request is None or last < max(from_block, 0):
            return []
        logs: list[Log] = []
        first = max(from_block, 0)
        for part in log_parts(self._logs_of, request, first, last, descending=descending):
            logs += part
            if limit is not None and len(logs) >= limit:
                return logs[:limit]
        return logs

    def _logs_of(self, request: dict[str, Any]) -> list[Log]:
        return self._ask(read_logs, "eth_getLogs", request)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a mined transaction; raise NotServedError if the node has none.

        One that is pending is asked for again: anvil calls it so a moment longer than its receipt
        and its logs are there.
        """
        transaction = self._ask(
            _mined(wire.transaction),
            "eth_getTransactionByHash",
            wire.to_hex(transaction_hash),
            is_momentary=_is_pending,
        )
        if transaction is None:
            raise NotServedError(
                f"{self._node.shown_url}: the node has no mined transaction "
                f"0x{transaction_hash.hex()}"
            )
        require_same_hash(transaction.hash, transaction_hash)
        return transaction

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        receipt = self._ask(
            _mined(wire.receipt), "eth_getTransactionReceipt", wire.to_hex(transaction_hash)
        )
        if receipt is None:
            return None
        require_same_hash(receipt.transaction_hash, transaction_hash)
        return receipt

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[RpcReader]:
        """Yield this reader: a node cannot freeze its chain, so callers compare heads."""
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


def _is_momentary(error: Exception) -> bool:
    return isinstance(error, MomentaryFailureError)


def _least_wait(error: Exception) -> float:
    return error.retry_after_seconds if isinstance(error, MomentaryFailureError) else 0.0


def _is_pending(answer: object) -> bool:
    return isinstance(answer, dict) and answer.get("blockNumber") is None


def _mined(read: Callable[[object], T]) -> Callable[[object], T | None]:
    """Return a reader of mined objects: None if the node has none, or none is mined."""

    def read_mined(answer: object) -> T | None:
        if answer is None or wire.members(answer).get("blockNumber") is None:
            return None
        return read(answer)

    return read_mined


def require_same_hash(actual: bytes, requested: bytes) -> None:
    """Reject an answer about another hash than the requested one."""
    if actual != requested:
        raise wire.MalformedAnswerError(f"0x{actual.hex()} where 0x{requested.hex()} was asked for")


def _is_of_stake(block: object) -> bool:
    difficulty = wire.members(block).get("difficulty")
    # It is 0 since the merge (EIP-3675), and at least 1 with Clique and QBFT.
    return difficulty is not None and wire.quantity(difficulty) == 0


def _knows_no_final_blocks(fault: wire.RpcFault) -> bool:
    return fault.code in _NO_SUCH_TAG or "finalized" in fault.words
