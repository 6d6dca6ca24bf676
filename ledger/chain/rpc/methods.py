"""The JSON-RPC methods of the embedded chain: an allow-list that answers like a node.

None of them signs: keys stay with the clients.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rlp  # type: ignore[import-untyped]

from ledger.chain.embedded import reader
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import base_fee, next_base_fee
from ledger.chain.embedded.reader import EmbeddedReader, Header, SignedTransaction
from ledger.chain.ports import Log, LogQuery, TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.pool import TransactionPool, rejection_message
from ledger.protocol.encoding import checksum, to_hex
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import SignedTransactionAPI

    Signed = SignedTransaction | SignedTransactionAPI

_log = logging.getLogger(__name__)
_MOST_BLOCKS_AT_ONCE = 1000
_ZERO_ADDRESS = "0x" + "00" * 20
# Every block is final here, and none is pending.
_NEWEST = (None, "latest", "pending", "safe", "finalized")


class RpcMethods:
    """Answers JSON-RPC requests from an embedded chain. Safe to share between threads.

    A chain that is open for reading accepts no transactions. With timed blocks a pool holds
    transactions; without one, each is mined at once. With timed blocks there is no `evm_mine`:
    windows and deadlines count blocks. A call may take as long as a full block's gas. It runs in a
    separate snapshot, so other requests do not wait.
    """

    def __init__(
        self, chain: EmbeddedReader, max_logs: int = 10_000, pool: TransactionPool | None = None
    ) -> None:
        self._chain = chain
        self._most_logs = max_logs
        self._pool = pool
        version = "cmfl-ledger/py-evm" if pool is None else "cmfl-ledger-on-a-clock/py-evm"
        self._methods: dict[str, Callable[..., object]] = {
            "web3_clientVersion": lambda: version,
            "net_version": lambda: str(chain.chain_id),
            "eth_chainId": lambda: hex(chain.chain_id),
            "eth_syncing": lambda: False,
            "eth_accounts": [].copy,  # a list's type would take a parameter
            "eth_blockNumber": lambda: hex(chain.head().number),
            "eth_getBlockByNumber": lambda tag, whole=False: self._block(
                _requested_number(tag), whole=whole
            ),
            "eth_getBlockByHash": self._block_with,
            "eth_getTransactionByHash": self._transaction,
            "eth_getRawTransactionByBlockNumberAndIndex": self._encoded,
            "eth_getTransactionReceipt": self._receipt,
            "eth_gasPrice": lambda: hex(next_base_fee(chain.header())),
            "eth_maxPriorityFeePerGas": lambda: "0x0",
            "eth_feeHistory": self._fee_history,
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": self._count,
            "eth_getCode": lambda who, at=None: to_hex(
                chain.code(wire.address(who), _number_of(chain, at))
            ),
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
            return fault_json(wire.INVALID_REQUEST, "an id is a number or a string")
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return fault_json(wire.INVALID_REQUEST, "not a JSON-RPC request", identifier)
        name, data = request["method"], None
        try:
            result = self._result(name, request.get("params"))
        except TransactionRevertedError as error:
            code, message, data = wire.REVERTED, "execution reverted", to_hex(error.data)
        except wire.RpcFault as error:
            code, message = error.code, str(error)
        except wire.MalformedAnswerError as error:
            code, message = wire.INVALID_PARAMETERS, str(error)
        except ChainError as error:
            code, message = wire.SERVER_ERROR, str(error)
        except Exception:  # noqa: BLE001 - a bug gives an error answer, not a dropped connection
            _log.exception("%s", name[:60])
            code, message = wire.INTERNAL_ERROR, "internal error"
        else:
            answer = {"jsonrpc": "2.0", "id": identifier, "result": result}
            # A request without id gets no answer, not even an error.
            return answer if "id" in request else None
        return fault_json(code, message, identifier, data) if "id" in request else None

    def _result(self, name: str, params: object) -> object:
        method = self._methods.get(name)
        if method is None:
            raise wire.RpcFault(wire.UNKNOWN_METHOD, f"the method {name[:60]} does not exist")
        parameters = wire.items([] if params is None else params)
        try:
            bound = inspect.signature(method).bind(*parameters)
        except TypeError as error:
            fact = f"{name} takes other parameters"
            raise wire.RpcFault(wire.INVALID_PARAMETERS, fact) from error
        return method(*bound.args)

    def _block(self, number: int | None, *, whole: object) -> object:
        if number is not None and number > self._chain.head().number:
            return None
        header = self._chain.header(number)
        transactions = self._chain.transactions(header)
        fields = rlp.decode(rlp.encode(header))
        size = len(rlp.encode([fields, [signed.encoded for signed in transactions], [], []]))
        return {
            **header_json(header),
            "size": hex(size),
            "uncles": [],
            "withdrawals": [],
            "transactions": [
                transaction_json(header, index, signed) if whole is True else to_hex(signed.hash)
                for index, signed in enumerate(transactions)
            ],
        }

    def _block_with(self, block_hash: object, whole: object = False) -> object:
        number = self._chain.block_number_of(wire.data(block_hash, 32))
        return None if number is None else self._block(number, whole=whole)

    def _transaction(self, transaction_hash: object) -> object:
        hash_ = wire.data(transaction_hash, 32)
        # The pool first: a transaction that has left it is mined by then.
        pending = None if self._pool is None else self._pool.find(hash_)
        if pending is not None:
            return transaction_json(None, None, pending)
        entry = self._chain.find(hash_)
        return None if entry is None else transaction_json(*entry)

    def _encoded(self, tag: object, index: object) -> str | None:
        sent = self._chain.transactions(self._chain.header(_number_of(self._chain, tag)))
        place = wire.quantity(index)
        return to_hex(sent[place].encoded) if place < len(sent) else None

    def _receipt(self, transaction_hash: object) -> object:
        entry = self._chain.find(wire.data(transaction_hash, 32))
        return None if entry is None else receipt_json(*entry, self._chain.receipts(entry[0]))

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

    def _call(self, request: object, at: object = None) -> str:
        call, number = _read_call(request), _number_of(self._chain, at)
        answer = self._chain.answer(call, number, in_snapshot=True)
        if answer.failure:
            raise wire.RpcFault(wire.SERVER_ERROR, f"execution failed: {answer.failure}")
        if answer.failure is not None:
            raise TransactionRevertedError(answer.output)
        return to_hex(answer.output)

    def _estimate(self, request: object, at: object = None) -> str:  # noqa: ARG002 - at the head
        call = _read_call(request)
        balance = self._chain.account(call.sender)[1]
        if call.value > balance:
            fact = f"address {call.sender} have {balance} want {call.value}"
            raise wire.RpcFault(wire.SERVER_ERROR, f"insufficient funds for transfer: {fact}")
        with self._chain.snapshot() as snapshot:
            return hex(snapshot.estimate_gas(call))

    def _logs(self, request: object) -> list[dict[str, Any]]:
        fields = wire.members(request)
        topics = [_read_topics(position) for position in wire.items(fields.get("topics") or [])]
        first, last = self._range(fields)
        contracts: list[str | None] = [None]
        if (address := fields.get("address")) is not None:
            named = address if isinstance(address, list) else [address]
            # Without duplicates, which would repeat logs.
            contracts = list(dict.fromkeys(wire.address(entry) for entry in named))
        logs: list[Log] = []
        for contract in contracts:
            room = self._most_logs + 1 - len(logs)
            logs += self._chain.logs(LogQuery(contract, topics, first, last, room))
            if len(logs) > self._most_logs:
                fact = f"query returned more than {self._most_logs} results"
                raise wire.RpcFault(wire.LIMIT_EXCEEDED, fact)
        logs.sort(key=lambda entry: (entry.block_number, entry.log_index))
        positions = {
            hash_: self._chain.transaction_index(hash_)
            for hash_ in {entry.transaction_hash for entry in logs}
        }
        return [wire.log_json(entry, positions[entry.transaction_hash]) for entry in logs]

    def _range(self, fields: Mapping[str, Any]) -> tuple[int, int]:
        if "blockHash" not in fields:
            head = self._chain.head().number
            first, last = (_requested_number(fields.get(name)) for name in ("fromBlock", "toBlock"))
            return head if first is None else first, head if last is None else last
        if fields.get("fromBlock") is not None or fields.get("toBlock") is not None:
            fact = "cannot specify both blockHash and fromBlock/toBlock"
            raise wire.RpcFault(wire.INVALID_PARAMETERS, fact)
        number = _number_of(self._chain, {"blockHash": fields["blockHash"]})
        assert number is not None, "a hash names no newest block"
        return number, number

    def _send(self, chain: EmbeddedChain, raw: object) -> str:
        sent = wire.data(raw)
        signed = chain.read_transaction(sent)
        if self._pool is not None:
            self._pool.add(signed)
            return to_hex(signed.hash)
        message = rejection_message(chain, signed, ())
        if message is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, message)
        return to_hex(chain.submit(sent))


def fault_json(
    code: int, message: str, identifier: object = None, data: str | None = None
) -> dict[str, Any]:
    """Return the JSON answer for a fault."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def _number_of(chain: EmbeddedReader, tag: object) -> int | None:
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


