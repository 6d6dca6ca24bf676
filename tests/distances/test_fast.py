"""Distances: near the plain rule, and the same bytes whoever computes a pair."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import distances
from ledger.distances import (
    RANGE,
    BlockedSquares,
    NoMachineCodeError,
    Processor,
    compiled,
    distances_by,
    fallback_reason,
    fast_distances,
    this_processor,
    usable_cores,
)
from ledger.protocol.rules.distance import DIRECTION, SQUARED, DistanceRule, plain_distances
from ledger.protocol.types import ClientId
from tests.distances.support import ALL, CODES, RULES, draws, require_equal, round_of
from tests.faults import times

fast = fast_distances()


@settings(max_examples=times(20, 1_000))
@given(data=st.data())
def test_along_any_travel_it_equals_the_plain_rule(data: st.DataObject) -> None:
    count, dimension = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 12))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    size = (count + 1) * dimension
    values = data.draw(st.lists(number, min_size=size, max_size=size))
    vectors = np.array(values, dtype=np.float32).reshape(count + 1, dimension)
    members = data.draw(st.lists(st.integers(0, count - 1), min_size=1))
    require_equal(fast, DIRECTION, vectors[:-1], members, vectors[-1])


def test_a_travel_of_another_length_is_refused() -> None:
    travel = np.ones(4, np.float32)
    for compute in (fast, plain_distances):
        with pytest.raises(ValueError, match="differ"):
            compute(DIRECTION, travel, round_of(draws(0, 3, 5)), [ClientId(0)])


def test_whole_numbers_are_exact_in_every_lane_block_and_range() -> None:
    # One 3 in a place of its own against zeros: 9, wherever it is.
    dimension = RANGE + 2 * 512 + 5
    for place in (0, 7, 8, 511, 512, 513, RANGE - 1, RANGE, dimension - 2, dimension - 1):
        vectors = np.zeros((3, dimension), dtype=np.float32)
        vectors[1, place] = 3
        found = fast(SQUARED, None, round_of(vectors), [ClientId(10)])
        assert found.tolist() == [[9, 0, 9]]


@RULES
@pytest.mark.parametrize("code", ["one thread", "blocked"])
def test_zeros_and_the_largest_floats_are_no_exception(rule: DistanceRule, code: str) -> None:
    largest = np.finfo(np.float32).max
    require_equal(
        ALL[code](), rule, np.array([[largest, -largest], [-largest, largest]], np.float32), [0, 1]
    )
    require_equal(ALL[code](), rule, np.zeros((3, 5), dtype=np.float32), [0, 2])
    vectors = draws(6, 5, 40)
    vectors[[1, 2]] = 0
    vectors[4] = vectors[3]
    require_equal(ALL[code](), rule, vectors, range(5))


@RULES
@pytest.mark.parametrize("code", ["one thread", "blocked"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_non_finite_numbers_give_the_plain_rules_result(
    rule: DistanceRule, code: str, odd: float
) -> None:
    vectors = draws(1, 5, 700)
    vectors[2, 600] = odd
    updates, members = round_of(vectors), [ClientId(20), ClientId(30)]
    found = ALL[code]()(rule, None, updates, members)
    with np.errstate(invalid="ignore"):
        expected = plain_distances(rule, None, updates, members)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-15, equal_nan=True)


@RULES
@settings(max_examples=times(20, 1_000))
@given(data=st.data())
def test_agrees_with_the_plain_rule_on_any_updates(rule: DistanceRule, data: st.DataObject) -> None:
    count, dimension = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    values = data.draw(st.lists(number, min_size=count * dimension, max_size=count * dimension))
    vectors = np.array(values, dtype=np.float32).reshape(count, dimension)
    members = data.draw(st.lists(st.integers(0, count - 1), min_size=1))
    require_equal(fast, rule, vectors, members)


@RULES
def test_updates_may_be_memory_mapped_and_stay_unchanged(
    rule: DistanceRule, tmp_path: Path
) -> None:
    vectors = draws(4, 8, 100_003)
    mapped = []
    for place, vector in enumerate(vectors):
        path = tmp_path / str(place)
        path.write_bytes(vector.tobytes())
        mapped.append(np.memmap(path, np.float32, "r"))
    members = [ClientId(70), ClientId(0)]
    found = fast_distances(2)(rule, None, round_of(mapped), members)
    again = fast(rule, None, round_of(vectors), members)
    assert found.tobytes() == again.tobytes()
    assert np.array_equal(np.stack(mapped), vectors)


def test_a_rule_without_a_kernel_uses_its_plain_code() -> None:
    def city_blocks(update: np.ndarray, reference: np.ndarray) -> float:
        return float(np.abs(update - reference).sum())

    toy = DistanceRule("toy", "blocks", city_blocks)
    updates = round_of(np.array([[0, 0], [3, 4]], dtype=np.float32))
    assert fast(toy, None, updates, [ClientId(10)]).tolist() == [[7, 0]]


@RULES
def test_updates_of_other_types_use_the_plain_rule(rule: DistanceRule) -> None:
    # Cast to float32 these two would be equal.
    updates = round_of(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12]]))
    found = fast(rule, None, updates, [ClientId(0)])
    assert found.tolist() == plain_distances(rule, None, updates, [ClientId(0)]).tolist()


@RULES
def test_nobody_has_no_distances(rule: DistanceRule) -> None:
    updates = round_of(draws(0, 3, 5))
    assert fast(rule, None, updates, []).shape == (0, 3)
    assert fast(rule, None, {}, []).shape == (0, 0)


@RULES
def test_updates_of_two_lengths_are_refused(rule: DistanceRule) -> None:
    updates = {ClientId(0): np.zeros(5, np.float32), ClientId(1): np.zeros(4, np.float32)}
    with pytest.raises(ValueError, match="differ in length"):
        fast(rule, None, updates, [ClientId(0)])


def test_a_member_without_an_update_is_refused() -> None:
    with pytest.raises(KeyError):
        fast(SQUARED, None, round_of(draws(0, 3, 5)), [ClientId(1)])


def test_zero_threads_are_refused_and_one_core_exists() -> None:
    with pytest.raises(ValueError, match="on 0 threads"):
        fast_distances(0)
    assert usable_cores() >= 1


@RULES
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dimension", [650, 2 * RANGE + 9])
def test_threads_tiles_and_processors_make_no_difference(
    rule: DistanceRule, code: str, dimension: int
) -> None:
    updates = round_of(draws(8, 11, dimension))
    asked = rule, None, updates, list(updates)[:6]
    assert CODES[code]()(*asked).tobytes() == fast(*asked).tobytes()


@pytest.mark.parametrize("code", ["one thread", "blocked"])
@pytest.mark.parametrize("dimension", [1, 650, 513, RANGE + 1])
def test_a_pair_alone_has_its_bytes_in_company(dimension: int, code: str) -> None:
    rule, fast = SQUARED, ALL[code]()
    updates = round_of(draws(7, 6, dimension))
    together = fast(rule, None, updates, list(updates))
    for row, member in enumerate(updates):
        for column, client in enumerate(updates):
            pair = {member: updates[member], client: updates[client]}
            alone = fast(rule, None, pair, [member])[0, sorted(pair).index(client)]
            assert alone.tobytes() == together[row, column].tobytes()


@settings(max_examples=times(15, 1_000))
@given(data=st.data())
def test_any_subset_in_any_order_and_anywhere_in_memory(data: st.DataObject) -> None:
    rule = SQUARED
    dimension = data.draw(st.sampled_from([1, 9, 300, 512, 1_300, RANGE + 700]))
    vectors = draws(dimension, 9, dimension)
    whole = fast(rule, None, round_of(vectors), [ClientId(10 * i) for i in range(9)])
    chosen = data.draw(st.lists(st.integers(0, 8), min_size=1, unique=True))
    members = data.draw(st.lists(st.sampled_from(chosen), min_size=1))
    threads = data.draw(st.integers(1, 3))
    moved = {
        ClientId(10 * place): _at_byte(vectors[place], data.draw(st.integers(0, 9)))
        for place in chosen
    }
    asked = [ClientId(10 * member) for member in members]
    found = fast_distances(threads)(rule, None, moved, asked)
    assert found.tobytes() == whole[members][:, sorted(chosen)].tobytes()


def _at_byte(vector: np.ndarray, offset: int) -> np.ndarray:
    """Return an update that begins at some byte of a file's content, aligned or not."""
    data = bytes(offset) + vector.tobytes()
    return np.frombuffer(memoryview(data)[offset:], dtype=np.float32)


