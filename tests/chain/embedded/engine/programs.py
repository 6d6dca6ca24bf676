"""Programs for the EVM, and what comes of one with py-evm's own parts and with the faster ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eth.vm import opcode_values as op
from eth.vm.forks.prague.opcodes import PRAGUE_OPCODES
from eth.vm.forks.spurious_dragon._utils import collect_touched_accounts
from eth.vm.message import Message
from eth.vm.stack import to_int
from eth_typing import Address
from hypothesis import strategies as st

from ledger.chain.embedded import evm
from ledger.chain.embedded.engine import ECRECOVER
from ledger.protocol.encoding import to_canonical

if TYPE_CHECKING:
    from eth.abc import ComputationAPI, StateAPI

    from ledger.chain.embedded.embedded_chain import EmbeddedChain

SLOTS = 40  # slots of the contract as which programs run: slot n holds n, but for every fourth
SENDER = Address(bytes([7]) * 20)

EDGES = (
    *(0, 1, 2, 4, 27, 31, 32, 33, 63, 64, 96, 255, 256, 257, 1023, 1024, 4096, 70_000),
    *(2**31, 2**64 - 1, 2**64, 2**160 - 1, 2**255 - 1, 2**255, 2**256 - 32, 2**256 - 1),
)


def push(value: int, size: int | None = None) -> bytes:
    size = (value.bit_length() + 7) // 8 if size is None else size
    return bytes([op.PUSH0 + size]) + value.to_bytes(size)


@dataclass
class Program:
    """Code with labels."""

    parts: list[bytes | tuple[str, int]] = field(default_factory=list)

    def code(self) -> bytes:
        """Return the code; a label that is nowhere is an invalid position."""
        at, position = {}, 0
        for part in self.parts:
            if not isinstance(part, bytes) and part[0] == "label":
                at[part[1]] = position
            position += _size(part)
        return b"".join(
            part
            if isinstance(part, bytes)
            else bytes([op.JUMPDEST])
            if part[0] == "label"
            else push(at.get(part[1], position), 2)
            for part in self.parts
        )


def _size(part: bytes | tuple[str, int]) -> int:
    return len(part) if isinstance(part, bytes) else {"label": 1, "to": 3}[part[0]]


numbers = st.one_of(
    st.sampled_from(EDGES), st.integers(0, 300), st.integers(0, 2**256 - 1), st.integers(0, 6)
)
_pushes = st.one_of(
    numbers.map(push), st.tuples(numbers, st.just(32)).map(lambda pair: push(*pair))
)
_opcodes = st.sampled_from(sorted(PRAGUE_OPCODES)).map(lambda opcode: bytes([opcode]))
_any_byte = st.binary(min_size=1, max_size=1)
_stored = st.tuples(numbers, st.integers(0, 200)).map(
    lambda pair: push(pair[0]) + push(pair[1]) + bytes([op.MSTORE])
)
_loaded = st.integers(0, 200).map(lambda start: push(start) + bytes([op.MLOAD]))
_slots = st.tuples(numbers, st.integers(0, SLOTS + 3), st.sampled_from([op.SSTORE, op.TSTORE])).map(
    lambda parts: push(parts[0]) + push(parts[1]) + bytes([parts[2]])
)
_read_slots = st.integers(0, SLOTS + 3).map(lambda slot: push(slot) + bytes([op.SLOAD]))


def call(opcode: int, to: int, gas: int, value: int, sizes: tuple[int, int, int, int]) -> bytes:
    arguments = [*reversed(sizes), *([value] if opcode in {op.CALL, op.CALLCODE} else []), to, gas]
    return b"".join(push(argument) for argument in arguments) + bytes([opcode])


_short = st.integers(0, 130)
OTHER = 0xC0DE
_calls = st.builds(
    call,
    st.sampled_from([op.CALL, op.CALLCODE, op.DELEGATECALL, op.STATICCALL]),
    st.sampled_from([1, 1, 2, 3, 4, 5, 9, OTHER, 0xDEAD]),
    st.sampled_from([0, 700, 3_000, 5_000, 2**64]),
    st.sampled_from([0, 0, 0, 1]),
    st.tuples(_short, _short, _short, _short),
)
_labels = st.integers(0, 5)
_jumps = st.tuples(_labels, st.sampled_from([op.JUMP, op.JUMPI])).map(
    lambda pair: [("to", pair[0]), bytes([pair[1]])]
)
_parts = st.one_of(
    st.one_of(_pushes, _opcodes, _stored, _loaded, _slots, _read_slots, _calls, _any_byte).map(
        lambda code: [code]
    ),
    _opcodes.map(lambda code: [code]),
    _jumps,
    _labels.map(lambda label: [("label", label)]),
)


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Draw a program: items on the stack first, so that most opcodes find their operands."""
    first = draw(st.lists(numbers, max_size=20))
    parts: list[Any] = [push(number) for number in first]
    for more in draw(st.lists(_parts, max_size=25)):
        parts += more
    return Program(parts).code()


