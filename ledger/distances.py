"""The fastest distances and server step of this installation, used by members and auditors.

They are compiled where the extra `fast` is installed and the machine allows it, else computed by
NumPy in blocks that stay in the processor's cache. Compiled server steps have the same bytes as
NumPy's. Distances differ by far less than any verdict tolerates. A Gram matrix would be faster, but
loses the distances of nearly equal updates.

Compiled code adds the squared differences of all pairs of a tile, 4 by 4 or 2 by 2 updates, in
vectors of eight float64 that stay in registers. Its result is fixed to the last bit by IEEE 754 and
by the order written here: differences of exact float64 numbers, fused multiply-add, no
reassociation. A pair therefore has the same bytes in any tile, with any other updates, and on any
processor with a fused multiply-add. Each core takes one range of numbers after another; the ranges
do not depend on the number of cores, and their sums are added in order.

LLVM comes through `llvmlite`, whose wheels need no compiler, unlike an extension in C. Numba takes
a third of a second to import and a second to compile; these loops take a tenth and write nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.io.extras import install_command
from ledger.protocol.rules import distance
from ledger.protocol.rules.direction import compared
from ledger.protocol.types import ClientId

T = TypeVar("T")
Matrix = NDArray[np.float64]  # shape (members, clients)


class PairSquares(Protocol):
    """Squared distances between one round's updates and the members' among them."""

    def squares(self, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates to the members', each divided by its norm."""

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""


def distances_by(
    squares_of: Callable[[Sequence[NDArray[np.float32]], Sequence[int]], PairSquares],
) -> distance.Distances:
    """Return a function that computes all distances of a round from updates and members' rows.

    Each update is contiguous. The function equals `plain_distances` within each rule's tolerance,
    and calls it for users' own rules, updates that are not float32 vectors, and empty rounds.
    Updates of different lengths are a ValueError.
    """

    def distances(
        rule: distance.DistanceRule,
        travel: distance.Travel,
        updates: distance.Updates,
        members: Sequence[ClientId],
    ) -> Matrix:
        clients = sorted(updates)
        rows = [updates[client] for client in clients]
        if rule == distance.DIRECTION and travel is not None and travel.any():
            rows.append(travel)  # one row more: all pairs with it come from the same stream
        is_composed = (
            rule in {distance.SQUARED, distance.DIRECTION} and bool(clients) and bool(members)
        )
        if not is_composed or not all(map(is_vector, rows)):
            return distance.plain_distances(rule, travel, updates, members)
        if len({row.shape for row in rows}) > 1:
            raise ValueError("the updates differ in length")
        among = [np.ascontiguousarray(row) for row in rows]
        if rule == distance.SQUARED:
            row_of = {client: row for row, client in enumerate(clients)}
            return squares_of(among, [row_of[member] for member in members]).squares()
        computed = _directions(squares_of(among, range(len(among))), len(clients))
        return np.tile(computed, (len(members), 1))

    return distances


def _directions(among: PairSquares, count: int) -> NDArray[np.float64]:
    """Return strategy III's distance of each update; a row behind the updates is the travel."""
    norms = among.norms()
    # A zero update is divided by 1: it has no direction, and its squares are not used.
    squares = among.squares(np.where(norms == 0, 1.0, norms))
    rows = np.flatnonzero(norms[:count])
    from_travel = squares[-1, rows] if len(norms) > count else None
    return compared(norms[:count], squares[np.ix_(rows, rows)], from_travel).distances


def is_vector(row: NDArray[np.float32]) -> bool:
    """Return whether compiled loops read an array once it is contiguous: a float32 vector."""
    return row.dtype == np.float32 and row.dtype.isnative and row.ndim == 1 and len(row) > 0


_NUMPY_BLOCK = 8_192  # numbers of an update in one sum; the sums are added in order