@RULES
def test_matrix_rows_and_strided_arrays_are_updates_too(rule: DistanceRule) -> None:
    wide = draws(3, 6, 4_000)
    members = [ClientId(20)]
    found = fast(rule, None, round_of(wide[:, ::2]), members)
    copied = fast(rule, None, round_of([row[::2].copy() for row in wide]), members)
    assert found.tobytes() == copied.tobytes()


def test_updates_are_read_where_they_lie_and_not_copied() -> None:
    vectors = draws(0, 12, 300_000)
    updates = round_of(vectors)
    fast(SQUARED, None, updates, list(updates)[:4])
    tracemalloc.start()
    try:
        fast_distances(2)(SQUARED, None, updates, list(updates)[:4])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < vectors.nbytes / 20


@pytest.fixture
def _compiles_again() -> Iterator[None]:
    distances._attempted.cache_clear()
    yield
    distances._attempted.cache_clear()


def require_plain(reason: str) -> None:
    updates = round_of(draws(0, 5, 700))
    for rule in (SQUARED, DIRECTION):
        asked = rule, None, updates, list(updates)[:3]
        assert fast_distances(2)(*asked).tobytes() == distances_by(BlockedSquares)(*asked).tobytes()
    assert reason in fallback_reason()


def test_this_machine_compiles() -> None:
    assert not fallback_reason()