class Arena:
    """A contract with storage, as which programs run on both machines."""

    def __init__(self, chain: EmbeddedChain) -> None:
        stored = b"".join(
            push(slot) + push(slot) + bytes([op.SSTORE]) for slot in range(SLOTS) if slot % 4
        )
        # It returns one byte of code: STOP.
        address = chain.send(None, stored + bytes.fromhex("6001 5f f3"), 3_000_000).contract_address
        assert address is not None
        self.contract = to_canonical(address)
        self.chain = chain
        self._machines: dict[bool, StateAPI] = {}

    def state(self, *, is_reference: bool) -> StateAPI:
        """Return the chain's state, as a machine sees it that has executed nothing."""
        if is_reference not in self._machines:
            self._machines[is_reference] = self._machine(is_reference=is_reference)
        before: Any = self._machines[is_reference]
        # What a program does stays with its state: none writes to what they all read.
        state: StateAPI = type(before)(before._db, before.execution_context, before.state_root)
        return state

    def _machine(self, *, is_reference: bool) -> StateAPI:
        kind = evm.chain_class(self.chain.chain_id, is_reference=is_reference)
        state = kind(evm.OverlayDatabase(self.chain._store)).get_vm().state
        # A contract that a program may call: it stores, and returns or reverts by its input.
        state.set_code(
            Address(OTHER.to_bytes(20)),
            bytes.fromhex("5f35 5f55 5f35 5f52 5f35 6010 57 6020 5f f3 00 5b 6020 5f fd"),
        )
        state.set_balance(Address(self.contract), 2)
        state.persist()
        return state

    def message(self, code: bytes, gas: int, **options: Any) -> Message:
        return Message(
            gas=gas,
            to=self.contract,
            sender=SENDER,
            value=0,
            code=code,
            **{"data": b""} | options,
        )

    def outcome(
        self, code: bytes, gas: int, *, is_reference: bool, **options: Any
    ) -> dict[str, Any]:
        """Return everything that a program does, with a name for each difference."""
        state = self.state(is_reference=is_reference)
        message = self.message(code, gas, **options)
        context = state.get_transaction_context_class()(gas_price=1, origin=SENDER)
        computation = state.computation_class.apply_message(state, message, context)
        for account in collect_touched_accounts(computation):  # as at a transaction's end
            if state.account_exists(account) and state.account_is_empty(account):
                state.delete_account(account)
        return described(computation) | {
            "state root": state._account_db.make_state_root(),  # type: ignore[attr-defined]
            "kept": int.from_bytes(state.get_transient_storage(self.contract, 1)),  # "" is 0
        }

    def compare(self, code: bytes, gas: int, **options: Any) -> dict[str, Any]:
        """Return the outcome, which is that of py-evm's own parts; options are a message's."""
        expected = self.outcome(code, gas, is_reference=True, **options)
        assert self.outcome(code, gas, is_reference=False, **options) == expected
        return expected

    def gas_at_each_step(self, code: bytes, gas: int) -> list[int]:
        """Return the gas that is used before each opcode of a program, and at its end."""
        state = self.state(is_reference=True)
        used: list[int] = []
        kind = type("Traced", (state.computation_class,), {"opcodes": _traced(state, used)})
        context = state.get_transaction_context_class()(gas_price=1, origin=SENDER)
        computation = kind.apply_message(state, self.message(code, gas), context)  # type: ignore[attr-defined]
        return [*used, computation.get_gas_used()]


def _traced(state: StateAPI, used: list[int]) -> dict[int, Any]:
    def traced(function: Any) -> Any:
        def run(computation: ComputationAPI) -> None:
            if computation.msg.depth == 0:
                used.append(computation.get_gas_used())
            function(computation=computation)

        return run

    return {
        opcode: traced(function) for opcode, function in state.computation_class.opcodes.items()
    }


def described(computation: ComputationAPI) -> dict[str, Any]:
    """Return what a message has done, as far as anybody can see it."""
    error = computation.error if computation.is_error else None
    seen: dict[str, Any] = {
        "error": type(error),
        "gas left": computation.get_gas_remaining(),
        "gas used": computation.get_gas_used(),
        "refund": computation.get_gas_refund(),
        "output": bytes(computation.output),
        "return data": bytes(computation.return_data),
        "logs": computation.get_raw_log_entries(),
        "deleted": sorted(computation.get_accounts_for_deletion()),
        # The faster machine makes none for an `ecrecover` that cannot fail.
        "children": [
            described(child)
            for child in computation.children
            if child.is_error or child.msg.code_address != ECRECOVER
        ],
    }
    if error is None:
        values: Iterable[Any] = computation._stack.values  # type: ignore[attr-defined]
        seen["stack"] = [to_int(value) for value in values]
        seen["memory"] = bytes(computation._memory._bytes)  # type: ignore[attr-defined]
    return seen


def looped(body: bytes, count: int) -> bytes:
    """Return a program that runs code a number of times, its counter at memory address 0."""
    begin = push(count) + push(0) + bytes([op.MSTORE, op.JUMPDEST])
    position = len(begin) - 1
    rest = push(0) + bytes([op.MLOAD]) + push(1) + bytes([op.SWAP1, op.SUB, op.DUP1]) + push(0)
    return begin + body + rest + bytes([op.MSTORE]) + push(position, 2) + bytes([op.JUMPI])
