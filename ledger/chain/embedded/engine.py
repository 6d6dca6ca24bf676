"""A faster py-evm: opcodes in blocks, `ecrecover`, and reads and writes of tries.

An opcode is simple if it works on stack, memory and program counter alone. Its costs beyond a
constant, for a longer memory or for each word, are charged when it is executed. A block is a run of
simple opcodes: it ends after a jump, before a jump destination, or before an opcode that py-evm
executes. No jump leads into its middle. So its constant gas, and the stack heights without under-
or overflow, are known in advance, and one check at its start replaces all.

A constant that the next opcode takes is the argument of that opcode's step.

py-evm executes one opcode for each item of `computation.code`. The items of a `BlockStream` are
only the opcodes that are not simple; it executes the blocks between them
itself, on plain integers. If gas or stack do not suffice for a block, the message fails inside it,
and py-evm executes all remaining opcodes: it fails at the same one, for the same reason.

A node is named by the hash of its content, so a cached node is right for every block and trie. Only
reads of the state as the last block left it go through the cache, behind py-evm's journals. A block
writes by a trie of py-evm's that hashes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from eth import constants
from eth.db.account import AccountDB
from eth.db.batch import BatchDB
from eth.db.hash_trie import HashTrie
from eth.db.storage import StorageLookup
from eth.exceptions import InvalidInstruction, InvalidJumpDestination, OutOfGas
from eth.vm import opcode_values as op
from eth.vm.code_stream import CodeStream
from eth.vm.computation import BaseComputation, memory_gas_cost
from eth.vm.forks.berlin.constants import WARM_STORAGE_READ_COST
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.prague.opcodes import PRAGUE_OPCODES
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth.vm.logic.call import max_child_gas_eip150
from eth.vm.stack import to_int
from eth_typing import Address, Hash32
from trie import HexaryTrie  # type: ignore[attr-defined]
from trie.utils.nibbles import bytes_to_nibbles

from ledger.chain.embedded.chain_store import TrieNodes
from ledger.protocol.encoding import keccak
from ledger.protocol.signing import recovered

if TYPE_CHECKING:
    from eth import abc
    from eth.vm.gas_meter import GasMeter
    from eth.vm.memory import Memory


ECRECOVER = Address(bytes(19) + b"\x01")


def _ecrecover(data: bytes) -> bytes:
    """Return the signer's address as a word, or nothing, without the costly objects of eth-keys."""
    data = data[:128].ljust(128, b"\0")
    v = int.from_bytes(data[32:64])
    address = recovered(data[:32], data[64:] + bytes([v])) if v in {27, 28} else None
    return bytes(12) + address if address else b""


def static_call(computation: BaseComputation) -> None:
    """Execute STATICCALL, and `ecrecover` in it without a computation of its own.

    py-evm executes what may fail, and all calls while the account exists: a call of an empty
    account removes it.
    """
    stack: list[Any] = computation._stack.values  # type: ignore[attr-defined]
    memory, meter = computation._memory, computation._gas_meter
    operands = [to_int(item) for item in stack[:-7:-1]]
    if len(operands) == 6 and operands[1] == 1:
        limit, _, start, length, target, size = operands
        end = max(start + length if length else 0, target + size if size else 0, len(memory))
        left = meter.gas_remaining - _growth_gas(len(memory), end) - WARM_STORAGE_READ_COST
        is_paid = min(limit, max_child_gas_eip150(left)) >= constants.GAS_ECRECOVER
        is_shallow = computation.msg.depth < constants.STACK_DEPTH_LIMIT
        if is_paid and is_shallow and not computation.state.account_exists(ECRECOVER):
            del stack[-6:]
            memory.extend(0, end)
            meter.gas_remaining = left - constants.GAS_ECRECOVER
            computation.return_data = _ecrecover(memory.read_bytes(start, length))
            returned = computation.return_data[:size]
            memory.write(target, len(returned), returned)
            stack.append(1)
            return
    PRAGUE_OPCODES[op.STATICCALL](computation)


WORD_MASK = 2**256 - 1

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


class OpcodeBlock(NamedTuple):
    """A run of simple opcodes."""

    gas: int  # of all its opcodes, but for growth of the memory and words copied or hashed
    least: int  # stack height below which one of them underflows
    most: int  # stack height above which one of them overflows
    memory: int  # bytes of memory that its constant addresses touch
    steps: tuple[Step, ...]
    end: int
    following: int | None  # the opcode at its end, if py-evm executes that


class DecodedCode:
    """Contract code; each block is decoded when it is first executed."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self.blocks: dict[int, OpcodeBlock] = {}
        # Positions of all JUMPDEST that are no part of a constant: jumps may lead there.
        destinations, position = [], 0
        while position < len(code):
            opcode = code[position]
            if opcode == op.JUMPDEST:
                destinations.append(position)
            # PUSH0 has no constant.
            position += 1 + (opcode - op.PUSH0 if opcode in _PUSHES else 0)
        self.destinations = frozenset(destinations)

    def block_at(self, start: int) -> OpcodeBlock:
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
        block = OpcodeBlock(gas, least, 1024 - highest, memory, tuple(steps), position, following)
        self.blocks[start] = block
        return block

    def _append(self, steps: list[Step], opcode: int) -> int:
        """Append an opcode's step; return the length of memory that it touches by a constant."""
        kind, last = steps[-1] if steps else (-1, 0)
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


decoded = lru_cache(8)(DecodedCode)