def _read_call(request: object) -> reader.ContractCall:
    fields = wire.members(request)
    to, gas = fields.get("to"), fields.get("gas")
    return reader.ContractCall(
        to=wire.address(to) if to else None,
        data=wire.data(fields.get("input") or fields.get("data") or "0x"),
        sender=wire.address(fields.get("from") or _ZERO_ADDRESS),
        gas=None if gas is None else wire.quantity(gas),
        value=wire.quantity(fields.get("value") or "0x0"),
    )


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        # An empty alternative matches anything.
        if None in position:
            return None
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)


def _mine(chain: EmbeddedChain, blocks: object) -> str:
    number = wire.quantity(blocks)
    if number > _MOST_BLOCKS_AT_ONCE:
        raise wire.RpcFault(wire.LIMIT_EXCEEDED, f"at most {_MOST_BLOCKS_AT_ONCE} blocks at once")
    chain.mine(number)
    return "0x0"


def header_json(header: Header) -> dict[str, Any]:
    """Return a header with all 21 fields of its hash."""
    named = zip(wire.HEADER, header, strict=True)
    shown = {name: hex(each) if isinstance(each, int) else to_hex(each) for name, each in named}
    first = {"number": hex(header.block_number), "hash": to_hex(header.hash)}
    bloom = to_hex(header.bloom.to_bytes(256, "big"))
    return {**first, **shown, "miner": checksum(header.coinbase), "logsBloom": bloom}


