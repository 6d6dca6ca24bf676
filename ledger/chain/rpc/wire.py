"""JSON-RPC over HTTP, with strict parsers and writers of its values, and fees (EIP-1559).

`node.py` parses a node's answers with it, `methods.py` the requests to the embedded chain.
Anything that differs from the specification raises a named error, never a stray KeyError.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ledger.chain import ports
from ledger.io.http import HttpFailureError, HttpServer, ResponseTooLargeError
from ledger.io.parsing import parse_json
from ledger.protocol.encoding import checksum, to_hex
from ledger.protocol.errors import ChainError

REVERTED = 3
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMETERS = -32602
INTERNAL_ERROR = -32603
NOT_JSON = -32700
SERVER_ERROR = -32000
LIMIT_EXCEEDED = -32005


class MalformedAnswerError(ports.NotServedError):
    """JSON that breaks the specification of Ethereum's JSON-RPC."""


class RpcFault(ports.NotServedError):
    """A JSON-RPC error object."""

    def __init__(self, code: int, message: str, data: object = None, by: str = "") -> None:
        self.code = code
        self.data = data
        self.words = message.lower()
        super().__init__(f"{by}{message}")


HEADER = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot"),
    *("logsBloom", "difficulty", "number", "gasLimit", "gasUsed", "timestamp", "extraData"),
    *("mixHash", "nonce", "baseFeePerGas", "withdrawalsRoot", "blobGasUsed", "excessBlobGas"),
    *("parentBeaconBlockRoot", "requestsHash"),
)
"""Names of a header's fields, in the order of its encoding."""


def quantity(value: object) -> int:
    """Return a number from `0x` and hex digits."""
    if not isinstance(value, str) or not 3 <= len(value) <= 66:
        raise MalformedAnswerError(f"not a quantity: {_shown(value)}")
    return int.from_bytes(_unhex(value, "a quantity"), "big")


def place(value: object) -> int:
    """Return the number of a block or log, which SQLite can hold."""
    number = quantity(value)
    if number >= 2**63:
        raise MalformedAnswerError(f"not a place in a chain: {_shown(value)}")
    return number


def data(value: object, size: int | None = None) -> bytes:
    """Return bytes from `0x` and an even number of hex digits, of a given size if there is one."""
    if not isinstance(value, str) or len(value) % 2:
        raise MalformedAnswerError(f"not bytes: {_shown(value)}")
    content = _unhex(value, "bytes")
    if size is not None and len(content) != size:
        raise MalformedAnswerError(f"{len(content)} bytes where {size} are expected")
    return content


def _unhex(value: str, kind: str) -> bytes:
    digits = value[2:]
    # bytes.fromhex would skip blanks.
    if value[:2] not in {"0x", "0X"} or (not digits.isalnum() and digits):
        raise MalformedAnswerError(f"not {kind}: {_shown(value)}")
    try:
        return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
    except ValueError as error:
        raise MalformedAnswerError(f"not {kind}: {_shown(value)}") from error


def address(value: object) -> str:
    """Return an EIP-55 address."""
    return checksum(data(value, 20))


def members(value: object) -> Mapping[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"not an object: {_shown(value)}")
    return value


def flag(value: object) -> bool:
    """Return a JSON boolean."""
    if not isinstance(value, bool):
        raise MalformedAnswerError(f"neither true nor false: {_shown(value)}")
    return value


def items(value: object) -> list[Any]:
    """Return a JSON array."""
    if not isinstance(value, list):
        raise MalformedAnswerError(f"not an array: {_shown(value)}")
    return value


def block(value: object) -> ports.Block:
    """Return a block from its JSON form."""
    fields = members(value)
    return ports.Block(
        number=place(fields.get("number")),
        hash=data(fields.get("hash"), 32),
        parent_hash=data(fields.get("parentHash"), 32),
        timestamp=quantity(fields.get("timestamp")),
    )


def log(value: object) -> ports.Log:
    """Return a log from its JSON form."""
    fields = members(value)
    if fields.get("removed") is True:
        raise MalformedAnswerError("a log that a reorganisation reverted")
    return ports.Log(
        address=address(fields.get("address")),
        topics=tuple(data(topic, 32) for topic in items(fields.get("topics"))),
        data=data(fields.get("data")),
        block_number=place(fields.get("blockNumber")),
        block_hash=data(fields.get("blockHash"), 32),
        transaction_hash=data(fields.get("transactionHash"), 32),
        log_index=place(fields.get("logIndex")),
    )


def transaction(value: object) -> ports.Transaction:
    """Return a transaction from its JSON form."""
    fields = members(value)
    to = fields.get("to")
    return ports.Transaction(
        hash=data(fields.get("hash"), 32),
        sender=address(fields.get("from")),
        to=None if to is None else address(to),
        input=data(fields.get("input")),
        block_number=place(fields.get("blockNumber")),
        nonce=quantity(fields.get("nonce")),
    )


def receipt(value: object) -> ports.Receipt:
    """Return a receipt from its JSON form."""
    fields = members(value)
    contract = fields.get("contractAddress")
    return ports.Receipt(
        transaction_hash=data(fields.get("transactionHash"), 32),
        block_number=place(fields.get("blockNumber")),
        status=quantity(fields.get("status")),
        gas_used=quantity(fields.get("gasUsed")),
        contract_address=None if contract is None else address(contract),
        logs=tuple(log(entry) for entry in items(fields.get("logs"))),
    )


