"""JSON-RPC methods for accounts, contracts, and calls that are not recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eth.exceptions import Revert

from ledger.chain.embedded.call_answers import CallAnswer, CallAnswers
from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_tags import number_of, requested_number

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.rpc.server.block_methods import Methods
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

_ZERO_ADDRESS = "0x" + "00" * 20


class StateMethods:
    """Methods about the state after a block.

    A call may take as long as a full block's gas. It runs in a separate snapshot, so other
    requests do not wait. Small answers are cached: a block's state never changes.

    Args:
        chain: the chain.
        pool: pending transactions; None if each transaction is mined at once.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedReader, pool: TransactionPool | None = None) -> None:
        self._chain = chain
        self._pool = pool
        self._answers = CallAnswers()
        self.table: Methods = {
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": self._count,
            "eth_getCode": self._code,
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
        }

    def _count(self, who: object, at: object = None) -> str:
        pending = 0
        if self._pool is not None and at == "pending":
            pending = self._pool.next_nonce(wire.address(who))
        return hex(max(pending, self._account(who, at)[0]))

    def _account(self, who: object, at: object) -> tuple[int, int]:
        return self._chain.account(wire.address(who), number_of(self._chain, at))

    def _code(self, who: object, at: object = None) -> str:
        return wire.to_hex(self._chain.code(wire.address(who), number_of(self._chain, at)))

    def _storage(self, who: object, slot: object, at: object = None) -> str:
        number = number_of(self._chain, at)
        word = self._chain.storage(wire.address(who), wire.quantity(slot), number)
        return wire.to_hex(word.to_bytes(32, "big"))

    def _call(self, request: object, at: object = None) -> str:
        call = _read_call(request)
        # All followers of a contract make the same call for each block, and blocks are final here.
        number = None if isinstance(at, dict) else requested_number(at)
        answer = None if number is None else self._answers.get((number, call))
        if answer is None:
            number, answer = self._executed(call, at)
            self._answers.put((number, call), call.data, answer)
        if answer.is_reverted:
            raise TransactionRevertedError(answer.output)
        return wire.to_hex(answer.output)

    def _executed(self, call: _Call, at: object) -> tuple[int, CallAnswer]:
        """Run a call; return the number of its block, and the answer.

        Raises:
            RpcFault: it failed without an answer.
        """
        with self._chain.snapshot() as snapshot:
            requested = number_of(snapshot, at)
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