@pytest.mark.usefixtures("_compiles_again")
def test_without_the_extra_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    require_plain("llvmlite")
    with pytest.raises(NoMachineCodeError, match="llvmlite"):
        compiled(Processor("haswell", "+fma", 2))


@pytest.mark.usefixtures("_compiles_again")
def test_with_another_llvmlite_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llvmlite.__version__", "0.43.0")
    require_plain("llvmlite is 0.43.0, not 0.50.x")


@pytest.mark.usefixtures("_compiles_again")
@pytest.mark.parametrize(
    ("function", "answer", "reason"),
    [
        ("get_host_cpu_features", RuntimeError("no such list"), "does not know this processor"),
        ("check_jit_execution", OSError("Operation not permitted"), "not permitted"),
    ],
)
def test_where_llvm_or_the_system_refuses_distances_are_plain(
    monkeypatch: pytest.MonkeyPatch, function: str, answer: Exception, reason: str
) -> None:
    def refuse() -> None:
        raise answer

    monkeypatch.setattr(f"llvmlite.binding.{function}", refuse)
    require_plain(reason)


@pytest.mark.usefixtures("_compiles_again")
def test_without_a_fused_multiply_add_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {**features, "fma": False})
    require_plain("no fused multiply-add")


def test_any_other_architecture_takes_what_llvm_makes_for_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llvmlite.binding.get_process_triple", lambda: "arm64-apple-darwin")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "apple-m1")
    assert this_processor() == Processor("apple-m1", "", 2)


def test_nothing_is_imported_before_the_first_distance() -> None:
    program = (
        "import sys; from ledger.distances import fast_distances; fast_distances(2);"
        "assert not {'llvmlite', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