class FastComputation(PragueComputation):
    """Prague's execution by the faster loop, unless opcodes are logged or the code is too long."""

    _fast_opcodes: dict[int, Any] = PRAGUE_OPCODES | {op.STATICCALL: static_call}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if not self.logger.show_debug2 and len(self.msg.code) <= MAX_INITCODE_SIZE:
            self.code, self.opcodes = BlockStream(self), self._fast_opcodes


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
        position, gas, memory = self.program_counter, self._meter.gas_remaining, self._memory._bytes
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
                memory = self._memory._bytes
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
                        memory = self._memory._bytes
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
                        memory = self._memory._bytes
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
                    gas = self._charged(max(target, start), length, gas, constants.GAS_COPY)
                    memory = self._memory._bytes
                    memory[target : target + length] = memory[start : start + length]
                else:  # HASH
                    start, length = pop(), pop()
                    gas = self._charged(start, length, gas, constants.GAS_SHA3WORD)
                    memory = self._memory._bytes
                    append(word_of(keccak(memory[start : start + length])))
            if following is None:
                continue
            self.program_counter, self._meter.gas_remaining = position + 1, gas
            yield following
            position, gas = self.program_counter, self._meter.gas_remaining
            memory = self._memory._bytes
            if stack and isinstance(stack[-1], bytes):  # no opcode pushes more than one item
                stack[-1] = word_of(stack[-1])

    def _charged(self, start: int, length: int, gas: int, word_gas: int = 0) -> int:
        """Return the remaining gas after the memory has grown to contain a range.

        The constant costs are paid before: if the rest is too little, all of it was for both.
        """
        cost = word_gas * ((length + 31) // 32)
        end = start + length if length else 0
        if end > len(self._memory):
            cost += _growth_gas(len(self._memory), end)
        if cost > gas:
            raise OutOfGas(f"{length} bytes of memory at {start} cost {cost} gas; {gas} remain")
        self._memory.extend(0, end)
        return gas - cost

    def _refusal(self, target: int) -> Exception:
        code = self._raw_code_bytes
        if target < len(code) and code[target] == op.JUMPDEST:
            return InvalidInstruction(f"jump into a constant, at {target}")
        return InvalidJumpDestination(f"no jump destination at {target}")


def _growth_gas(length: int, new_length: int) -> int:
    return memory_gas_cost(new_length) - memory_gas_cost(length)


class LazyTrie(HexaryTrie):
    """A trie over a batch: changed nodes are hashed once, when the root is asked for."""

    _hash: bytes | None

    def __init__(self, nodes: TrieNodes, batch: BatchDB, root_hash: bytes) -> None:
        super().__init__(batch, root_hash)
        self._nodes = nodes

    @property
    def root_hash(self) -> bytes:
        if self._hash is None:
            self.db.clear()
            top = self._stored(self._top)
            self._hash = bytes(top if len(top) == 32 else self._set_raw_node(top))
        return self._hash

    @root_hash.setter
    def root_hash(self, root_hash: bytes) -> None:
        self._top: Any = root_hash
        self._hash = root_hash

    def get(self, key: bytes) -> bytes:
        is_changed = isinstance(self._top, list)
        return bytes(super().get(key)) if is_changed else self._nodes.value(self._top, key)

    def set(self, key: bytes, value: bytes) -> None:
        path = bytes_to_nibbles(key)
        try:
            top = self.get_node(self._top)
            self._top = self._set(top, path, value) if value else self._delete(top, path)
        except KeyError as error:
            self._raise_missing_node(error, key)
        self._hash = None

    def delete(self, key: bytes) -> None:
        self.set(key, b"")

    def squash_changes(self) -> Any:
        """Return this trie: a change that fails ends the block, and its state."""
        return nullcontext(self)

    def _persist_node(self, node: Any) -> Any:
        return node

    def _stored(self, node: Any) -> Any:
        """Store a changed node and its inner nodes; return what a parent holds of it."""
        if not isinstance(node, list):
            return node
        return super()._persist_node([self._stored(item) for item in node])


class FastAccountDB(AccountDB):
    """py-evm's accounts over the faster tries."""

    def __init__(
        self, db: abc.AtomicDatabaseAPI, state_root: Hash32 = constants.BLANK_ROOT_HASH
    ) -> None:
        super().__init__(db, state_root)
        self._nodes: TrieNodes = getattr(db, "nodes", None) or TrieNodes(db)
        trie = LazyTrie(self._nodes, self._batchtrie, state_root)
        self._trie = self._trie_logger.wrapped_db = HashTrie(trie)  # type: ignore[arg-type]

    def _get_address_store(self, address: Address) -> Any:
        is_new = address not in self._account_stores
        store: Any = super()._get_address_store(address)
        if is_new:
            slots = _Slots(self._raw_store_db, self._get_storage_root(address), address)
            slots.nodes = self._nodes
            store._storage_lookup = store._storage_cache._db = slots
        return store


class _Slots(StorageLookup):
    nodes: TrieNodes

    def _get_read_trie(self) -> HexaryTrie:
        if self.has_changed_root:
            return self._write_trie
        batch = BatchDB(self._db, read_through_deletes=True)
        return LazyTrie(self.nodes, batch, self._starting_root_hash)

    def _get_write_trie(self) -> HexaryTrie:
        self._write_trie = self._get_read_trie()
        self._trie_nodes_batch = self._write_trie.db
        return self._write_trie
