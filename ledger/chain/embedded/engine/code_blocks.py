"""Contract code as blocks of simple opcodes.

An opcode is simple if it works on stack, memory and program counter alone. What it costs beyond a
constant, for a longer memory or for each word, is charged when it is executed. A block is a run of
simple opcodes: it ends after a jump, before a jump destination, or before an opcode that py-evm
executes. No jump leads into its middle. So its constant gas, and the stack heights at which none of
its opcodes under- or overflows, are known in advance, and one check at its start replaces a check
for each opcode.

A block's steps are not its opcodes one by one: a constant that the next opcode takes is the
argument of that opcode's step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from eth.vm import opcode_values as op
from eth.vm.forks.prague.opcodes import PRAGUE_OPCODES

STACK_LIMIT = 1024
WORD_MASK = 2**256 - 1
_CACHED_CODES = 8

(
    PUSH,  # push the argument
    LOAD_AT,  # push the word at the argument, a slice of the memory
    DUP,  # push the item at the argument, a negative index
    STORE_AT,  # pop into the argument, a slice of the memory
    JUMP_IF_TO,  # jump to the argument if the popped item is not 0
    ADD,
    ADD_TO,  # add the argument to the top item
    STORE,
    DROP_SECOND,  # remove the item below the top
    UNARY,  # replace the top item by the argument, a function, of it
    BINARY,  # replace the two topmost items by the argument, a function, of them
    LOAD,
    POP,
    JUMP_TO,  # jump to the argument
    JUMP,
    JUMP_IF,
    SWAP,  # exchange the top item and the one at the argument, a negative index
    COPY,
    HASH,
) = range(19)
"""Kinds of steps, the most frequent first."""

_UNARY: dict[int, Callable[[int], int]] = {
    op.ISZERO: lambda value: int(not value),
    op.NOT: lambda value: value ^ WORD_MASK,
}
_BINARY: dict[int, Callable[[int, int], int]] = {
    op.ADD: lambda left, right: left + right & WORD_MASK,
    op.MUL: lambda left, right: left * right & WORD_MASK,
    op.SUB: lambda left, right: left - right & WORD_MASK,
    op.DIV: lambda left, right: left // right if right else 0,
    op.MOD: lambda left, right: left % right if right else 0,
    op.LT: lambda left, right: int(left < right),
    op.GT: lambda left, right: int(left > right),
    op.EQ: lambda left, right: int(left == right),
    op.AND: lambda left, right: left & right,
    op.OR: lambda left, right: left | right,
    op.XOR: lambda left, right: left ^ right,
    op.SHL: lambda left, right: right << left & WORD_MASK if left < 256 else 0,
    op.SHR: lambda left, right: right >> left if left < 256 else 0,
}
_PUSHES = range(op.PUSH0, op.PUSH32 + 1)
_DUPS = range(op.DUP1, op.DUP16 + 1)
_SWAPS = range(op.SWAP1, op.SWAP16 + 1)
_JUMPS = (op.JUMP, op.JUMPI)

_STACK_EFFECTS: dict[int, tuple[int, int]] = {
    **dict.fromkeys(_PUSHES, (0, 1)),
    **{opcode: (opcode - op.DUP1 + 1, opcode - op.DUP1 + 2) for opcode in _DUPS},
    **{opcode: (opcode - op.SWAP1 + 2, opcode - op.SWAP1 + 2) for opcode in _SWAPS},
    **dict.fromkeys(_UNARY, (1, 1)),
    **dict.fromkeys(_BINARY, (2, 1)),
    op.POP: (1, 0),
    op.MLOAD: (1, 1),
    op.MSTORE: (2, 0),
    op.JUMP: (1, 0),
    op.JUMPI: (2, 0),
    op.JUMPDEST: (0, 0),
    op.MCOPY: (3, 0),
    op.SHA3: (2, 1),
}
"""Items that each simple opcode takes from the stack and gives to it."""

Step = tuple[int, Any]
_NO_STEP: Step = (-1, None)


class Block(NamedTuple):
    """A run of simple opcodes.

    Attributes:
        gas: of all its opcodes, but for growth of the memory and words copied or hashed.
        least: stack height below which one of them underflows.
        most: stack height above which one of them overflows.
        memory: length of memory that its constant addresses touch, in bytes.
        following: the opcode at its end, if py-evm executes that; None if another block begins.
    """

    gas: int
    least: int
    most: int
    memory: int
    steps: tuple[Step, ...]
    end: int
    following: int | None


class DecodedCode:
    """Contract code, each block of which is decoded when it is first executed.

    Attributes:
        destinations: positions to which a jump may lead.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        self.blocks: dict[int, Block] = {}
        self.destinations = _jump_destinations(code)

    def block_at(self, start: int) -> Block:
        """Decode the block that begins at a position."""
        code, position, following = self._code, start, None
        gas = least = height = highest = memory = 0
        steps: list[Step] = []
        while True:
            # The code is followed by any number of STOP.
            opcode = code[position] if position < len(code) else op.STOP
            if opcode not in _STACK_EFFECTS:
                following = opcode
                break
            if opcode == op.JUMPDEST and position > start:
                break
            gas += PRAGUE_OPCODES[opcode].gas_cost  # type: ignore[attr-defined]
            taken, given = _STACK_EFFECTS[opcode]
            least = max(least, taken - height)
            height += given - taken
            highest = max(highest, height)
            position += 1
            if opcode in _PUSHES:
                size = opcode - op.PUSH0
                constant = code[position : position + size].ljust(size, b"\0")
                steps.append((PUSH, int.from_bytes(constant)))
                position += size
            elif opcode != op.JUMPDEST:
                memory = max(memory, self._append(steps, opcode))
            if opcode in _JUMPS:
                break
        block = Block(gas, least, STACK_LIMIT - highest, memory, tuple(steps), position, following)
        self.blocks[start] = block
        return block

    def _append(self, steps: list[Step], opcode: int) -> int:
        """Append an opcode's step; return the length of memory that it touches by a constant."""
        kind, last = steps[-1] if steps else _NO_STEP
        if kind == PUSH and opcode in {op.MLOAD, op.MSTORE}:
            steps[-1] = (LOAD_AT if opcode == op.MLOAD else STORE_AT, slice(last, last + 32))
            end: int = last + 32
            return end
        if kind == PUSH and opcode in _JUMPS and last in self.destinations:
            steps[-1] = (JUMP_TO if opcode == op.JUMP else JUMP_IF_TO, last)
        elif kind == PUSH and opcode == op.ADD:
            steps[-1] = (ADD_TO, last)
        elif kind == PUSH and opcode in _BINARY:
            steps[-1] = (UNARY, partial(_BINARY[opcode], last))
        elif (kind, last) == (SWAP, -2) and opcode == op.POP:
            steps[-1] = (DROP_SECOND, None)
        else:
            steps.append(_step(opcode))
        return 0


def _step(opcode: int) -> Step:
    if opcode in _DUPS:
        return DUP, op.DUP1 - opcode - 1
    if opcode in _SWAPS:
        return SWAP, op.SWAP1 - opcode - 2
    if opcode in _UNARY:
        return UNARY, _UNARY[opcode]
    kinds = {
        op.ADD: ADD,
        op.POP: POP,
        op.MLOAD: LOAD,
        op.MSTORE: STORE,
        op.JUMP: JUMP,
        op.JUMPI: JUMP_IF,
        op.MCOPY: COPY,
        op.SHA3: HASH,
    }
    return (kinds[opcode], None) if opcode in kinds else (BINARY, _BINARY[opcode])


def _jump_destinations(code: bytes) -> frozenset[int]:
    """Return the positions of all JUMPDEST that are no part of a constant."""
    destinations, position = [], 0
    while position < len(code):
        opcode = code[position]
        if opcode == op.JUMPDEST:
            destinations.append(position)
        # PUSH0 has no constant.
        position += 1 + (opcode - op.PUSH0 if opcode in _PUSHES else 0)
    return frozenset(destinations)


decoded = functools.lru_cache(_CACHED_CODES)(DecodedCode)
"""Return the decoded form of a contract's code, cached."""
