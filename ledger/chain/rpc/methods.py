"""The embedded chain's JSON-RPC methods: an allow-list, answered as a node would.

`provider.py` puts them under web3 in this process, `server.py` puts them on loopback for
others. Nothing here signs: the keys stay with the clients.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from eth.exceptions import Revert

from ledger.chain.embedded.chain import EmbeddedChain
from ledger.chain.embedded.evm_values import base_fee
from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eth.abc import BlockHeaderAPI, SignedTransactionAPI

    from ledger.chain.embedded.reader import EmbeddedReader
    from ledger.chain.ports import Log

_MOST_BLOCKS_AT_ONCE = 1000
_NAMED_HEADS = (None, "latest", "pending", "safe", "finalized")
_NO_UNCLES = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"


class RpcMethods:
    """Answers JSON-RPC requests from an embedded chain.

    Args:
        chain: the chain; one opened for reading takes no transactions.
        most_logs: how many logs one `eth_getLogs` may return, as public nodes limit it.
    """

    def __init__(self, chain: EmbeddedReader, most_logs: int = 10_000) -> None:
        self._chain = chain
        self._most_logs = most_logs
        self._methods: dict[str, Callable[..., object]] = {
            "web3_clientVersion": lambda: "cmfl-ledger/py-evm",
            "net_version": lambda: str(chain.chain_id),
            "net_listening": lambda: True,
            "eth_chainId": lambda: hex(chain.chain_id),
            "eth_syncing": lambda: False,
            "eth_accounts": list,
            "eth_blockNumber": lambda: hex(chain.head().number),
            "eth_gasPrice": lambda: hex(base_fee(chain.header())),
            "eth_maxPriorityFeePerGas": lambda: "0x0",
            "eth_getBlockByNumber": self._block_by_number,
            "eth_getBlockByHash": self._block_by_hash,
            "eth_getTransactionByHash": self._transaction,
            "eth_getTransactionReceipt": self._receipt,
            "eth_getLogs": self._logs,
            "eth_getCode": self._code,
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": lambda who, at=None: hex(self._account(who, at)[0]),
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
        }
        if isinstance(chain, EmbeddedChain):
            self._methods["eth_sendRawTransaction"] = lambda raw: wire.to_hex(
                chain.submit(wire.data(raw))
            )
            self._methods["evm_mine"] = lambda blocks="0x1": self._mine(chain, blocks)

    def answer(self, request: object) -> dict[str, Any]:
        """Return the answer to one request, whatever it is.

        Args:
            request: decoded JSON.

        Returns:
            An object with `result` or with `error`.
        """
        identifier = request.get("id") if isinstance(request, dict) else None
        envelope: dict[str, Any] = {"jsonrpc": "2.0", "id": identifier}
        try:
            return {**envelope, "result": self._result(request)}
        except TransactionRevertedError as error:
            fault = wire.RpcFault(wire.REVERTED, "execution reverted", wire.to_hex(error.data))
        except wire.RpcFault as error:
            fault = error
        except wire.MalformedAnswerError as error:
            fault = wire.RpcFault(wire.INVALID_PARAMETERS, str(error))
        except ChainError as error:
            fault = wire.RpcFault(wire.SERVER_ERROR, str(error))
        shown = {"code": fault.code, "message": str(fault)}
        return {**envelope, "error": shown if fault.data is None else {**shown, "data": fault.data}}

    def _result(self, request: object) -> object:
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            raise wire.RpcFault(wire.INVALID_REQUEST, "not a JSON-RPC request")
        method = self._methods.get(request["method"])
        if method is None:
            name = request["method"][:60]
            raise wire.RpcFault(wire.UNKNOWN_METHOD, f"the method {name} does not exist")
        parameters = wire.items(request.get("params", []))
        try:
            bound = inspect.signature(method).bind(*parameters)
        except TypeError as error:
            raise wire.RpcFault(
                wire.INVALID_PARAMETERS, f"{request['method']} takes other parameters"
            ) from error
        return method(*bound.args)

    def _number(self, tag: object) -> int | None:
        if tag in _NAMED_HEADS:
            return None
        if tag == "earliest":
            return 0
        if isinstance(tag, dict):  # EIP-1898
            if "blockHash" not in tag:
                return self._number(tag.get("blockNumber"))
            number = self._chain.block_number_of(wire.data(tag["blockHash"], 32))
            if number is None:
                raise wire.RpcFault(wire.SERVER_ERROR, "no such block")
            return number
        return wire.quantity(tag)

    def _account(self, who: object, at: object) -> tuple[int, int]:
        return self._chain.account(wire.address(who), self._number(at))

    def _code(self, who: object, at: object = None) -> str:
        return wire.to_hex(self._chain.code(wire.address(who), self._number(at)))

    def _storage(self, who: object, slot: object, at: object = None) -> str:
        word = self._chain.storage(wire.address(who), wire.quantity(slot), self._number(at))
        return wire.to_hex(word.to_bytes(32, "big"))

    def _call(self, request: object, at: object = None) -> str:
        to, data, sender, gas = _read_call(request)
        done = self._chain.execute(to, data, self._number(at), sender=sender, gas=gas)
        if isinstance(done.is_error and done.error, Revert):
            raise TransactionRevertedError(bytes(done.output))
        if done.is_error:
            raise wire.RpcFault(wire.SERVER_ERROR, f"execution failed: {done.error!r}"[:200])
        return wire.to_hex(bytes(done.output))

    def _estimate(self, request: object, at: object = None) -> str:  # noqa: ARG002 - at the head
        to, data, sender, _ = _read_call(request)
        return hex(self._chain.estimate_gas(to, data, sender=sender))

    def _mine(self, chain: EmbeddedChain, blocks: object) -> str:
        number = wire.quantity(blocks)
        if number > _MOST_BLOCKS_AT_ONCE:
            raise wire.RpcFault(
                wire.LIMIT_EXCEEDED, f"at most {_MOST_BLOCKS_AT_ONCE} blocks at once"
            )
        chain.mine(number)
        return "0x0"

    def _block_by_number(self, tag: object, whole: object = False) -> object:
        number = self._number(tag)
        if number is not None and number > self._chain.head().number:
            return None
        return self._block(self._chain.header(number), whole=whole is True)

    def _block_by_hash(self, block_hash: object, whole: object = False) -> object:
        number = self._chain.block_number_of(wire.data(block_hash, 32))
        if number is None:
            return None
        return self._block(self._chain.header(number), whole=whole is True)

    def _block(self, header: BlockHeaderAPI, *, whole: bool) -> dict[str, Any]:
        held = self._chain.transactions(header)
        return {
            "number": hex(header.block_number),
            "hash": wire.to_hex(header.hash),
            "parentHash": wire.to_hex(header.parent_hash),
            "timestamp": hex(header.timestamp),
            "miner": wire.to_hex(header.coinbase),
            "stateRoot": wire.to_hex(header.state_root),
            "transactionsRoot": wire.to_hex(header.transaction_root),
            "receiptsRoot": wire.to_hex(header.receipt_root),
            "logsBloom": wire.to_hex(header.bloom.to_bytes(256, "big")),
            "gasLimit": hex(header.gas_limit),
            "gasUsed": hex(header.gas_used),
            "baseFeePerGas": hex(base_fee(header)),
            "extraData": wire.to_hex(header.extra_data),
            "mixHash": wire.to_hex(header.mix_hash),
            "nonce": wire.to_hex(header.nonce),
            "difficulty": hex(header.difficulty),
            "sha3Uncles": _NO_UNCLES,
            "uncles": [],
            "transactions": [
                _transaction_json(header, index, signed) if whole else wire.to_hex(signed.hash)
                for index, signed in enumerate(held)
            ],
        }

    def _transaction(self, transaction_hash: object) -> object:
        found = self._chain.find(wire.data(transaction_hash, 32))
        return None if found is None else _transaction_json(*found)

    def _receipt(self, transaction_hash: object) -> object:
        found = self._chain.find(wire.data(transaction_hash, 32))
        receipt = self._chain.receipt(wire.data(transaction_hash, 32))
        if found is None or receipt is None:
            return None
        header, index, signed = found
        raw = self._chain.receipts(header)[index]
        return {
            "transactionHash": wire.to_hex(receipt.transaction_hash),
            "transactionIndex": hex(index),
            "blockHash": wire.to_hex(header.hash),
            "blockNumber": hex(receipt.block_number),
            "from": wire.to_hex(signed.sender),
            "to": wire.to_hex(signed.to) if signed.to else None,
            "cumulativeGasUsed": hex(raw.gas_used),
            "gasUsed": hex(receipt.gas_used),
            "effectiveGasPrice": hex(_paid_price(header, signed)),
            "contractAddress": receipt.contract_address,
            "logs": [wire.log_json(entry) for entry in receipt.logs],
            "logsBloom": wire.to_hex(raw.bloom.to_bytes(256, "big")),
            "status": hex(receipt.status),
            "type": hex(signed.type_id or 0),
        }

    def _logs(self, request: object) -> list[dict[str, Any]]:
        asked = wire.members(request)
        first, last = self._range(asked)
        topics = [_read_topics(position) for position in wire.items(asked.get("topics") or [])]
        addresses = asked.get("address")
        found: list[Log] = []
        for one in addresses if isinstance(addresses, list) else [addresses]:
            contract = None if one is None else wire.address(one)
            found += self._chain.logs(contract, topics, first, last, self._most_logs + 1)
        if len(found) > self._most_logs:
            raise wire.RpcFault(
                wire.LIMIT_EXCEEDED, f"query returned more than {self._most_logs} results"
            )
        found.sort(key=lambda entry: (entry.block_number, entry.log_index))
        return [wire.log_json(entry) for entry in found]

    def _range(self, asked: Any) -> tuple[int, int]:
        if "blockHash" in asked:
            number = self._number({"blockHash": asked["blockHash"]})
            return number or 0, number or 0
        bounds = [self._number(asked.get(name)) for name in ("fromBlock", "toBlock")]
        head = self._chain.head().number
        first, last = (head if number is None else number for number in bounds)
        return first, last


def _read_call(request: object) -> tuple[str | None, bytes, str, int | None]:
    asked = wire.members(request)
    if wire.quantity(asked.get("value") or "0x0"):
        raise wire.RpcFault(wire.INVALID_PARAMETERS, "no value can be sent here")
    to, gas = asked.get("to"), asked.get("gas")
    return (
        wire.address(to) if to else None,
        wire.data(asked.get("input") or asked.get("data") or "0x"),
        wire.address(asked.get("from") or "0x" + "00" * 20),
        None if gas is None else wire.quantity(gas),
    )


def _read_topics(position: object) -> bytes | Sequence[bytes] | None:
    if position is None:
        return None
    if isinstance(position, list):
        return [wire.data(topic, 32) for topic in position] or None
    return wire.data(position, 32)


def _paid_price(header: BlockHeaderAPI, signed: SignedTransactionAPI) -> int:
    return min(base_fee(header) + signed.max_priority_fee_per_gas, signed.max_fee_per_gas)


def _transaction_json(
    header: BlockHeaderAPI, index: int, signed: SignedTransactionAPI
) -> dict[str, Any]:
    return {
        "hash": wire.to_hex(signed.hash),
        "nonce": hex(signed.nonce),
        "blockHash": wire.to_hex(header.hash),
        "blockNumber": hex(header.block_number),
        "transactionIndex": hex(index),
        "from": wire.to_hex(signed.sender),
        "to": wire.to_hex(signed.to) if signed.to else None,
        "value": hex(signed.value),
        "gas": hex(signed.gas),
        "gasPrice": hex(_paid_price(header, signed)),
        "maxFeePerGas": hex(signed.max_fee_per_gas),
        "maxPriorityFeePerGas": hex(signed.max_priority_fee_per_gas),
        "input": wire.to_hex(signed.data),
        "chainId": hex(signed.chain_id or 0),
        "type": hex(signed.type_id or 0),
        "accessList": [
            {
                "address": wire.to_hex(address),
                "storageKeys": [wire.to_hex(slot.to_bytes(32, "big")) for slot in slots],
            }
            for address, slots in signed.access_list
        ],
        "yParity": hex(signed.y_parity),
        "v": hex(signed.y_parity),
        "r": hex(signed.r),
        "s": hex(signed.s),
    }
