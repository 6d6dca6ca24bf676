"""A faster opcode loop for py-evm, with the same results.

py-evm executes one opcode for each item of `computation.code`. The items of a `BlockStream` are
only the opcodes that are not simple (see `code_blocks`); it executes the blocks between them
itself, on plain integers. If gas or stack do not suffice for a block, the message fails inside it,
and all its remaining opcodes are left to py-evm: it fails at the same one, for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eth.constants import GAS_COPY, GAS_SHA3WORD
from eth.exceptions import InvalidInstruction, InvalidJumpDestination, OutOfGas
from eth.vm.code_stream import CodeStream
from eth.vm.computation import memory_gas_cost
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth.vm.opcode_values import JUMPDEST

from ledger.chain.embedded.engine.code_blocks import (
    ADD,
    ADD_TO,
    BINARY,
    COPY,
    DROP_SECOND,
    DUP,
    JUMP,
    JUMP_IF,
    JUMP_IF_TO,
    JUMP_TO,
    LOAD,
    LOAD_AT,
    POP,
    PUSH,
    STORE,
    STORE_AT,
    SWAP,
    UNARY,
    WORD_MASK,
    decoded,
)
from ledger.chain.embedded.engine.ecrecover import PRECOMPILES
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth.abc import MessageAPI, StateAPI, TransactionContextAPI
    from eth.vm.gas_meter import GasMeter
    from eth.vm.memory import Memory


class FastComputation(PragueComputation):
    """Prague's execution of a message, with the faster loop unless each opcode is to be logged.

    Nor is code decoded that is longer than a transaction's may be: a call can bring any.
    """

    _precompiles = PRECOMPILES

    def __init__(
        self, state: StateAPI, message: MessageAPI, transaction_context: TransactionContextAPI
    ) -> None:
        super().__init__(state, message, transaction_context)
        if not self.logger.show_debug2 and len(message.code) <= MAX_INITCODE_SIZE:
            self.code = BlockStream(self)


class BlockStream(CodeStream):
    """The opcodes of a message that py-evm executes; iterating executes those between them."""

    __slots__ = ("_memory", "_meter", "_stack")

    def __init__(self, computation: FastComputation) -> None:
        super().__init__(computation.msg.code)
        # Not the computation itself: the two would form a reference cycle.
        self._stack: list[Any] = computation._stack.values  # type: ignore[attr-defined]
        self._memory: Memory = computation._memory  # type: ignore[assignment]
        self._meter: GasMeter = computation._gas_meter  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:  # noqa: PLR0912, PLR0915 - a kind of step each
        """Yield each opcode that is not simple when its turn comes, before a STOP at the latest."""
        code = decoded(self._raw_code_bytes)
        blocks, destinations = code.blocks, code.destinations
        stack = self._stack  # of integers here, while py-evm also pushes bytes
        append, pop, word_of = stack.append, stack.pop, int.from_bytes
        position, gas, memory = self.program_counter, self._meter.gas_remaining, self._bytes
        while True:
            block = blocks.get(position) or code.block_at(position)
            block_gas, least, most, touched, steps, end, following = block
            if touched > len(memory):
                block_gas += _growth_gas(len(memory), touched)
            if block_gas > gas or not least <= len(stack) <= most:
                self.program_counter, self._meter.gas_remaining = position, gas
                yield from super().__iter__()
                return
            if touched > len(memory):
                self._memory.extend(0, touched)
                memory = self._bytes
            gas -= block_gas
            position = end
            for step, argument in steps:
                if step == PUSH:
                    append(argument)
                elif step == LOAD_AT:
                    append(word_of(memory[argument]))  # type: ignore[arg-type]
                elif step == DUP:
                    append(stack[argument])
                elif step == STORE_AT:
                    memory[argument] = pop().to_bytes(32)
                elif step == JUMP_IF_TO:
                    if pop():
                        position = argument
                elif step == ADD:
                    value = pop()
                    stack[-1] = stack[-1] + value & WORD_MASK
                elif step == ADD_TO:
                    stack[-1] = stack[-1] + argument & WORD_MASK
                elif step == STORE:
                    start = pop()
                    if start + 32 > len(memory):
                        gas = self._charged(start, 32, gas)
                        memory = self._bytes
                    memory[start : start + 32] = pop().to_bytes(32)
                elif step == DROP_SECOND:
                    del stack[-2]
                elif step == UNARY:
                    stack[-1] = argument(stack[-1])
                elif step == BINARY:
                    value = pop()
                    stack[-1] = argument(value, stack[-1])
                elif step == LOAD:
                    start = stack[-1]
                    if start + 32 > len(memory):
                        gas = self._charged(start, 32, gas)
                        memory = self._bytes
                    stack[-1] = word_of(memory[start : start + 32])
                elif step == POP:
                    pop()
                elif step == JUMP_TO:
                    position = argument
                elif step == JUMP:
                    position = pop()
                    if position not in destinations:
                        raise self._refusal(position)
                elif step == JUMP_IF:
                    target = pop()
                    if pop():
                        if target not in destinations:
                            raise self._refusal(target)
                        position = target
                elif step == SWAP:
                    stack[-1], stack[argument] = stack[argument], stack[-1]
                elif step == COPY:
                    target, start, length = pop(), pop(), pop()
                    gas = self._charged(max(target, start), length, gas, GAS_COPY)
                    memory = self._bytes
                    memory[target : target + length] = memory[start : start + length]
                else:  # HASH
                    start, length = pop(), pop()
                    gas = self._charged(start, length, gas, GAS_SHA3WORD)
                    memory = self._bytes
                    append(word_of(keccak(memory[start : start + length])))
            if following is None:
                continue
            self.program_counter, self._meter.gas_remaining = position + 1, gas
            yield following
            position, gas, memory = self.program_counter, self._meter.gas_remaining, self._bytes
            if stack and isinstance(stack[-1], bytes):  # no opcode pushes more than one item
                stack[-1] = word_of(stack[-1])

    @property
    def _bytes(self) -> bytearray:
        return self._memory._bytes

    def _charged(self, start: int, length: int, gas: int, word_gas: int = 0) -> int:
        """Return the gas that is left after the memory has grown to contain a range.

        The block's constant costs are paid already: if the rest does not suffice, all of it would
        not have sufficed for them and this.
        """
        cost = word_gas * ((length + 31) // 32)
        end = start + length if length else 0
        if end > len(self._memory):
            cost += _growth_gas(len(self._memory), end)
        if cost > gas:
            raise OutOfGas(f"{length} bytes of memory at {start} cost {cost} gas, {gas} are left")
        self._memory.extend(0, end)
        return gas - cost

    def _refusal(self, target: int) -> Exception:
        code = self._raw_code_bytes
        if target < len(code) and code[target] == JUMPDEST:
            return InvalidInstruction(f"jump into a constant, at {target}")
        return InvalidJumpDestination(f"no jump destination at {target}")


def _growth_gas(length: int, new_length: int) -> int:
    return memory_gas_cost(new_length) - memory_gas_cost(length)
