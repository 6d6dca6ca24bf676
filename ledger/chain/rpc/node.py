"""A chain read from a JSON-RPC node, and the node's requirements.

A node is not trusted to behave well: answers are bounded and parsed strictly, and every failure is
a `NotServedError`, which says nothing about the chain. It is trusted for the content of its chain;
to verify that, run your own node or compare several.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from ledger.chain import ports
from ledger.chain.rpc import wire
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.encoding import eip55, to_hex
from ledger.protocol.errors import ChainError


def _plain(query: ports.LogQuery) -> ports.LogQuery:
    """Return an equal query without last topics of any kind: a node would require their number."""
    topics = list(query.topics)
    while topics and topics[-1] is None:
        topics.pop()
    contract = None if query.address is None else eip55(query.address)
    return replace(query, address=contract, topics=topics)


def _log_request(query: ports.LogQuery) -> dict[str, Any] | None:
    """Return the arguments of `eth_getLogs` but the range; None if no log can match."""
    encoded: list[str | list[str] | None] = []
    for topic in query.topics:
        if isinstance(topic, bytes):
            encoded.append(to_hex(topic))
        elif topic is None:
            encoded.append(None)
        elif topic:
            encoded.append([to_hex(alternative) for alternative in topic])
        else:
            return None  # no alternative can match; a node would read it as any
    if len(encoded) > 4:
        return None
    return {"topics": encoded} | ({} if query.address is None else {"address": query.address})


def _read_logs(answer: object, query: ports.LogQuery) -> list[ports.Log]:
    """Return the logs in an answer; reject logs that a node must not return for the query."""
    logs = [wire.log(entry) for entry in wire.items(answer)]
    if len({(log.block_number, log.log_index) for log in logs}) < len(logs):
        raise wire.MalformedAnswerError("two logs at one place of the chain")
    for log in logs:
        fact = None if query.matches(log) else "that the filter does not match"
        if not query.first <= log.block_number <= query.last:
            fact = f"outside {query.first} to {query.last}"
        if fact is not None:
            raise wire.MalformedAnswerError(f"a log of block {log.block_number}, {fact}")
    return sorted(logs, key=attrgetter("block_number", "log_index"), reverse=query.descending)


MIN_BLOCK_GAS = 12_000_000
MAX_LOG_REQUESTS = 100_000  # of one reading of logs from a node that refuses wide ranges

# PUSH0 TLOAD PUSH0 PUSH0 PUSH0 MCOPY STOP
_STOP, _CANCUN = bytes.fromhex("00"), bytes.fromhex("5f5c5f5f5f5e00")
_NUMBER = bytes.fromhex("435f5260205ff3")  # returns block.number
# Returns a zero byte and blockhash(block.number - 1). A node may run code without a contract as a
# creation, and a creation fails if its answer begins with 0xEF (EIP-3541).
_PARENT_HASH = bytes.fromhex("600143034060015260215ff3")


class Requirement(StrEnum):
    """Requirement of the contract on a chain."""

    BASE_FEE = "base-fee"
    BLOCK_GAS = "block-gas"
    CANCUN = "cancun"
    BLOCK_NUMBER = "block-number"
    BLOCK_HASH = "block-hash"  # only a run with `protocol.beacon = block` has it


T = TypeVar("T")

GWEI = 10**9


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """Time-outs, limits and fees.

    A transaction counts with this number of blocks on top of its own (`confirmations`). No retry
    starts after `request_timeout_seconds`, even if the node requests a longer pause. Each pause is
    three times as long as the one before. `max_fee_per_gas_wei` limits base fee and tip together.
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
    def fee_caps(self) -> wire.Fees:
        return wire.Fees(self.max_fee_per_gas_wei, self.max_tip_per_gas_wei)


@dataclass(frozen=True, slots=True)
class GasMarket:
    """Current gas prices, in wei per gas."""

    block_number: int
    base_fee: int
    tip: int


