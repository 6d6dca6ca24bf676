"""The JSON-RPC methods of the embedded chain: an allow-list that answers like a node.

None of them signs: keys stay with the clients.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eth.abc import BlockHeaderAPI
from eth.exceptions import PyEVMError, Revert
from eth.vm.forks.prague import PragueVM
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import base_fee, next_base_fee
from ledger.chain.embedded.reader import CallAnswer, CallAnswers, EmbeddedReader
from ledger.chain.ports import Log, TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_json import block_json, receipt_json, transaction_json
from ledger.chain.rpc.server.transaction_pool import TransactionPool, rejection_message
from ledger.protocol.errors import ChainError

_log = logging.getLogger(__name__)
_MOST_BLOCKS_AT_ONCE = 1000
_MALFORMED = (PyEVMError, RLPException, ValidationError, TypeError, ValueError, RecursionError)
_ZERO_ADDRESS = "0x" + "00" * 20
# Every block is final here, and none is pending.
_NEWEST = (None, "latest", "pending", "safe", "finalized")


class RpcMethods:
    """Answers JSON-RPC requests from an embedded chain. Safe to share between threads.

    A call may take as long as a full block's gas. It runs in a separate snapshot, so other
    requests do not wait. Small answers are cached: a block's state never changes.

    Args:
        chain: the chain; if it is read-only, transactions are not accepted.
        max_logs: limit of one `eth_getLogs` answer, as on public nodes.
        pool: pending transactions of a chain with timed blocks; None to mine each at once. With
            timed blocks there is no `evm_mine`: windows and deadlines count blocks.
    """

    def __init__(
        self, chain: EmbeddedReader, max_logs: int = 10_000, pool: TransactionPool | None = None
    ) -> None:
        self._chain = chain
        self._most_logs = max_logs
        self._pool = pool
        self._answers = CallAnswers()
        version = "cmfl-ledger/py-evm" if pool is None else "cmfl-ledger-on-a-clock/py-evm"
        self._methods: dict[str, Callable[..., object]] = {
            "web3_clientVersion": lambda: version,
            "net_version": lambda: str(chain.chain_id),
            "eth_chainId": lambda: hex(chain.chain_id),
            "eth_syncing": lambda: False,
            "eth_accounts": list,
            "eth_blockNumber": lambda: hex(chain.head().number),
            "eth_getBlockByNumber": lambda tag, whole=False: self._block(
                _header_at(chain, tag), whole=whole is True
            ),
            "eth_getBlockByHash": lambda block_hash, whole=False: self._block(
                _header_with(chain, block_hash), whole=whole is True
            ),
            "eth_getTransactionByHash": self._transaction,
            "eth_getTransactionReceipt": self._receipt,
            "eth_gasPrice": lambda: hex(next_base_fee(chain.header())),
            "eth_maxPriorityFeePerGas": lambda: "0x0",
            "eth_feeHistory": self._fee_history,
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": self._count,
            "eth_getCode": self._code,
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
            "eth_getLogs": self._logs,
        }
        if isinstance(chain, EmbeddedChain):
            self._methods["eth_sendRawTransaction"] = lambda raw: self._send(chain, raw)
            self._methods["hardhat_getAutomine"] = lambda: pool is None
            if pool is None:
                self._methods["evm_mine"] = lambda blocks="0x1": _mine(chain, blocks)

    def answer(self, request: object) -> dict[str, Any] | None:
        """Return the answer to one decoded request; None for a notification."""
        identifier = request.get("id") if isinstance(request, dict) else None
        endless = isinstance(identifier, float) and not math.isfinite(identifier)
        if endless or isinstance(identifier, bool | list | dict):
            return fault_json(wire.RpcFault(wire.INVALID_REQUEST, "an id is a number or a string"))
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return fault_json(
                wire.RpcFault(wire.INVALID_REQUEST, "not a JSON-RPC request"), identifier
            )
        answer = self._outcome(request["method"], request.get("params"), identifier)
        # A request without id gets no answer, not even an error.
        return answer if "id" in request else None

    def _outcome(self, name: str, parameters: object, identifier: object) -> dict[str, Any]:
        try:
            result = self._result(name, parameters)
        except TransactionRevertedError as error:
            fault = wire.RpcFault(wire.REVERTED, "execution reverted", wire.to_hex(error.data))
        except wire.RpcFault as error:
            fault = error
        except wire.MalformedAnswerError as error:
            fault = wire.RpcFault(wire.INVALID_PARAMETERS, str(error))
        except ChainError as error:
            fault = wire.RpcFault(wire.SERVER_ERROR, str(error))
        except Exception:  # noqa: BLE001 - a bug gives an error answer, not a dropped connection
            _log.exception("%s", name[:60])
            fault = wire.RpcFault(wire.INTERNAL_ERROR, "internal error")
        else:
            return {"jsonrpc": "2.0", "id": identifier, "result": result}
        return fault_json(fault, identifier)

    def _result(self, name: str, params: object) -> object:
        method = self._methods.get(name)
        if method is None:
            raise wire.RpcFault(wire.UNKNOWN_METHOD, f"the method {name[:60]} does not exist")
        parameters = wire.items([] if params is None else params)
        try:
            bound = inspect.signature(method).bind(*parameters)
        except TypeError as error:
            raise wire.RpcFault(
                wire.INVALID_PARAMETERS, f"{name} takes other parameters"
            ) from error
        return method(*bound.args)

    def _block(self, header: BlockHeaderAPI | None, *, whole: bool) -> object:
        if header is None:
            return None
        return block_json(header, self._chain.transactions(header), whole=whole)

    def _transaction(self, transaction_hash: object) -> object:
        hash_ = wire.data(transaction_hash, 32)
        # The pool first: a transaction that has left it is mined by then.
        pending = None if self._pool is None else self._pool.find(hash_)
        if pending is not None:
            return transaction_json(None, None, pending)
        entry = self._chain.find(hash_)
        return None if entry is None else transaction_json(*entry)

    def _receipt(self, transaction_hash: object) -> object:
        entry = self._chain.find(wire.data(transaction_hash, 32))
        if entry is None:
            return None
        header, index, signed = entry
        receipt = self._chain.receipt(bytes(signed.hash))
        if receipt is None:
            return None
        raw = self._chain.receipts(header)[index]
        return receipt_json(header, index, signed, (raw, receipt))

    def _fee_history(self, *_: object) -> object:
        """Return the newest block alone, with no tips: wallets estimate the next fee from it."""
        end = self._chain.header()
        return {
            "oldestBlock": hex(end.block_number),
            "baseFeePerGas": [hex(base_fee(end)), hex(next_base_fee(end))],
            "gasUsedRatio": [end.gas_used / end.gas_limit],
            "reward": [["0x0"]],
        }

    def _count(self, who: object, at: object = None) -> str:
        pending = 0
        if self._pool is not None and at == "pending":
            pending = self._pool.next_nonce(wire.address(who))
        return hex(max(pending, self._account(who, at)[0]))

    def _account(self, who: object, at: object) -> tuple[int, int]:
        return self._chain.account(wire.address(who), _number_of(self._chain, at))

    def _code(self, who: object, at: object = None) -> str:
        return wire.to_hex(self._chain.code(wire.address(who), _number_of(self._chain, at)))

    def _storage(self, who: object, slot: object, at: object = None) -> str:
        number = _number_of(self._chain, at)
        word = self._chain.storage(wire.address(who), wire.quantity(slot), number)
        return wire.to_hex(word.to_bytes(32, "big"))

    def _call(self, request: object, at: object = None) -> str:
        call = _read_call(request)
        # All followers of a contract make the same call for each block, and blocks are final here.
        number = None if isinstance(at, dict) else _requested_number(at)
        answer = None if number is None else self._answers.get((number, call))
        if answer is None:
            number, answer = self._executed(call, at)
            self._answers.put((number, call), call.data, answer)
        if answer.is_reverted:
            raise TransactionRevertedError(answer.output)
        return wire.to_hex(answer.output)

    def _executed(self, call: _Call, at: object) -> tuple[int, CallAnswer]:
        """Run a call; return the number of its block, and the answer."""
        with self._chain.snapshot() as snapshot:
            requested = _number_of(snapshot, at)
            number = snapshot.head().number if requested is None else requested
            computation = snapshot.execute(
                call.to, call.data, number, sender=call.sender, gas=call.gas, value=call.value
            )
        is_reverted = isinstance(computation.is_error and computation.error, Revert)
        if computation.is_error and not is_reverted:
            raise wire.RpcFault(wire.SERVER_ERROR, f"execution failed: {computation.error!r}"[:200])
        return number, CallAnswer(bytes(computation.output), is_reverted)

    def _estimate(self, request: object, at: object = None) -> str:  # noqa: ARG002 - at the head
        call = _read_call(request)
        balance = self._chain.account(call.sender)[1]
        if call.value > balance:
            raise wire.RpcFault(
                wire.SERVER_ERROR,
                f"insufficient funds for transfer: address {call.sender} have {balance} "
                f"want {call.value}",
            )
        with self._chain.snapshot() as snapshot:
            return hex(
                snapshot.estimate_gas(call.to, call.data, sender=call.sender, value=call.value)
            )

    def _logs(self, request: object) -> list[dict[str, Any]]:
        query = self._query(request)
        head = self._chain.head().number
        low = head if query.first is None else query.first
        high = head if query.last is None else query.last
        logs: list[Log] = []
        for contract in (None,) if query.addresses is None else query.addresses:
            room = self._most_logs + 1 - len(logs)
            logs += self._chain.logs(contract, query.topics, low, high, room)
            if len(logs) > self._most_logs:
                raise wire.RpcFault(
                    wire.LIMIT_EXCEEDED, f"query returned more than {self._most_logs} results"
                )
        logs.sort(key=lambda entry: (entry.block_number, entry.log_index))
        positions = {
            hash_: self._chain.transaction_index(hash_)
            for hash_ in {entry.transaction_hash for entry in logs}
        }
        return [wire.log_json(entry, positions[entry.transaction_hash]) for entry in logs]

    def _query(self, request: object) -> _LogQuery:
        fields = wire.members(request)
        contract = fields.get("address")
        addresses = contract if isinstance(contract, list) else [contract]
        # Without duplicates, which would repeat logs.
        named = (
            dict.fromkeys(wire.address(entry) for entry in addresses)
            if contract is not None
            else None
        )
        contracts = None if named is None else tuple(named)
        topics = [_read_topics(position) for position in wire.items(fields.get("topics") or [])]
        if "blockHash" in fields:
            if fields.get("fromBlock") is not None or fields.get("toBlock") is not None:
                raise wire.RpcFault(
                    wire.INVALID_PARAMETERS, "cannot specify both blockHash and fromBlock/toBlock"
                )
            number = _number_of(self._chain, {"blockHash": fields["blockHash"]})
            return _LogQuery(contracts, topics, number, number)
        first, last = (_requested_number(fields.get(name)) for name in ("fromBlock", "toBlock"))
        return _LogQuery(contracts, topics, first, last)

    def _send(self, chain: EmbeddedChain, raw: object) -> str:
        sent = wire.data(raw)
        message = _malformed_message(sent, chain.chain_id)
        if message is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, message)
        signed = chain.read_transaction(sent)
        if self._pool is not None:
            self._pool.add(signed)
            return wire.to_hex(signed.hash)
        message = rejection_message(chain, signed, ())
        if message is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, message)
        return wire.to_hex(chain.submit(sent))


def fault_json(fault: wire.RpcFault, identifier: object = None) -> dict[str, Any]:
    """Return the JSON answer for a fault."""
    shown = {"code": fault.code, "message": str(fault)}
    error = shown if fault.data is None else {**shown, "data": fault.data}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def _number_of(chain: EmbeddedReader, tag: object) -> int | None:
    """Return the number of an existing block, by number, name or object (EIP-1898)."""
    if isinstance(tag, dict) and "blockHash" in tag:
        number = chain.block_number_of(wire.data(tag["blockHash"], 32))
    else:
        number = _requested_number(tag)
        if number is None or number <= chain.head().number:
            return number
        number = None
    if number is None:
        raise wire.RpcFault(wire.SERVER_ERROR, "header not found")
    return number


def _requested_number(tag: object) -> int | None:
    """Return the number in a tag, whether or not the block exists; None for the newest."""
    if isinstance(tag, dict):
        if tag.get("blockNumber") is None:
            raise wire.RpcFault(wire.INVALID_PARAMETERS, "an object here needs a blockNumber")
        return _requested_number(tag["blockNumber"])
    if tag in _NEWEST:
        return None
    return 0 if tag == "earliest" else wire.quantity(tag)


def _header_at(chain: EmbeddedReader, tag: object) -> BlockHeaderAPI | None:
    """Return the header of a block by number or name; None if there is none."""
    number = _requested_number(tag)
    if number is not None and number > chain.head().number:
        return None
    return chain.header(number)


def _header_with(chain: EmbeddedReader, block_hash: object) -> BlockHeaderAPI | None:
    """Return the header of a block by hash; None if there is none."""
    number = chain.block_number_of(wire.data(block_hash, 32))
    return None if number is None else chain.header(number)


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of `eth_call` and `eth_estimateGas`."""

    to: str | None
    data: bytes
    sender: str
    gas: int | None
    value: int