def transaction_json(header: Header | None, index: int | None, signed: Signed) -> dict[str, Any]:
    """Return a transaction; header and index are None while it is pending."""
    fees = {
        "maxFeePerGas": hex(signed.max_fee_per_gas),
        "maxPriorityFeePerGas": hex(signed.max_priority_fee_per_gas),
    }
    return {
        "hash": to_hex(signed.hash),
        "type": hex(signed.type_id or 0),
        "chainId": hex(signed.chain_id or 0),
        "nonce": hex(signed.nonce),
        "blockHash": None if header is None else to_hex(header.hash),
        "blockNumber": None if header is None else hex(header.block_number),
        "transactionIndex": None if index is None else hex(index),
        "from": checksum(bytes(signed.sender)),
        "to": checksum(bytes(signed.to)) if signed.to else None,
        "value": hex(signed.value),
        "gas": hex(signed.gas),
        "gasPrice": hex(signed.max_fee_per_gas if header is None else paid_price(header, signed)),
        **({} if signed.type_id == 1 else fees),  # access lists only (EIP-2930)
        "input": to_hex(signed.data),
        "accessList": [
            {
                "address": checksum(bytes(address)),
                "storageKeys": [to_hex(slot.to_bytes(32, "big")) for slot in slots],
            }
            for address, slots in signed.access_list
        ],
        "yParity": hex(signed.y_parity),
        "v": hex(signed.y_parity),
        "r": hex(signed.r),
        "s": hex(signed.s),
    }


def receipt_json(
    header: Header, index: int, signed: SignedTransaction, receipts: Sequence[reader.StoredReceipt]
) -> dict[str, Any]:
    """Return a transaction's receipt, given all receipts of its block."""
    raw, receipt = receipts[index], reader.port_receipt(header, index, signed, receipts)
    return {
        "transactionHash": to_hex(receipt.transaction_hash),
        "transactionIndex": hex(index),
        "blockHash": to_hex(header.hash),
        "blockNumber": hex(receipt.block_number),
        "from": checksum(bytes(signed.sender)),
        "to": checksum(bytes(signed.to)) if signed.to else None,
        "cumulativeGasUsed": hex(raw.gas_used),
        "gasUsed": hex(receipt.gas_used),
        "effectiveGasPrice": hex(paid_price(header, signed)),
        "contractAddress": receipt.contract_address,
        "logs": [wire.log_json(entry, index) for entry in receipt.logs],
        "logsBloom": to_hex(raw.bloom.to_bytes(256, "big")),
        "status": hex(receipt.status),
        "type": hex(signed.type_id or 0),
    }


def paid_price(header: Header, signed: Signed) -> int:
    """Return the price that a transaction paid per gas, in wei."""
    return min(base_fee(header) + signed.max_priority_fee_per_gas, signed.max_fee_per_gas)