def log_json(entry: ports.Log, index: int) -> dict[str, Any]:
    """Return the JSON form of a log, given its transaction's index in the block."""
    return {
        "address": entry.address,
        "topics": [to_hex(topic) for topic in entry.topics],
        "data": to_hex(entry.data),
        "blockNumber": hex(entry.block_number),
        "blockHash": to_hex(entry.block_hash),
        "transactionHash": to_hex(entry.transaction_hash),
        "transactionIndex": hex(index),
        "logIndex": hex(entry.log_index),
        "removed": False,
    }


def revert_data(fault: RpcFault) -> bytes | None:
    """Return a call's revert data, in the forms of the various nodes; None if it did not revert."""
    payload = fault.data.get("data") if isinstance(fault.data, dict) else fault.data
    if isinstance(payload, str):
        try:
            return data(payload.removeprefix("Reverted "))
        except MalformedAnswerError:
            payload = None
    is_revert = fault.code == REVERTED or "revert" in fault.words
    return b"" if is_revert else None


def _shown(value: object) -> str:
    return repr(value)[:80]


_LONGEST_MESSAGE = 200


class AnswerTooLargeError(ports.NotServedError):
    """The node's answer exceeds the size limit."""


class MomentaryFailureError(ports.ChainUnreachableError):
    """No complete answer, or a server error: a retry may succeed, after the requested pause."""

    def __init__(self, message: str, retry_after_seconds: int = 0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class HttpTransport:
    """A connection to one node, shown without parts that may be secret; safe to share."""

    def __init__(self, url: str, timeout_seconds: float, max_bytes: int) -> None:
        try:
            self._server = HttpServer(url, timeout_seconds)
        except ValueError as error:
            raise ChainError(f"the node's URL: {error}") from None
        self.shown_url = self._server.shown_url
        self._most_bytes = max_bytes
        self._identifiers = itertools.count()

    def ask(self, method: str, *parameters: object) -> Any:
        """Return the result of one request; raise RpcFault if the node answers with an error."""
        request = {"jsonrpc": "2.0", "method": method, "params": parameters}
        body = self._post(json.dumps(request | {"id": next(self._identifiers)}).encode())
        by = f"{self.shown_url}: {method}: "
        try:
            answer = parse_json(body)
        except ValueError as error:
            raise MalformedAnswerError(f"{by}the answer is not JSON") from error
        if not isinstance(answer, dict) or not answer.keys() & {"result", "error"}:
            raise MalformedAnswerError(f"{by}the answer has neither result nor error")
        if (fault := answer.get("error")) is not None:
            detail = fault if isinstance(fault, dict) else {"message": fault}
            code = detail.get("code")
            raise RpcFault(
                code if isinstance(code, int) else SERVER_ERROR,
                str(detail.get("message"))[:_LONGEST_MESSAGE],
                detail.get("data"),
                by,
            )
        if "result" not in answer:
            raise MalformedAnswerError(f"{by}the answer is empty")
        return answer["result"]

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            answer = self._server.post("", body, headers, self._most_bytes)
        except ResponseTooLargeError as error:
            raise AnswerTooLargeError(str(error)) from None
        except HttpFailureError as error:
            raise MomentaryFailureError(str(error)) from None
        status = f"{self.shown_url}: answers with HTTP status {answer.status}"
        # Whatever the body: gateways and rate limiters answer in JSON too, and not for the chain.
        is_fault = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_fault or answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise MomentaryFailureError(
                f"{status}{_message_in(answer.body)}", answer.retry_after_seconds
            )
        # Some nodes send JSON errors with a 4xx status.
        if answer.status != HTTPStatus.OK and not answer.body.lstrip().startswith(b"{"):
            raise ports.ChainUnreachableError(status)
        return answer.body

    def close(self) -> None:
        self._server.close()


def _message_in(body: bytes) -> str:
    try:
        error = parse_json(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError):
        return ""
    return f": {message[:_LONGEST_MESSAGE]}" if isinstance(message, str) and message else ""


# Nodes accept a replacement that pays a tenth more; an eighth is more after any rounding.
_BUMP_PARTS = 8


@dataclass(frozen=True, slots=True)
class Fees:
    """Fees of a transaction, or a sender's upper limits of them, in wei per gas."""

    fee: int
    tip: int


def new_fees(base_fee: int, tip: int, caps: Fees) -> Fees | None:
    """Return the fees of a new transaction; None if gas costs more than the caps allow.

    A replacement has to raise both fees, the tip too where only the base fee has risen. A new
    transaction's tip therefore stays an eighth below its cap: at the cap it could never be
    replaced, and would block all later transactions of the account.
    """
    capped_tip = min(tip, caps.tip * _BUMP_PARTS // (_BUMP_PARTS + 1))
    if base_fee + capped_tip > caps.fee:
        return None
    # Twice the base fee stays valid for six consecutive full blocks.
    return Fees(min(2 * base_fee + capped_tip, caps.fee), capped_tip)


def replacement_fees(before: Fees, market: Fees | None, caps: Fees) -> Fees | None:
    """Return the fees of a replacement, given the fees of a new one; None beyond the caps."""
    fee, tip = (paid + max(1, -(-paid // _BUMP_PARTS)) for paid in (before.fee, before.tip))
    if market is not None:
        fee, tip = max(fee, market.fee), max(tip, market.tip)
    fee = max(fee, tip)
    return Fees(fee, tip) if fee <= caps.fee and tip <= caps.tip else None
