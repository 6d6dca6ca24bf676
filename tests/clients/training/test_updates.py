"""The way of an update: down from a device, kept there, hashed meanwhile, and compared there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from clients.models.model import Model
from clients.training.engine_factory import LocalEngine
from clients.training.port import TrainingPath
from clients.training.updates import (
    BLOCK,
    SLICE,
    DownloadWriter,
    EncodedRow,
    InPlaceWriter,
    ResidentUpdates,
    RowPayloads,
    UpdateMatrix,
    engine_distances,
    torch_distances,
)
from ledger.distances import fast_distances
from ledger.protocol.encoding import sha256
from ledger.protocol.payloads import FLOAT32, Q8, PayloadForm
from ledger.protocol.rules.distance import DIRECTION, SQUARED, DistanceRule, plain_distances
from ledger.protocol.types import ClientId
from tests.clients.training.made import BRANCHED, CONVOLUTIONAL, JOBS, start_of, workload
from tests.clients.training.on_devices import needs_card
from tests.distances.support import RULES, draws, require_equal, round_of

CPU = torch.device("cpu")
ROOM = 1 << 30


def filled(number: float, update: torch.Tensor) -> None:
    update.fill_(number)


def failing(update: torch.Tensor) -> None:
    update.fill_(1 // 0)


def written_by(
    writer: InPlaceWriter | DownloadWriter, rows: np.ndarray, order: list[int]
) -> list[int]:
    """Let place p be filled with p + 1, in some order; return the places as they are complete."""
    complete: list[int] = []

    def check(place: int) -> None:
        assert (rows[place] == place + 1).all()
        complete.append(place)

    writer.begin(list(rows), check)
    for place in order:
        writer.write(place, partial(filled, place + 1.0))
    writer.finish()
    return complete


@pytest.mark.parametrize("resident", [None, ResidentUpdates(CPU, 6, ROOM)], ids=["", "resident"])
def test_both_writers_fill_each_row_and_report_it_once(resident: ResidentUpdates | None) -> None:
    for writer in (InPlaceWriter(), DownloadWriter(CPU, 6, resident)):
        for order in ([0, 1, 2, 3, 4], [3], [4, 0, 2, 1]):
            rows = np.full((5, 6), np.nan, dtype=np.float32)
            assert sorted(written_by(writer, rows, order)) == sorted(order)
            untouched = sorted({0, 1, 2, 3, 4} - set(order))
            assert np.isnan(rows[untouched]).all()


def test_a_call_that_failed_leaves_nothing_to_the_next() -> None:
    writer, rows = DownloadWriter(CPU, 4, None), np.zeros((2, 4), dtype=np.float32)
    reported: list[int] = []
    writer.begin(list(rows), reported.append)
    writer.write(0, partial(filled, 9.0))
    with pytest.raises(ZeroDivisionError):
        writer.write(1, failing)
    other = np.zeros((2, 4), dtype=np.float32)
    assert written_by(writer, other, [1]) == [1]
    assert reported == [0]
    assert not rows[1].any()
    assert not other[0].any()


def test_what_a_reader_of_rows_raises_reaches_the_training() -> None:
    def refuse(_place: int) -> None:
        raise MemoryError

    writer, rows = DownloadWriter(CPU, 4, None), np.zeros((1, 4), dtype=np.float32)
    writer.begin(list(rows), refuse)
    writer.write(0, partial(filled, 9.0))
    with pytest.raises(MemoryError):
        writer.finish()


@pytest.mark.parametrize(
    ("model", "path"), [(BRANCHED, "plain"), (CONVOLUTIONAL, "plain"), (CONVOLUTIONAL, "lockstep")]
)
def test_downloaded_updates_have_the_bytes_of_those_in_place(
    model: Model, path: TrainingPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = replace(workload(model), path=path)
    start = start_of(model)
    with LocalEngine(work, len(JOBS), plain_distances) as engine:
        expected = [update.payload.digest for update in engine.train(start, JOBS)]
    resident = ResidentUpdates(CPU, model.dimension, ROOM)
    for kept in (None, resident):
        writer = DownloadWriter(CPU, model.dimension, kept)
        for module in ("plain_trainer", "lockstep.trainer"):
            monkeypatch.setattr(f"clients.training.{module}.update_writer", lambda *_, w=writer: w)
        with LocalEngine(work, len(JOBS), plain_distances) as engine:
            for jobs in (JOBS, JOBS[:3]):
                updates = engine.train(start, jobs)
                assert [each.payload.digest for each in updates] == expected[: len(jobs)]
                asked = SQUARED, None, round_of([u.vector for u in updates])
                found = torch_distances(CPU, kept)(*asked, [ClientId(0), ClientId(20)])
                sent = torch_distances(CPU)(*asked, [ClientId(0), ClientId(20)])
                assert found.tobytes() == sent.tobytes()
                if kept is not None:
                    places = [kept.place_of(update.vector) for update in updates]
                    assert places == list(range(len(jobs)))


def resident_round(dimension: int, count: int) -> tuple[ResidentUpdates, np.ndarray]:
    resident, rows = ResidentUpdates(CPU, dimension, ROOM), draws(0, count, dimension)
    matrix = resident.reserve(count)
    assert matrix is not None
    for place, row in enumerate(rows):
        matrix[place] = torch.from_numpy(row)
        resident.add(place, row)
    return resident, rows


@RULES
@pytest.mark.parametrize("forged", [[], [0], [1, 4], [0, 1, 2, 3, 4]], ids=str)
def test_distances_are_the_same_wherever_the_updates_are(rule: Any, forged: list[int]) -> None:
    dimension = BLOCK + SLICE + 5
    resident, rows = resident_round(dimension, 5)
    vectors = [row * np.float32(-3) if place in forged else row for place, row in enumerate(rows)]
    updates = round_of(vectors)
    expected = torch_distances(CPU)(rule, None, updates, list(updates)[:2])
    found = torch_distances(CPU, resident)(rule, None, updates, list(updates)[:2])
    assert found.tobytes() == expected.tobytes()


def test_updates_of_an_earlier_training_are_not_found_again() -> None:
    resident, rows = resident_round(7, 3)
    assert [resident.place_of(row) for row in rows] == [0, 1, 2]
    assert resident.place_of(rows[1].copy()) is None
    assert resident.place_of(rows[1][:6]) is None
    resident.reserve(3)
    assert [resident.place_of(row) for row in rows] == [None] * 3


def test_updates_that_take_too_much_room_are_not_kept() -> None:
    resident = ResidentUpdates(CPU, 100, most_bytes=4 * 128 * 3)
    assert resident.reserve(4) is None
    kept = resident.reserve(3)
    assert kept is not None
    assert kept.shape == (3, 100)
    # Every row begins at the same alignment, whatever d is.
    assert {row.data_ptr() % 512 for row in kept} == {kept.data_ptr() % 512}


@pytest.mark.parametrize("form", [FLOAT32, Q8])
def test_large_rows_are_encoded_beside(monkeypatch: pytest.MonkeyPatch, form: PayloadForm) -> None:
    monkeypatch.setattr("clients.training.updates.THREADED_BYTES", 16)
    matrix, numbers = UpdateMatrix(1, 70, form), np.linspace(-1, 2, 210, dtype=np.float32)
    matrix.rows(3)[...] = numbers.reshape(3, 70)
    threads: list[str] = []
    encode = matrix.encode

    def counted(count: int, index: int) -> EncodedRow:
        threads.append(threading.current_thread().name)
        return encode(count, index)

    monkeypatch.setattr(matrix, "encode", counted)
    with RowPayloads(matrix, 3, (2, 0), "cpu") as payloads:
        payloads.begin(1)
        result = payloads.result()
    digests = [form.payload(row).digest for row in numbers.reshape(3, 70)[[2, 0]]]
    assert [encoded.digest for encoded in result] == digests
    assert sum(name.startswith("hashing") for name in threads) == 1


@pytest.mark.parametrize(
    ("device", "cores", "threads"), [("cpu", 16, 1), ("cuda", 16, 14), ("cuda:1", 3, 1)]
)
def test_two_cores_beside_a_card_do_not_hash(
    device: str, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(count: int, **_: str) -> ThreadPoolExecutor:
        assert count == threads
        return ThreadPoolExecutor(count)

    monkeypatch.setattr("clients.training.updates.usable_cores", lambda: cores)
    monkeypatch.setattr("clients.training.updates.ThreadPoolExecutor", opened)
    matrix, places = UpdateMatrix(9, 1 << 16), (5, 0, 8, 3, 7, 1)
    rows = matrix.rows(9)
    rows[...] = np.arange(9)[:, None]
    rows[8, 17] = np.inf
    with RowPayloads(matrix, 9, places, device) as payloads:
        for index in (3, 1, 4, 0, 2):
            payloads.begin(index)
        encoded = payloads.result()
    assert [row.digest for row in encoded] == [sha256(rows[p].tobytes()) for p in places]
    assert [row.is_usable for row in encoded] == [place != 8 for place in places]


def test_what_fails_in_a_hashing_thread_reaches_the_training() -> None:
    with RowPayloads(UpdateMatrix(1, 1 << 17), 1, (7,), "cuda") as payloads:
        payloads.begin(0)
        with pytest.raises(IndexError):
            payloads.result()


def test_rows_that_nobody_has_begun_are_hashed_at_the_end() -> None:
    matrix = UpdateMatrix(1, 1 << 17)
    matrix.rows(1)[...] = np.arange(1 << 17)
    with RowPayloads(matrix, 1, (0,), "cpu") as payloads:
        assert payloads.result()[0].digest == sha256(matrix.rows(1)[0].tobytes())


by_torch = torch_distances(torch.device("cpu"))


@RULES
def test_the_processor_computes_what_an_auditor_does(rule: DistanceRule) -> None:
    updates = round_of(draws(0, 6, 5_000))
    asked = rule, None, updates, list(updates)[:3]
    expected = fast_distances()(*asked).tobytes()
    assert {engine_distances("cpu", threads)(*asked).tobytes() for threads in (1, 2)} == {expected}


def test_directions_by_pencil() -> None:
    # Lengths 1, 1, 8, 0: their median is 1, and 8 is four times twice that: f = 16.
    vectors = np.array([[1, 0], [0, 1], [-8, 0], [0, 0]], dtype=np.float32)
    found = by_torch(DIRECTION, None, round_of(vectors), [ClientId(0), ClientId(30)])
    # torch gives roots of sums, whose squares may differ in the last digit.
    assert found == pytest.approx(np.array([[3, 2, 18, 4]] * 2), rel=1e-15)


@pytest.mark.parametrize("agreement", [-0.5, 0.004, 0.5])
def test_along_a_travel_torch_agrees_with_the_plain_rule(agreement: float) -> None:
    vectors, travel = draws(0, 6, BLOCK + 5), draws(1, 1, BLOCK + 5)[0]
    vectors = (vectors + agreement * travel).astype(np.float32)
    vectors[5] = 0
    require_equal(by_torch, DIRECTION, vectors, [5, 0, 4], travel)


@RULES
@pytest.mark.parametrize("dimension", [1, 7, 2_049, BLOCK + 5])
def test_torch_agrees_with_the_plain_rule(rule: DistanceRule, dimension: int) -> None:
    require_equal(by_torch, rule, draws(0, 5, dimension), [4, 0, 4])


@RULES
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-6])
def test_torch_stays_exact_among_similar_updates_and_a_huge_one(rule: Any, spread: float) -> None:
    vectors = (draws(2, 1, 5_000) + spread * draws(3, 6, 5_000)).astype(np.float32)
    vectors[5] *= np.float32(1e6)
    require_equal(by_torch, rule, vectors, [0, 3, 5])


@RULES
def test_the_bytes_do_not_depend_on_the_callers_threads(rule: DistanceRule) -> None:
    updates = round_of(draws(8, 9, 9_001))
    before = torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.add(by_torch(rule, None, updates, list(updates)[:4]).tobytes())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


@needs_card
@RULES
def test_cuda_repeats_its_own_bytes_and_agrees_with_the_processor(rule: DistanceRule) -> None:
    vectors = draws(9, 12, 200_003)
    updates = round_of(vectors)
    cuda = engine_distances("cuda")
    first, again = (cuda(rule, None, updates, list(updates)[:5]) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    require_equal(cuda, rule, vectors, range(5))
    require_equal(cuda, rule, vectors, range(5), vectors[11])


def added_up(number: float, update: torch.Tensor) -> None:
    update.zero_()
    for _ in range(200):  # long enough for a download that does not wait to see another sum
        update.add_(number)


@needs_card
@pytest.mark.parametrize("is_kept", [False, True], ids=["", "resident"])
def test_a_download_waits_for_its_update_and_the_next_update_for_it(is_kept: bool) -> None:
    device, dimension = torch.device("cuda"), 1 << 20
    resident = ResidentUpdates(device, dimension) if is_kept else None
    writer = DownloadWriter(device, dimension, resident)
    for turn in (1, 2, 3):
        rows = np.zeros((11, dimension), dtype=np.float32)
        writer.begin(list(rows), None)
        for place in range(len(rows)):
            writer.write(place, partial(added_up, float(turn * (place + 1))))
        writer.finish()
        expected = 200 * turn * np.arange(1, 12)
        assert (rows == expected[:, None]).all()