@dataclass(frozen=True, slots=True)
class BlockedSquares:
    """The squares in NumPy; a pair's bytes do not depend on the other updates."""

    updates: Sequence[NDArray[np.float32]]
    members: Sequence[int]

    def squares(self, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        count, rows = len(self.updates), sorted(set(self.members))
        # Of two members a pair is computed once: a - b and b - a have equal squares.
        pairs = [
            (row, one) for row in rows for one in range(count) if one not in rows or one >= row
        ]
        sums = np.zeros((count, count))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(norms):
                delta = np.empty(block.shape[1])
                for row, one in pairs:
                    np.subtract(block[one], block[row], out=delta)
                    sums[row, one] += np.dot(delta, delta)
        among = np.ix_(rows, rows)
        sums[among] += sums[among].T
        return sums[list(self.members)]

    def norms(self) -> NDArray[np.float64]:
        sums = np.zeros(len(self.updates))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(None):
                sums += [np.dot(row, row) for row in block]
        return np.sqrt(sums)

    def _blocks(self, norms: NDArray[np.float64] | None) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(self.updates[0]), _NUMPY_BLOCK):
            parts = [update[start : start + _NUMPY_BLOCK] for update in self.updates]
            block = np.array(parts, dtype=np.float64)
            yield block if norms is None else block / norms[:, None]


def fast_distances(threads: int = 1) -> distance.Distances:
    """Return a function equal to `plain_distances` on any threads; its first call compiles."""
    if threads < 1:
        raise ValueError(f"distances on {threads} threads")

    def squares_of(updates: Sequence[NDArray[np.float32]], members: Sequence[int]) -> PairSquares:
        code = machine_code()
        if code is None:
            return BlockedSquares(updates, members)
        return StreamedSquares(code, threads, updates, members)

    return distances_by(squares_of)


def fast_server_step(threads: int = 1) -> distance.ServerStep:
    """Return a function with the bytes of `plain_server_step`, on any number of threads."""

    def step(
        model: distance.Vector,
        updates: Sequence[distance.Vector],
        weights: Sequence[float],
        rate: float,
    ) -> distance.Vector:
        code, rows = machine_code(), [np.ascontiguousarray(update) for update in updates]
        if code is None or not all(map(is_vector, rows)):
            return distance.plain_server_step(model, updates, weights, rate)
        if {row.shape for row in rows} != {model.shape} or len(weights) != len(rows):
            raise ValueError("the model, the updates or their weights differ in length")
        addresses = np.array([row.ctypes.data for row in rows], dtype=np.uintp)
        factors, result = np.array(weights, dtype=np.float64), np.empty(model.shape, np.float32)
        given = addresses.ctypes.data, factors.ctypes.data, len(rows)

        def step_over(start: int, stop: int) -> None:
            total = np.zeros(stop - start)
            code.add_products(*given, start, len(total), total.ctypes.data)
            result[start:stop] = distance.moved(model[start:stop], rate, total)

        list(_mapped(step_over, len(model), threads))
        return result

    return step


def fallback_reason() -> str:
    """Return why distances are computed in NumPy here; empty if they are compiled."""
    return _attempted()[1]


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


LANES = 8  # numbers in a vector, and parts of a sum, whose order it determines
BLOCK = 512
"""Numbers of each update that are widened and compared at a time: 4 KiB of second-level cache per
update; a tile fits into the first level. Determines the order of the sum."""


LLVMLITE = "0.50."
"""Version prefix of the extra `fast`. Another package may have installed another version, whose
LLVM dialect may differ (before 0.44 it does)."""