class RpcReader(ports.ChainBase):
    """A chain behind a node, read-only, of any id or block 0 for None. Threads may share it."""

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
        self.settings = RpcSettings() if settings is None else settings
        self.sleep, self.clock = sleep, clock
        self._highest_head = 0
        self._has_named_final = False
        deadline = self.settings.request_timeout_seconds
        self._node = wire.HttpTransport(url, deadline, self.settings.max_answer_bytes)
        self.node = self._node.shown_url
        # No retries before the first answer: the address is probably wrong.
        backoff = Backoff(self.settings.retry_pause_seconds, 3)
        self._retry = RetryPolicy(backoff, 1, deadline, sleep, clock)
        try:
            self.chain_id = self._ask(wire.quantity, "eth_chainId")
            self.genesis_hash = self.block(0).hash
            ports.require_identity(self.node, self, chain_id, genesis_hash)
        except ChainError:
            self._node.close()
            raise
        self._retry = replace(self._retry, attempts=self.settings.retries + 1)

    def _ask(
        self,
        read: Callable[[Any], T],
        method: str,
        *parameters: object,
        is_momentary: Callable[[Any], bool] = lambda _: False,
    ) -> T:
        """Return the parsed result of a request, retried after momentary failures and results."""
        # Idempotent: a read, or a signed transaction, which its nonce protects from duplication.
        answer = self._retry.call(
            lambda: self._node.ask(method, *parameters),
            lambda error: isinstance(error, wire.MomentaryFailureError),
            is_transient_result=is_momentary,
            least_pause=lambda error: getattr(error, "retry_after_seconds", 0.0),
        )
        try:
            return read(answer)
        except wire.MalformedAnswerError as error:
            raise wire.MalformedAnswerError(f"{self.node}: {method} failed ({error})") from None

    def head(self) -> ports.Block:
        newest = self._ask(wire.block, "eth_getBlockByNumber", "latest", False)
        self._highest_head = max(self._highest_head, newest.number)
        return newest

    def _newest(self) -> Mapping[str, Any]:
        return self._ask(wire.members, "eth_getBlockByNumber", "latest", False)

    def block(self, number: int) -> ports.Block:
        if number < 0:
            raise ChainError(f"no block {number}")
        block = self._block_or_none(hex(number))
        if block is None:
            raise ports.NotServedError(f"{self.node}: the node has no block {number}")
        if block.number != number:
            fact = f"{self.node}: block {block.number} where {number} was asked for"
            raise wire.MalformedAnswerError(fact)
        return block

    def whole_block(self, number: int) -> tuple[Mapping[str, Any], list[bytes]]:
        """Return a block's JSON, and its transactions as the block's header hashes them."""
        block = self._ask(wire.members, "eth_getBlockByNumber", hex(number), False)
        method = "eth_getRawTransactionByBlockNumberAndIndex"
        places = map(hex, range(len(wire.items(block.get("transactions")))))
        return block, [self._ask(wire.data, method, hex(number), place) for place in places]

    def _block_or_none(self, tag: str) -> ports.Block | None:
        def read(answer: object) -> ports.Block | None:
            return None if answer is None else wire.block(answer)

        return self._ask(read, "eth_getBlockByNumber", tag, False)

    def finalized(self) -> int:
        """Return the newest final block: the node's, else the head less confirmations.

        A chain without finality and a node that has not seen a final block give equal answers. The
        head counts as final only if this node has never named a final block and the chain is not
        proof of stake.
        """
        try:
            final = self._block_or_none("finalized")
        except wire.RpcFault as fault:
            no_such_tag = {wire.UNKNOWN_METHOD, wire.INVALID_PARAMETERS, -39001}
            if fault.code not in no_such_tag and "finalized" not in fault.words:
                raise
            final = None
        if final is not None:
            self._has_named_final = True
            return final.number
        is_final = self.settings.confirmations > 0  # an explicit depth replaces finality
        if not is_final and not self._has_named_final:
            difficulty = self._newest().get("difficulty")
            # It is 0 since the merge (EIP-3675), and at least 1 with Clique and QBFT.
            is_final = difficulty is None or wire.quantity(difficulty) != 0
        if self._has_named_final or not is_final:
            raise ports.NotServedError(
                f"{self.node} reports no final block, on a chain that has them. It may be "
                "starting or lagging; wait, or give a number of confirmations"
            )
        return max(0, self.head().number - self.settings.confirmations)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        return self._call({"to": to, "data": to_hex(data)}, block_number)

    def _call(self, request: dict[str, str], block_number: int | None) -> bytes:
        tag = "latest" if block_number is None else hex(block_number)
        with _revert_raised():
            return self._ask(wire.data, "eth_call", request, tag)

    def require_suitable(self, *, needs_block_hash: bool) -> None:
        unmet = self.unmet_requirements()
        if not needs_block_hash:
            unmet.pop(Requirement.BLOCK_HASH, None)
        if unmet:
            found = "; ".join(f"{name}: {sentence}" for name, sentence in unmet.items())
            raise ChainError(
                f"{self.node} cannot run the contract: {found}. Nothing was sent; use another chain"
            )

    def mines_at_once(self) -> bool:
        """Return whether the node makes a block for each transaction, as test nodes can."""
        try:
            return self._ask(wire.flag, "hardhat_getAutomine")
        except wire.RpcFault:  # other nodes have no such method
            return False

    def unmet_requirements(self) -> dict[Requirement, str]:
        """Return the requirements that the chain does not meet, each with a sentence."""
        block = self._newest()
        unmet: dict[Requirement, str] = {}
        if block.get("baseFeePerGas") is None:
            unmet[Requirement.BASE_FEE] = "its blocks have no base fee (EIP-1559)"
        limit = block.get("gasLimit")
        if limit is not None and (gas := wire.quantity(limit)) < MIN_BLOCK_GAS:
            unmet[Requirement.BLOCK_GAS] = (
                f"a block takes {gas:,} gas, and the contract needs {MIN_BLOCK_GAS:,}"
            )
        number = wire.quantity(block.get("number"))
        if self._run(_STOP, number) is None:
            return unmet  # this node runs no code without a contract, so nothing follows
        # A node that fails for another reason, say one of several that lags, fails the control too.
        if all(
            self._run(_CANCUN, number) is None and self._run(_STOP, number) is not None
            for _ in range(2)
        ):
            unmet[Requirement.CANCUN] = (
                "its EVM is older than the Cancun fork (PUSH0, TLOAD and MCOPY fail)"
            )
            return unmet
        seen = int.from_bytes(self._code_result(_NUMBER, number), "big")
        # Some nodes run a call as part of the next block.
        if seen not in {number, number + 1}:
            unmet[Requirement.BLOCK_NUMBER] = (
                f"block.number is {seen} in block {number}, as on Arbitrum, and the contract "
                "counts its windows and deadlines by it"
            )
        known = {b"\0" + wire.data(block.get(name), 32) for name in ("parentHash", "hash")}
        if self._code_result(_PARENT_HASH, number) not in known:
            unmet[Requirement.BLOCK_HASH] = (
                "blockhash() is not the hash that the node gives a block, so protocol.beacon must "
                "be none"
            )
        return unmet

    def _code_result(self, code: bytes, number: int) -> bytes:
        """Run code, without a contract, after a block; raise RpcFault if it fails."""
        return self._ask(wire.data, "eth_call", {"data": to_hex(code)}, hex(number))

    def _run(self, code: bytes, number: int) -> bytes | None:
        """Return the result of code, None if it fails; raise RpcFault if requests are limited."""
        try:
            return self._code_result(code, number)
        except wire.RpcFault as fault:
            if fault.code == wire.LIMIT_EXCEEDED:
                raise
            return None

    def code(self, address: str) -> bytes:
        return self._ask(wire.data, "eth_getCode", address, "latest")

    def balance_of(self, address: str) -> int:
        return self._ask(wire.quantity, "eth_getBalance", address, "latest")

    def logs(self, query: ports.LogQuery) -> list[ports.Log]:
        """Return the logs that match; a range that the node refuses is requested in parts."""
        newest = self.head().number
        last = min(query.last, newest)
        if last < min(query.last, self._highest_head):
            # Several nodes may answer behind one URL, and one of them may lag.
            raise ports.NotServedError(
                f"{self.node}: the node had block {self._highest_head}, and now ends with {newest}"
            )
        logs: list[ports.Log] = []
        for part in self._log_parts(replace(_plain(query), first=max(query.first, 0), last=last)):
            logs += part
            if query.limit is not None and len(logs) >= query.limit:
                return logs[: query.limit]
        return logs

    def _log_parts(self, query: ports.LogQuery) -> Iterator[list[ports.Log]]:
        request = _log_request(query)
        if request is None or query.first > query.last:
            return
        waiting, requests = [(query.first, query.last)], 0
        while waiting:
            requests += 1
            if requests > MAX_LOG_REQUESTS:
                fault = f"refuses so many ranges of logs that {requests} requests do not suffice"
                raise ports.NotServedError(f"{self.node}: {fault}")
            low, high = waiting.pop()
            read = functools.partial(_read_logs, query=replace(query, first=low, last=high))
            bounds = {"fromBlock": hex(low), "toBlock": hex(high)}
            try:
                yield self._ask(read, "eth_getLogs", request | bounds)
            except (wire.RpcFault, wire.AnswerTooLargeError) as error:
                # Nodes express their limits in many ways: any refusal of a range halves it, and a
                # refusal for another reason persists down to one block.
                if low == high or getattr(error, "code", None) == wire.UNKNOWN_METHOD:
                    raise
                middle = (low + high) // 2
                halves = [(low, middle), (middle + 1, high)]
                waiting += halves if query.descending else reversed(halves)

    def transaction(self, transaction_hash: bytes) -> ports.Transaction:
        # Asked again while it is pending: anvil calls it so a moment after its receipt is there.
        transaction = self._ask(
            functools.partial(_mined, read=wire.transaction),
            "eth_getTransactionByHash",
            to_hex(transaction_hash),
            is_momentary=lambda found: isinstance(found, dict) and found.get("blockNumber") is None,
        )
        if transaction is None:
            fact = f"{self.node}: the node has no mined transaction 0x{transaction_hash.hex()}"
            raise ports.NotServedError(fact)
        require_same_hash(transaction.hash, transaction_hash)
        return transaction

    def receipt(self, transaction_hash: bytes) -> ports.Receipt | None:
        read = functools.partial(_mined, read=wire.receipt)
        receipt = self._ask(read, "eth_getTransactionReceipt", to_hex(transaction_hash))
        if receipt is not None:
            require_same_hash(receipt.transaction_hash, transaction_hash)
        return receipt

    def market(self) -> GasMarket:
        newest = self._newest()
        number, base = (wire.quantity(newest.get(name)) for name in ("number", "baseFeePerGas"))
        try:
            tip = self._ask(wire.quantity, "eth_maxPriorityFeePerGas")
        except wire.RpcFault:
            tip = GWEI
        return GasMarket(number, base, tip)

    def client_version(self) -> str:
        return self._ask(str, "web3_clientVersion")

    def nonce(self, account: str, *, pending: bool) -> int:
        tag = "pending" if pending else "latest"
        return self._ask(wire.quantity, "eth_getTransactionCount", account, tag)

    def nonce_at(self, account: str, block_number: int) -> int:
        return self._ask(wire.quantity, "eth_getTransactionCount", account, hex(block_number))

    def receipt_of(self, sender: str, nonce: int) -> ports.Receipt | None:
        # Blocks are requested by number: a lagging node behind the same URL then fails, instead of
        # answering as if the transaction did not exist.
        newest = self.head().number
        if self.nonce_at(sender, newest) <= nonce:
            return None
        for number in reversed(blocks_of(nonce, newest, functools.partial(self.nonce_at, sender))):
            read = functools.partial(_hash_of, sender=sender, nonce=nonce)
            hash_ = self._ask(read, "eth_getBlockByNumber", hex(number), True)
            if hash_ is not None and (receipt := self.receipt(hash_)) is not None:
                return receipt
        raise ports.NotServedError(
            f"{self.node}: the node has no mined transaction of "
            f"{sender} with nonce {nonce}, although it is mined"
        )

    def is_confirmed(self, receipt: ports.Receipt) -> bool:
        depth = self.settings.confirmations
        return depth == 0 or self.head().number - receipt.block_number >= depth

    def post(self, raw: bytes) -> bytes:
        # Once: after a retry, "already known" would be ambiguous.
        return wire.data(self._node.ask("eth_sendRawTransaction", to_hex(raw)), 32)

    def has(self, transaction_hash: bytes) -> bool:
        def read(answer: object) -> bool:
            if answer is not None:
                require_same_hash(wire.data(wire.members(answer).get("hash"), 32), transaction_hash)
            return answer is not None

        return self._ask(read, "eth_getTransactionByHash", to_hex(transaction_hash))

    def revert_data(self, request: Mapping[str, str], block_number: int) -> bytes:
        """Return a reverted transaction's reason data; empty if it cannot be found."""
        # The parent's state is the one before the transaction, unless its block has others.
        for number in (block_number - 1, block_number):
            try:
                self._call(dict(request), number)
            except ports.TransactionRevertedError as error:
                return error.data
            except wire.RpcFault:  # out of gas, or a pruned state
                continue
        return b""

    def gas_of(self, request: Mapping[str, str]) -> int:
        with _revert_raised():
            return self._ask(wire.quantity, "eth_estimateGas", dict(request))

    def close(self) -> None:
        self._node.close()


