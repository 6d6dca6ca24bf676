"""The JSON-RPC forms of what the ports speak of, strictly read.

Both ends use this file: `reader.py` reads a node's answers with it, `served/` reads the requests
that the embedded chain serves. Whatever is not exactly what the specification says is an error
with a name, never a stray KeyError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import checksum
from ledger.chain.ports import Block, Log, NotServedError, Receipt, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

REVERTED = 3
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMETERS = -32602
INTERNAL_ERROR = -32603
NOT_JSON = -32700
SERVER_ERROR = -32000
LIMIT_EXCEEDED = -32005

_LONGEST_QUANTITY = 66


class MalformedAnswerError(NotServedError):
    """JSON that is not what the specification of Ethereum's JSON-RPC says."""


class RpcFault(NotServedError):  # noqa: N818 - "error" is the JSON member; this is the whole answer
    """An answer that is an error object.

    Attributes:
        code: its code.
        data: its data, as found.
        words: its message alone, in small letters: all that may be read for what it means.
    """

    def __init__(self, code: int, message: str, data: object = None, by: str = "") -> None:
        self.code = code
        self.data = data
        self.words = message.lower()
        super().__init__(f"{by}{message}")


def quantity(value: object) -> int:
    """Return a number from its JSON form, `0x` and hex digits.

    Args:
        value: as found in the JSON.

    Raises:
        MalformedAnswerError: it is no quantity of at most 256 bits.
    """
    if not isinstance(value, str) or not 3 <= len(value) <= _LONGEST_QUANTITY:
        raise MalformedAnswerError(f"not a quantity: {_shown(value)}")
    return int.from_bytes(_unhex(value, "a quantity"), "big")


def data(value: object, size: int | None = None) -> bytes:
    """Return bytes from their JSON form, `0x` and an even number of hex digits.

    Args:
        value: as found in the JSON.
        size: how many bytes are expected; None for any number.

    Raises:
        MalformedAnswerError: it is not, or of another size.
    """
    if not isinstance(value, str) or len(value) % 2:
        raise MalformedAnswerError(f"not bytes: {_shown(value)}")
    found = _unhex(value, "bytes")
    if size is not None and len(found) != size:
        raise MalformedAnswerError(f"{len(found)} bytes where {size} are expected")
    return found


def _unhex(value: str, what: str) -> bytes:
    digits = value[2:]
    # bytes.fromhex alone would skip blanks.
    if value[:2] not in {"0x", "0X"} or (not digits.isalnum() and digits):
        raise MalformedAnswerError(f"not {what}: {_shown(value)}")
    try:
        return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
    except ValueError as error:
        raise MalformedAnswerError(f"not {what}: {_shown(value)}") from error


def address(value: object) -> str:
    """Return an EIP-55 address from its JSON form.

    Args:
        value: as found in the JSON.
    """
    return checksum(data(value, 20))


def members(value: object) -> Mapping[str, Any]:
    """Return a JSON object.

    Args:
        value: as found in the JSON.

    Raises:
        MalformedAnswerError: it is something else.
    """
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"not an object: {_shown(value)}")
    return value


def items(value: object) -> list[Any]:
    """Return a JSON array.

    Args:
        value: as found in the JSON.

    Raises:
        MalformedAnswerError: it is something else.
    """
    if not isinstance(value, list):
        raise MalformedAnswerError(f"not an array: {_shown(value)}")
    return value


def block(value: object) -> Block:
    """Return a block from its JSON form.

    Args:
        value: as found in the JSON.
    """
    found = members(value)
    return Block(
        number=quantity(found.get("number")),
        hash=data(found.get("hash"), 32),
        parent_hash=data(found.get("parentHash"), 32),
        timestamp=quantity(found.get("timestamp")),
    )


def log(value: object) -> Log:
    """Return a log from its JSON form.

    Args:
        value: as found in the JSON.

    Raises:
        MalformedAnswerError: it is none, or none of the chain any more.
    """
    found = members(value)
    if found.get("removed") is True:
        raise MalformedAnswerError("a log that a reorganisation has taken back")
    return Log(
        address=address(found.get("address")),
        topics=tuple(data(topic, 32) for topic in items(found.get("topics"))),
        data=data(found.get("data")),
        block_number=quantity(found.get("blockNumber")),
        block_hash=data(found.get("blockHash"), 32),
        transaction_hash=data(found.get("transactionHash"), 32),
        log_index=quantity(found.get("logIndex")),
    )


def transaction(value: object) -> Transaction:
    """Return a transaction from its JSON form.

    Args:
        value: as found in the JSON.
    """
    found = members(value)
    to = found.get("to")
    return Transaction(
        hash=data(found.get("hash"), 32),
        sender=address(found.get("from")),
        to=None if to is None else address(to),
        input=data(found.get("input")),
        block_number=quantity(found.get("blockNumber")),
    )


def receipt(value: object) -> Receipt:
    """Return a receipt from its JSON form.

    Args:
        value: as found in the JSON.
    """
    found = members(value)
    created = found.get("contractAddress")
    return Receipt(
        transaction_hash=data(found.get("transactionHash"), 32),
        block_number=quantity(found.get("blockNumber")),
        status=quantity(found.get("status")),
        gas_used=quantity(found.get("gasUsed")),
        contract_address=None if created is None else address(created),
        logs=tuple(log(entry) for entry in items(found.get("logs"))),
    )


def log_json(entry: Log, index: int) -> dict[str, Any]:
    """Return the JSON form of a log of the embedded chain.

    Args:
        entry: the log.
        index: where in the block its transaction stands.
    """
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


def to_hex(value: bytes) -> str:
    """Return the JSON form of bytes.

    Args:
        value: any number of bytes.
    """
    return "0x" + value.hex()


def revert_data(fault: RpcFault) -> bytes | None:
    """Return what a call reverted with, as the various nodes tell it; None if it did not revert.

    Args:
        fault: the node's answer to the call.
    """
    found = fault.data.get("data") if isinstance(fault.data, dict) else fault.data
    if isinstance(found, str):
        try:
            return data(found.removeprefix("Reverted "))
        except MalformedAnswerError:
            found = None
    says_so = fault.code == REVERTED or "revert" in fault.words
    return b"" if says_so else None


def _shown(value: object) -> str:
    return repr(value)[:80]
