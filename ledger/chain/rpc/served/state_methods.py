"""Methods that show accounts and contracts, and that run calls without recording them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eth.exceptions import Revert

from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.served.tags import number_of

if TYPE_CHECKING:
    from ledger.chain.embedded.reader import EmbeddedReader
    from ledger.chain.rpc.served.block_methods import Methods

_NOBODY = "0x" + "00" * 20


class StateMethods:
    """Answers about the state after a block.

    What is called may take as long as a whole block's gas lasts. So it runs in a view of its own,
    and nobody else waits for it.

    Args:
        chain: the chain.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedReader) -> None:
        self._chain = chain
        self.table: Methods = {
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": lambda who, at=None: hex(self._account(who, at)[0]),
            "eth_getCode": self._code,
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
        }

    def _account(self, who: object, at: object) -> tuple[int, int]:
        return self._chain.account(wire.address(who), number_of(self._chain, at))

    def _code(self, who: object, at: object = None) -> str:
        return wire.to_hex(self._chain.code(wire.address(who), number_of(self._chain, at)))

    def _storage(self, who: object, slot: object, at: object = None) -> str:
        number = number_of(self._chain, at)
        word = self._chain.storage(wire.address(who), wire.quantity(slot), number)
        return wire.to_hex(word.to_bytes(32, "big"))

    def _call(self, request: object, at: object = None) -> str:
        asked = _read_call(request)
        with self._chain.snapshot() as still:
            number = number_of(still, at)
            done = still.execute(
                asked.to, asked.data, number, sender=asked.sender, gas=asked.gas, value=asked.value
            )
        if isinstance(done.is_error and done.error, Revert):
            raise TransactionRevertedError(bytes(done.output))
        if done.is_error:
            raise wire.RpcFault(wire.SERVER_ERROR, f"execution failed: {done.error!r}"[:200])
        return wire.to_hex(bytes(done.output))

    def _estimate(self, request: object, at: object = None) -> str:  # noqa: ARG002 - at the head
        asked = _read_call(request)
        owned = self._chain.account(asked.sender)[1]
        if asked.value > owned:
            raise wire.RpcFault(
                wire.SERVER_ERROR,
                f"insufficient funds for transfer: address {asked.sender} have {owned} "
                f"want {asked.value}",
            )
        with self._chain.snapshot() as still:
            return hex(
                still.estimate_gas(asked.to, asked.data, sender=asked.sender, value=asked.value)
            )


@dataclass(frozen=True, slots=True)
class _Call:
    """What `eth_call` and `eth_estimateGas` are asked to run."""

    to: str | None
    data: bytes
    sender: str
    gas: int | None
    value: int


def _read_call(request: object) -> _Call:
    asked = wire.members(request)
    to, gas = asked.get("to"), asked.get("gas")
    return _Call(
        to=wire.address(to) if to else None,
        data=wire.data(asked.get("input") or asked.get("data") or "0x"),
        sender=wire.address(asked.get("from") or _NOBODY),
        gas=None if gas is None else wire.quantity(gas),
        value=wire.quantity(asked.get("value") or "0x0"),
    )