@contextlib.contextmanager
def _revert_raised() -> Iterator[None]:
    try:
        yield
    except wire.RpcFault as fault:
        reverted = wire.revert_data(fault)
        if reverted is None:
            raise
        raise ports.TransactionRevertedError(reverted) from fault


def _mined(answer: object, read: Callable[[object], T]) -> T | None:
    if answer is None or wire.members(answer).get("blockNumber") is None:
        return None
    return read(answer)


def require_same_hash(actual: bytes, requested: bytes) -> None:
    """Reject an answer about another hash than the requested one."""
    if actual != requested:
        raise wire.MalformedAnswerError(f"0x{actual.hex()} where 0x{requested.hex()} was asked for")


def blocks_of(nonce: int, newest: int, count: Callable[[int], int]) -> range:
    """Return a transaction's candidate blocks: one, unless the node has pruned old states."""
    # A binary search over the account's number of transactions up to a block, from the newest.
    before, after, step = -1, newest, 1
    try:
        while after - before > 1:
            probe = max(0, after - step) if before < 0 else (before + after) // 2
            if count(probe) > nonce:
                after, step = probe, 2 * step
            else:
                before = probe
    except wire.RpcFault:  # a pruned state: the blocks have to be searched
        pass
    return range(before + 1, after + 1)


def _hash_of(block: object, sender: str, nonce: int) -> bytes | None:
    for entry in wire.items(wire.members(block).get("transactions")):
        fields = wire.members(entry)
        is_same = wire.quantity(fields.get("nonce")) == nonce
        if is_same and wire.address(fields.get("from")) == sender:
            return wire.data(fields.get("hash"), 32)
    return None
