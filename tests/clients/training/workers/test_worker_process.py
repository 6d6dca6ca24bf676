"""What a worker answers, and the memory that it shares."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from clients.devices import isa_in_force
from clients.models.model import Model, model_of
from clients.training.pool_engine import (
    START,
    EvaluateTask,
    SharedState,
    StartReply,
    StartTask,
    TaskRunner,
    TrainTask,
)
from clients.training.port import Evaluation, TrainingError, TrainingJob
from clients.training.updates import (
    ArrayLocation,
    EncodedRow,
    SharedBytes,
    UpdateMatrix,
    share,
)
from ledger.protocol.encoding import sha256
from tests.clients.training.made import (
    BRANCHED,
    DATA,
    FORM,
    SETS,
    failing,
    jobs,
    start_of,
    workload,
)


def shared(model: Model) -> SharedState:
    found = SharedState.of(workload(model), rows=1)
    found.vector(START)[:] = start_of(model)
    return found


def test_samples_stay_in_place_and_are_read_only() -> None:
    opened = shared(BRANCHED).workload()
    assert list(opened.sets) == list(SETS)
    pairs = zip((*opened.train, *opened.sets.values()), (*DATA.train, *SETS.values()), strict=True)
    for found, given in pairs:
        assert np.array_equal(found.x, given.x)
        assert np.array_equal(found.y, given.y)
        assert not found.x.flags.writeable


def test_a_worker_writes_updates_in_place_and_returns_digests() -> None:
    memory = shared(BRANCHED)
    bench = TaskRunner(memory)
    assert bench.reply(StartTask()) == StartReply(chunk=1, isa=isa_in_force())
    task = TrainTask(rows=5, places=(4, 1), jobs=tuple(jobs(2, 0)))
    reply = bench.reply(task)
    rows = memory.updates.rows(5)
    encoded = [
        EncodedRow(sha256(row.tobytes()), row.nbytes, is_usable=True) for row in (rows[4], rows[1])
    ]
    assert reply == encoded
    assert not rows[[0, 2, 3]].any()
    assert len(pickle.dumps(task)) < 1000
    assert len(pickle.dumps(reply)) < 500


def test_it_goes_on_after_a_task_that_failed() -> None:
    bench = TaskRunner(shared(model_of(failing, FORM)))
    bench.reply(StartTask())
    reply = bench.reply(TrainTask(1, (0,), (TrainingJob(1, bytes(32)),)))
    assert isinstance(reply, TrainingError)
    assert str(reply).startswith("the model failed: IndexError: index 7 is out of bounds")
    assert isinstance(bench.reply(TrainTask(1, (0,), tuple(jobs(0)))), list)
    (evaluated,) = cast("list[Evaluation]", bench.reply(EvaluateTask(("test",), slice(1, 2))))
    assert evaluated.samples == 256
    assert isinstance(bench.reply(EvaluateTask(("client 0",), slice(0, 1))), TrainingError)


def test_arrays_are_found_where_they_were_put_whatever_their_type() -> None:
    arrays = [
        np.arange(5, dtype=np.uint8),
        np.array(["ab", "c"]),
        np.empty((0, 3), dtype=np.float32),
        np.arange(12, dtype=np.int64).reshape(2, 3, 2)[:, ::-1],
    ]
    shared, places = share(arrays)
    for array, place in zip(arrays, places, strict=True):
        found = shared.array(place)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        assert place.offset % 64 == 0
    shared.close()


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="an array of object cannot be shared"):
        share([np.array([{}, None], dtype=object)])


def test_memory_grows_in_place_and_keeps_its_contents() -> None:
    shared = SharedBytes(16)
    before = shared.array(ArrayLocation(0, "<f4", (4,)))
    before[:] = 1
    shared.require(2**20)
    after = shared.array(ArrayLocation(0, "<f4", (2**18,)))
    assert after[:5].tolist() == [1, 1, 1, 1, 0]
    after[3] = 7
    assert before.tolist() == [1, 1, 1, 7]
    shared.require(16)
    assert shared.array(ArrayLocation(0, "<f4", (2**18,)))[3] == 7
    shared.close()


def test_after_closing_arrays_stay_and_no_new_one_is_made() -> None:
    shared = SharedBytes(16)
    array = shared.array(ArrayLocation(0, "<f4", (4,)))
    shared.close()
    shared.close()
    array[:] = 2
    assert array.sum() == 8
    with pytest.raises(ValueError, match="memory is closed"):
        shared.array(ArrayLocation(0, "<f4", (4,)))


@pytest.mark.parametrize("portable", [False, True])
def test_it_has_no_name(portable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if portable:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedBytes(2**16)
    array = shared.array(ArrayLocation(0, "<f4", (2**14,)))
    array[:] = 3
    assert not list(tmp_path.iterdir())
    shared.require(2**17)
    assert shared.array(ArrayLocation(2**14, "<f4", (1,)))[0] == 3
    shared.close()


def test_row_is_hashed_in_place_and_its_payload_read_only() -> None:
    matrix = UpdateMatrix(2, 3)
    rows = matrix.rows(2)
    rows[:] = np.array([[4, 5, 6], [1, np.inf, 3]])
    encoded = [matrix.encode(2, place) for place in range(2)]
    one, other = (update.payload for update in matrix.updates(jobs(0, 1), encoded))
    assert one.digest == sha256(np.array([4, 5, 6], dtype="<f4").tobytes())
    assert other.digest == sha256(np.array([1, np.inf, 3], dtype="<f4").tobytes())
    assert isinstance(one.data, memoryview)
    assert one.data.readonly
    assert one.update is not None
    assert other.update is None  # it is published, and malformed
    rows[0, 0] = 9
    assert np.frombuffer(one.data, dtype="<f4").tolist() == one.update.tolist() == [9, 5, 6]
    matrix.close()
