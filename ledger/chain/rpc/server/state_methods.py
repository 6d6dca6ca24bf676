"""Methods that show accounts and contracts, and that run calls without recording them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eth.exceptions import Revert

from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_tags import number_of, requested_number

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.rpc.server.block_methods import Methods
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

_NOBODY = "0x" + "00" * 20
_MOST_ANSWERS_KEPT = 256
_LARGEST_KEPT_BYTES = 4096


class StateMethods:
    """Answers about the state after a block.

    What is called may take as long as a whole block's gas lasts. So it runs in a view of its own,
    and nobody else waits for it. Small answers are kept: a block's state never changes.

    Args:
        chain: the chain.
        pool: transactions that wait for a block; None where none waits.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedReader, pool: TransactionPool | None = None) -> None:
        self._chain = chain
        self._pool = pool
        self._answers = _Answers()
        self.table: Methods = {
            "eth_getBalance": lambda who, at=None: hex(self._account(who, at)[1]),
            "eth_getTransactionCount": self._count,
            "eth_getCode": self._code,
            "eth_getStorageAt": self._storage,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate,
        }

    def _count(self, who: object, at: object = None) -> str:
        waiting = 0
        if self._pool is not None and at == "pending":
            waiting = self._pool.next_nonce(wire.address(who))
        return hex(max(waiting, self._account(who, at)[0]))

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
        # All who follow a contract ask the same of each block, and nothing here is taken back.
        number = None if isinstance(at, dict) else requested_number(at)
        answer = None if number is None else self._answers.get((number, asked))
        if answer is None:
            number, answer = self._executed(asked, at)
            self._answers.keep((number, asked), answer)
        if answer.is_reverted:
            raise TransactionRevertedError(answer.output)
        return wire.to_hex(answer.output)

    def _executed(self, asked: _Call, at: object) -> tuple[int, _Answer]:
        """Return the number of the block after which a call was run, and what it came to.

        Raises:
            RpcFault: it failed without an answer.
        """
        with self._chain.snapshot() as still:
            found = number_of(still, at)
            number = still.head().number if found is None else found
            done = still.execute(
                asked.to, asked.data, number, sender=asked.sender, gas=asked.gas, value=asked.value
            )
        is_reverted = isinstance(done.is_error and done.error, Revert)
        if done.is_error and not is_reverted:
            raise wire.RpcFault(wire.SERVER_ERROR, f"execution failed: {done.error!r}"[:200])
        return number, _Answer(bytes(done.output), is_reverted)

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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a call came to."""

    output: bytes
    is_reverted: bool


class _Answers:
    """The answers that were given last, by block and call. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, _Call], _Answer] = OrderedDict()

    def get(self, place: tuple[int, _Call]) -> _Answer | None:
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
            return self._kept.get(place)

    def keep(self, place: tuple[int, _Call], answer: _Answer) -> None:
        if len(place[1].data) + len(answer.output) > _LARGEST_KEPT_BYTES:
            return
        with self._lock:
            self._kept[place] = answer
            while len(self._kept) > _MOST_ANSWERS_KEPT:
                self._kept.popitem(last=False)


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