def _read_call(request: object) -> _Call:
    fields = wire.members(request)
    to, gas = fields.get("to"), fields.get("gas")
    return _Call(
        to=wire.address(to) if to else None,
        data=wire.data(fields.get("input") or fields.get("data") or "0x"),
        sender=wire.address(fields.get("from") or _ZERO_ADDRESS),
        gas=None if gas is None else wire.quantity(gas),
        value=wire.quantity(fields.get("value") or "0x0"),
    )


@dataclass(frozen=True, slots=True)
class _LogQuery:
    """A log filter; None for any contract or topic, and for the newest block."""

    addresses: tuple[str, ...] | None
    topics: Sequence[bytes | Sequence[bytes] | None]
    first: int | None
    last: int | None


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        # An empty alternative matches anything.
        if None in position:
            return None
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)


def _malformed_message(sent: bytes, chain_id: int) -> str | None:
    """Return why a transaction is malformed, in geth's words; None if it is not."""
    try:
        signed = PragueVM.get_transaction_builder().decode(sent)
    except _MALFORMED:
        return "rlp: the transaction is malformed"
    if signed.chain_id != chain_id:
        return f"invalid chain id for signer: have {signed.chain_id} want {chain_id}"
    try:
        _ = signed.sender
    except (*_MALFORMED, BadSignature):
        return "invalid sender: the signature recovers to no account"
    return None


def _mine(chain: EmbeddedChain, blocks: object) -> str:
    number = wire.quantity(blocks)
    if number > _MOST_BLOCKS_AT_ONCE:
        raise wire.RpcFault(wire.LIMIT_EXCEEDED, f"at most {_MOST_BLOCKS_AT_ONCE} blocks at once")
    chain.mine(number)
    return "0x0"