class NoMachineCodeError(Exception):
    """Distances cannot be compiled here; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A target of compilation."""

    name: str
    features: str  # LLVM's list: "+fma,-sse4a,..."
    tile: int  # updates on each side of a tile; its sums fit into registers


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The compiled loops.

    add_squares(rows, groups, member groups, start, stop, norms, block, sums) adds the squared
    distances over [start, stop). `rows` are addresses of groups · tile float32 vectors, the
    members' first, 0 for a zero vector. `norms` is 0 or the address of each update's float64
    divisor. `block` has room for groups · tile · BLOCK float64 numbers, and `sums` has LANES parts
    for each pair: (member groups · tile, groups · tile, LANES). Only pairs in or right of the
    diagonal's tiles are added.

    add_products(rows, weights, count, first, length, sums) adds Σ_k a_k Δ_k of the numbers from
    `first` on to `length` float64 sums. `rows` are addresses of each Δ_k, `weights` are each a_k.

    squares_from(rows, count, blocks, point, sums) writes the squared distances of each Δ_k from a
    float64 point over parts of PART numbers, 64 in each block: (count, blocks, 64). A part is
    summed in the order of NumPy's pairwise summation.

    add_ranks(rows, count, strips, network, length, low, high, buffer, sums) adds the numbers of the
    ranks [low, high) of each coordinate, ascending, to float64 sums. A sorting network is `length`
    pairs of rows, for strips of STRIP coordinates in a buffer of (count, STRIP) float32 numbers.
    """

    tile: int  # updates on each side of a tile; numbers of updates are padded to a multiple
    add_squares: Callable[..., None]
    add_products: Callable[..., None]
    squares_from: Callable[..., None]
    add_ranks: Callable[..., None]
    owner: object  # holds the functions as long as it is referenced


def machine_code() -> MachineCode | None:
    """Return the loops for this machine, if any; the attempt is made once per process."""
    return _attempted()[0]


@cache
def _attempted() -> tuple[MachineCode | None, str]:
    try:
        return compiled(this_processor()), ""
    except NoMachineCodeError as error:
        return None, str(error)


def this_processor() -> Processor:
    """Return the processor of this process."""
    llvm = _llvm()
    name = llvm.get_host_cpu_name()
    if not llvm.get_process_triple().startswith(("x86_64", "i386", "i686")):
        return Processor(name, "", 2)
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError as error:
        raise NoMachineCodeError(f"LLVM does not know this processor: {error}") from error
    # Without it LLVM calls a function for each number, which is slower than NumPy.
    if not features.get("fma"):
        raise NoMachineCodeError("the processor has no fused multiply-add")
    return Processor(name, features.flatten(), 4 if features.get("avx512f") else 2)


def compiled(processor: Processor) -> MachineCode:
    """Return the loops for this processor, or an older compatible one."""
    llvm = _llvm()
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.check_jit_execution()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=processor.name, features=processor.features, opt=3, jit=True
        )
        module = llvm.parse_assembly(str(_Writer(processor.tile).module))
        module.verify()
        owner = llvm.create_mcjit_compiler(module, machine)
        owner.finalize_object()
    except (OSError, RuntimeError) as error:
        raise NoMachineCodeError(f"LLVM: {error}") from error
    kinds, loops = {"p": ctypes.c_void_p, "n": ctypes.c_int64}, {}
    for name, takes in _LOOPS.items():
        signature = ctypes.CFUNCTYPE(None, *[kinds[kind] for kind in takes])
        loops[name] = signature(owner.get_function_address(name))
    return MachineCode(processor.tile, owner=owner, **loops)


def _llvm() -> Any:
    try:
        import llvmlite  # noqa: PLC0415 - an extra

        if not llvmlite.__version__.startswith(LLVMLITE):
            finding = f"llvmlite is {llvmlite.__version__}, not {LLVMLITE}x"
            raise NoMachineCodeError(f"{finding}; run {install_command('fast')}")
        import llvmlite.binding as llvm  # noqa: PLC0415
    except (ImportError, OSError) as error:
        raise NoMachineCodeError(f"llvmlite: {error}; run {install_command('fast')}") from error
    return llvm


_LOOPS = {
    "add_squares": "pnnnnppp",
    "add_products": "ppnnnp",
    "squares_from": "pnnpp",
    "add_ranks": "pnnpnnnpp",
}
"""What each loop takes: pointers and numbers."""

PART = 128  # numbers that NumPy's pairwise summation does not divide
STRIP = 64  # coordinates that a comparator puts in order at once


class _Writer:
    """Writes all loops. Distances: for each block of d, widen it, then compare it by tiles."""

    def __init__(self, tile: int) -> None:
        from llvmlite import ir  # noqa: PLC0415 - an extra

        self._ir = ir
        self._tile = tile
        self._integer, self._pointer = ir.IntType(64), ir.PointerType()
        self._single, self._double = ir.FloatType(), ir.DoubleType()
        self._singles = ir.VectorType(self._single, LANES)
        self._doubles = ir.VectorType(self._double, LANES)
        self._zeros = ir.Constant(self._doubles, [0.0] * LANES)
        self.module = ir.Module("loops")
        self._fused = ir.Function(
            self.module, ir.FunctionType(self._doubles, [self._doubles] * 3), "llvm.fma.v8f64"
        )
        self._add_products(*self._begun("add_products"))
        self._b.ret_void()
        self._squares_from(*self._begun("squares_from"))
        self._b.ret_void()
        self._add_ranks(*self._begun("add_ranks"))
        self._b.ret_void()
        arguments = self._begun("add_squares")
        self._rows, self._groups, self._member_groups, self._start = arguments[:4]
        self._stop, self._norms, self._block, self._sums = arguments[4:]
        self._all_blocks()
        self._b.ret_void()

    def _begun(self, name: str) -> Sequence[Any]:
        ir, kinds = self._ir, {"p": self._pointer, "n": self._integer}
        takes = [kinds[kind] for kind in _LOOPS[name]]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), takes), name)
        for argument in function.args:
            if argument.type == self._pointer:
                argument.add_attribute("noalias")
        self._b = ir.IRBuilder(function.append_basic_block())
        return tuple(function.args)

    def _add_products(
        self, rows: Any, weights: Any, count: Any, first: Any, length: Any, sums: Any
    ) -> None:
        """Add each update's products in turn to a block's sums, four updates at a time."""
        b, double, pointer = self._b, self._double, self._pointer

        def add(group: Sequence[Any]) -> None:
            addresses = [self._load(self._at(rows, row, pointer), pointer) for row in group]
            updates = [self._at(address, first, self._single) for address in addresses]
            factors = [self._load(self._at(weights, row, double), double) for row in group]
            for offset, narrow, wide in self._numbers(length):
                total = self._load(self._at(sums, offset, double), wide)
                for update, factor in zip(updates, factors, strict=True):
                    number = self._widened(update, offset, narrow, wide)
                    total = b.fadd(total, b.fmul(self._spread(factor, wide), number))
                self._store(total, self._at(sums, offset, double))

        whole = b.and_(count, self._number(-4))
        with self._loop(self._number(0), whole, 4) as (row, _, _):
            add([b.add(row, self._number(place)) for place in range(4)])
        with self._loop(whole, count) as (row, _, _):
            add([row])

    def _squares_from(self, rows: Any, count: Any, blocks: Any, point: Any, sums: Any) -> None:
        """Add eight sums of each part in pairs; a block of the point stays in cache."""
        b, zero, size = self._b, self._number(0), self._number(64)
        with (
            self._loop(zero, blocks) as (block, _, _),
            self._loop(zero, count) as (row, _, _),
            self._loop(zero, size) as (index, _, _),
        ):
            part = b.add(b.mul(block, size), index)
            update = self._load(self._at(rows, row, self._pointer), self._pointer)
            total = self._zeros
            for offset in range(0, PART, LANES):
                place = b.add(b.mul(part, self._number(PART)), self._number(offset))
                number = self._widened(update, place, self._singles, self._doubles)
                there = self._load(self._at(point, place, self._double), self._doubles)
                delta = b.fsub(number, there)
                total = b.fadd(total, b.fmul(delta, delta))
            lanes = [b.extract_element(total, self._number(lane)) for lane in range(LANES)]
            while len(lanes) > 1:
                lanes = [b.fadd(*pair) for pair in zip(lanes[::2], lanes[1::2], strict=True)]
            place = b.add(b.mul(row, b.mul(blocks, size)), part)
            self._store(lanes[0], self._at(sums, place, self._double))

    def _add_ranks(self, *arguments: Any) -> None:
        """Copy each strip into the buffer, sort its rows as far as needed, and add up the ranks."""
        rows, count, strips, network, length, low, high, buffer, sums = arguments
        b, zero, strip = self._b, self._number(0), self._number(STRIP)
        narrow, wide = (self._ir.VectorType(kind, STRIP) for kind in (self._single, self._double))

        def row_at(row: Any) -> Any:
            return self._at(buffer, b.mul(row, strip), self._single)

        with self._loop(zero, strips) as (index, _, _):
            first = b.mul(index, strip)
            with self._loop(zero, count) as (row, _, _):
                update = self._load(self._at(rows, row, self._pointer), self._pointer)
                numbers = b.load(self._at(update, first, self._single), align=1, typ=narrow)
                b.store(numbers, row_at(row), align=4)
            with self._loop(zero, length) as (comparator, _, _):
                pair = self._at(network, b.mul(comparator, self._number(2)), self._integer)
                higher = self._at(pair, self._number(1), self._integer)
                places = [row_at(self._load(place, self._integer)) for place in (pair, higher)]
                one, other = (b.load(place, align=4, typ=narrow) for place in places)
                is_less = b.fcmp_ordered("<", one, other)
                b.store(b.select(is_less, one, other), places[0], align=4)
                b.store(b.select(is_less, other, one), places[1], align=4)
            target = self._at(sums, first, self._double)
            with self._loop(low, high, 1, [self._load(target, wide)]) as (rank, (total,), added):
                added.append(
                    b.fadd(total, b.fpext(b.load(row_at(rank), align=4, typ=narrow), wide))
                )
            self._store(total, target)

    def _all_blocks(self) -> None:
        b, block = self._b, self._number(BLOCK)
        count = b.mul(self._groups, self._number(self._tile))
        with self._loop(self._start, self._stop, BLOCK) as (first, _, _):
            rest = b.sub(self._stop, first)
            length = b.select(b.icmp_signed("<", rest, block), rest, block)
            padded = b.and_(b.add(length, self._number(LANES - 1)), self._number(-LANES))
            with self._loop(self._number(0), count) as (row, _, _):
                self._widen(row, first, length, padded)
            with self._loop(self._number(0), self._member_groups) as (upper, _, _):  # noqa: SIM117
                with self._loop(upper, self._groups) as (right, _, _):
                    self._compare(upper, right, padded, count)

    def _widen(self, row: Any, first: Any, length: Any, padded: Any) -> None:
        """Write one update's block as float64, divided by its norm if there is one."""
        b = self._b
        source = self._load(self._at(self._rows, row, self._pointer), self._pointer)
        target = self._at(self._block, b.mul(row, self._number(BLOCK)), self._double)
        with b.if_else(self._is_given(source)) as (is_there, is_not):
            with is_there:
                numbers = self._at(source, first, self._single)
                with b.if_else(self._is_given(self._norms)) as (is_scaled, is_plain):
                    with is_scaled:
                        norm = self._load(self._at(self._norms, row, self._double), self._double)
                        self._copy(numbers, target, length, padded, norm)
                    with is_plain:
                        self._copy(numbers, target, length, padded, None)
            with is_not, self._loop(self._number(0), padded, LANES) as (offset, _, _):
                self._store(self._zeros, self._at(target, offset, self._double))

    def _copy(self, source: Any, target: Any, length: Any, padded: Any, norm: Any) -> None:
        b = self._b
        last = b.sub(padded, self._number(LANES))
        self._store(self._zeros, self._at(target, last, self._double))
        for offset, narrow, wide in self._numbers(length):
            number = self._widened(source, offset, narrow, wide)
            number = number if norm is None else b.fdiv(number, self._spread(norm, wide))
            self._store(number, self._at(target, offset, self._double))

    def _numbers(self, length: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yield an offset with its types, narrow and wide: of vectors, then of each number left."""
        whole = self._b.and_(length, self._number(-LANES))
        with self._loop(self._number(0), whole, LANES) as (offset, _, _):
            yield offset, self._singles, self._doubles
        with self._loop(whole, length) as (offset, _, _):
            yield offset, self._single, self._double

    def _widened(self, source: Any, offset: Any, narrow: Any, wide: Any) -> Any:
        # An update may be at any offset of a file, so its numbers may be unaligned.
        place = self._at(source, offset, self._single)
        return self._b.fpext(self._b.load(place, align=1, typ=narrow), wide)

    def _compare(self, upper: Any, right_group: Any, padded: Any, count: Any) -> None:
        """Add a tile's squared distances over the block to its sums."""
        b, tile = self._b, self._tile
        pairs = [(i, j) for i in range(tile) for j in range(tile)]
        sides = [
            [b.add(b.mul(group, self._number(tile)), self._number(i)) for i in range(tile)]
            for group in (upper, right_group)
        ]
        upper_rows, right_rows = (
            [self._at(self._block, b.mul(row, self._number(BLOCK)), self._double) for row in rows]
            for rows in sides
        )
        zeros = [self._zeros] * len(pairs)
        with self._loop(self._number(0), padded, LANES, zeros) as (offset, sums, added):
            left, right = (
                [self._load(self._at(row, offset, self._double), self._doubles) for row in rows]
                for rows in (upper_rows, right_rows)
            )
            for (i, j), total in zip(pairs, sums, strict=True):
                delta = b.fsub(left[i], right[j])
                added.append(b.call(self._fused, [delta, delta, total]))
        for (i, j), total in zip(pairs, sums, strict=True):
            pair = b.add(b.mul(sides[0][i], count), sides[1][j])
            offset = self._at(self._sums, b.mul(pair, self._number(LANES)), self._double)
            self._store(b.fadd(self._load(offset, self._doubles), total), offset)

    @contextmanager
    def _loop(
        self, first: Any, last: Any, step: int = 1, carried: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """Repeat the enclosed code; yield counter, carried values, and a list for new ones."""
        b = self._b
        before = b.block
        head, body, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        counter = b.phi(self._integer)
        counter.add_incoming(first, before)
        values = [b.phi(value.type) for value in carried]
        for value, start in zip(values, carried, strict=True):
            value.add_incoming(start, before)
        b.cbranch(b.icmp_signed("<", counter, last), body, after)
        b.position_at_end(body)
        next_values: list[Any] = []
        yield counter, values, next_values
        counter.add_incoming(b.add(counter, self._number(step)), b.block)
        for value, new in zip(values, next_values, strict=True):
            value.add_incoming(new, b.block)
        b.branch(head)
        b.position_at_end(after)

    def _number(self, value: int) -> Any:
        return self._ir.Constant(self._integer, value)

    def _spread(self, value: Any, wide: Any) -> Any:
        """Return a vector with one number in all lanes, or the number where no vector is needed."""
        if wide == self._double:
            return value
        nothing = self._ir.Constant(self._doubles, self._ir.Undefined)
        first = self._ir.IntType(32)
        lanes = self._ir.Constant(self._ir.VectorType(first, LANES), [0] * LANES)
        single = self._b.insert_element(nothing, value, self._ir.Constant(first, 0))
        return self._b.shuffle_vector(single, nothing, lanes)

    def _is_given(self, pointer: Any) -> Any:
        return self._b.icmp_unsigned(
            "!=", self._b.ptrtoint(pointer, self._integer), self._number(0)
        )

    def _at(self, pointer: Any, offset: Any, kind: Any) -> Any:
        return self._b.gep(pointer, [offset], source_etype=kind)

    def _load(self, pointer: Any, kind: Any) -> Any:
        return self._b.load(pointer, align=8, typ=kind)

    def _store(self, value: Any, pointer: Any) -> None:
        self._b.store(value, pointer, align=8)


RANGE = 1 << 16  # numbers of an update that one core takes at a time; determines the sum's order


@dataclass(frozen=True, slots=True)
class StreamedSquares:
    """The squares by compiled code; a pair's bytes do not depend on the other updates."""

    code: MachineCode
    threads: int
    updates: Sequence[NDArray[np.float32]]  # each contiguous, of shape (d,); not copied
    members: Sequence[int]

    def squares(self, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        members = set(self.members)
        first = sorted(members)
        order = first + [row for row in range(len(self.updates)) if row not in members]
        addresses = [self.updates[row].ctypes.data for row in order]
        divisors = None if norms is None else norms[order]
        matrix = self._summed(addresses, len(first), divisors)
        # Of two members a pair is computed once: a − b and b − a have equal squares.
        among = np.triu(matrix[:, : len(first)])
        matrix[:, : len(first)] = among + np.triu(among, 1).T
        return matrix[np.searchsorted(first, self.members)][:, np.argsort(order)]

    def norms(self) -> NDArray[np.float64]:
        nothing = [0] * self.code.tile
        addresses = [update.ctypes.data for update in self.updates]
        sums = self._summed(nothing + addresses, 1, None)
        return np.sqrt(sums[0, self.code.tile :])

    def _summed(
        self, addresses: list[int], members: int, norms: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Return the sums of the first `members` addresses with all; address 0 is a zero vector."""
        code, tile, count = self.code, self.code.tile, len(addresses)
        groups, member_groups = -(-count // tile), -(-members // tile)
        padding = groups * tile - count
        rows = np.array(addresses + [0] * padding, dtype=np.uintp)
        divisors = None if norms is None else np.append(norms, np.ones(padding))

        def sums_over(start: int, stop: int) -> NDArray[np.float64]:
            block = np.empty(groups * tile * BLOCK)
            sums = np.zeros((member_groups * tile, groups * tile, LANES))
            counts = groups, member_groups, start, stop
            divisor = 0 if divisors is None else divisors.ctypes.data
            data = block.ctypes.data, sums.ctypes.data
            code.add_squares(rows.ctypes.data, *counts, divisor, *data)
            parts = sums[:members, :count]
            while parts.shape[-1] > 1:
                half = parts.shape[-1] // 2
                parts = parts[..., :half] + parts[..., half:]
            return parts[..., 0]

        total = np.zeros((members, count))
        for part in _mapped(sums_over, len(self.updates[0]), self.threads):
            total += part
        return total  # (members, addresses); undefined left of the diagonal


def _mapped(work: Callable[[int, int], T], stop: int, threads: int) -> Iterator[T]:
    starts = range(0, stop, RANGE)
    stops = [min(start + RANGE, stop) for start in starts]
    if threads == 1 or len(starts) < 2:
        yield from map(work, starts, stops)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, starts, stops)
