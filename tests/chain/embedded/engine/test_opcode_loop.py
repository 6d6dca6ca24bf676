"""The faster opcode loop does what py-evm's own loop does, to the last unit of gas."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from eth.exceptions import (
    FullStack,
    InsufficientStack,
    InvalidInstruction,
    InvalidJumpDestination,
    OutOfGas,
    Revert,
)
from eth.vm import opcode_values as op
from eth.vm.code_stream import CodeStream
from eth.vm.forks.prague.opcodes import PRAGUE_OPCODES
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.chain.embedded.engine import BlockStream, FastComputation
from tests.chain.embedded.engine.programs import EDGES, SENDER, Arena, looped, programs, push
from tests.faults import times

# py-evm says so of SELFDESTRUCT whenever it executes one.
pytestmark = pytest.mark.filterwarnings("ignore:SELFDESTRUCT:DeprecationWarning")

GAS = 60_000
ONE_OF_EACH = [opcode for opcode in sorted(PRAGUE_OPCODES) if opcode != op.JUMPDEST]


class TestPencilExamples:
    def test_a_sum_is_stored_and_returned(self, arena: Arena) -> None:
        code = push(2) + push(40) + bytes.fromhex("01 5f52 6020 5f f3")
        seen = arena.compare(code, GAS)
        assert seen["output"] == (42).to_bytes(32)
        # Five pushes, of which two of nothing cost 2 each, ADD, MSTORE, and one word of memory.
        assert seen["gas used"] == 3 * 3 + 2 * 2 + 3 + 3 + 3

    @pytest.mark.parametrize(
        ("code", "error"),
        [
            ("01", InsufficientStack),
            ("5f 80 81 82 83 84 85 86 87 88 89 8b", InsufficientStack),
            ("5f 91", InsufficientStack),
            ("5f 56", InvalidJumpDestination),
            ("61 ffff 56", InvalidJumpDestination),
            ("6001 61 ffff 57", InvalidJumpDestination),
            ("6001 56 5b", InvalidJumpDestination),
            ("6004 56 60 5b", InvalidInstruction),
            ("6001 6006 57 60 5b", InvalidInstruction),
            ("5b 5f 5f 56", FullStack),
            ("5b 80 5f 5f 57", InsufficientStack),
            ("0c", InvalidInstruction),
            ("fe", InvalidInstruction),
            ("7f" + "ff" * 32 + "51", OutOfGas),
            ("5f 7f" + "ff" * 32 + "52", OutOfGas),
            ("5f 62 ffffff 01 51", OutOfGas),
            ("5f 5f 62 ffffff 01 52", OutOfGas),
            ("6001 5f fd", Revert),
        ],
    )
    def test_it_fails_as_py_evm_does(self, arena: Arena, code: str, error: type[Exception]) -> None:
        assert arena.compare(bytes.fromhex(code), GAS)["error"] is error

    def test_the_stack_holds_1024_items(self, arena: Arena) -> None:
        endings = ("", "50", "80", "5f", "01", "90", "5f 50", "80 01")
        for pushed, then in itertools.product(
            (1022, 1023, 1024, 1025), map(bytes.fromhex, endings)
        ):
            arena.compare(bytes([op.PUSH0]) * pushed + then, GAS)
            arena.compare(bytes([op.PUSH0]) * (pushed - 1) + b"\x5b\x5f" + then, GAS)


@pytest.mark.parametrize("opcode", [op.MLOAD, op.MSTORE, op.MCOPY, op.SHA3])
def test_memory_grows_by_whole_words(arena: Arena, opcode: int) -> None:
    starts = (0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97)
    edges = list(itertools.product(starts, (0, 1, 32, 33), (0, 1, 97)))[:: times(7, 1)]
    for start, length, other in edges:
        # A copy of the address that is no constant for the decoder.
        address = push(start) + bytes([op.DUP1, op.POP])
        operands = push(length) + push(other) + address
        code = push(2**256 - 1) + push(0x40) + bytes([op.MSTORE]) + operands + bytes([opcode])
        seen = arena.compare(code, GAS)
        arena.compare(code, seen["gas used"] - 1)
        arena.compare(push(length) + address + push(other) + bytes([opcode, op.MSIZE]), GAS)


# `make faults` takes all edges.
@pytest.mark.parametrize("group", range(8))
def test_every_opcode_takes_the_edges_of_every_operand(arena: Arena, group: int) -> None:
    pairs = list(itertools.product(EDGES, repeat=2))
    for opcode in ONE_OF_EACH[group::8]:
        some = pairs[opcode % 29 :: times(29, 1)]
        # All in one program, each pair below another item; then alone: it may end the program.
        many = b"".join(push(b) + push(a) + bytes([opcode]) for a, b in some)
        arena.compare(many, 2_000_000)
        compare_alone(arena, opcode, some[:: times(37, 3)])


def compare_alone(arena: Arena, opcode: int, pairs: list[tuple[int, ...]]) -> None:
    for a, b in pairs:
        below = b"".join(push(value) for value in (1, 2, 3, a, b, a, b))
        arena.compare(below + push(b) + push(a) + bytes([opcode]) + push(1), GAS)
        arena.compare(push(b, 32) + push(a, 32) + bytes([opcode]), GAS, is_static=True)


@settings(max_examples=times(120, 20_000), deadline=None)
@given(
    code=programs(),
    gas=st.one_of(st.just(GAS), st.integers(0, 5_000)),
    data=st.binary(max_size=70),
    is_static=st.booleans(),
)
@example(code=looped(push(3) + bytes([op.POP]), 300), gas=GAS, data=b"", is_static=False)
@example(code=bytes.fromhex("5f 6001 5d"), gas=GAS, data=b"", is_static=False)
def test_random_programs_have_the_same_outcome(
    arena: Arena, code: bytes, gas: int, data: bytes, is_static: bool
) -> None:
    arena.compare(code, gas, data=data, is_static=is_static)


@settings(max_examples=times(12, 1_000), deadline=None)
@given(code=programs())
@example(code=looped(bytes.fromhex("5f 54 6020 52"), 3))
def test_gas_that_ends_at_any_step_has_the_same_outcome(arena: Arena, code: bytes) -> None:
    steps = arena.gas_at_each_step(code, 20_000)
    for used in sorted(set(steps))[:: times(4, 1)]:
        for gas in {max(used - 1, 0), used, used + 1}:
            arena.compare(code, gas)


@settings(max_examples=times(40, 2_000), deadline=None)
@given(code=programs(), creates=st.sampled_from([op.CREATE, op.CREATE2]))
def test_code_that_creates_a_contract_has_the_same_outcome(
    arena: Arena, code: bytes, creates: int
) -> None:
    length = min(len(code), 96)
    words = [code[start : start + 32].ljust(32, b"\0") for start in range(0, length, 32)]
    stored = b"".join(
        push(int.from_bytes(word), 32) + push(32 * number) + bytes([op.MSTORE])
        for number, word in enumerate(words)
    )
    arguments = push(7) + push(length) + push(0) + push(0)
    arena.compare(stored + arguments + bytes([creates]) + push(0) + bytes([op.SLOAD]), 200_000)


def test_py_evms_own_loop_runs_long_code_and_where_opcodes_are_logged(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream(code: bytes = push(1)) -> type[object]:
        state = arena.state(is_reference=False)
        context = state.get_transaction_context_class()(gas_price=1, origin=SENDER)
        message = arena.message(code, GAS)
        return type(FastComputation(state, message, context).code)

    assert stream() is BlockStream
    assert stream(bytes(MAX_INITCODE_SIZE)) is BlockStream
    assert stream(bytes(MAX_INITCODE_SIZE + 1)) is CodeStream
    monkeypatch.setattr(FastComputation, "logger", SimpleNamespace(show_debug2=True))
    assert stream() is CodeStream
