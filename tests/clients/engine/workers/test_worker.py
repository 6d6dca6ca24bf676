"""What a worker answers: little, for what it makes lies in the memory that it shares."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from clients.engine.port import TrainingJob
from clients.engine.updates import UpdateMatrix
from clients.engine.workers.memory import Place, SharedBytes
from clients.engine.workers.worker import (
    START,
    BeginTask,
    Bench,
    Evaluated,
    EvaluateTask,
    Failed,
    Ready,
    Shared,
    SharedWorkload,
    Trained,
    TrainTask,
)
from clients.models.model import model_of
from ledger.protocol.encoding import sha256
from tests.clients.engine.made import BRANCHED, DATA, FORM, SETS, failing, jobs, start_of, workload

if TYPE_CHECKING:
    from clients.models.model import Model


def shared(model: Model) -> Shared:
    found = Shared(
        workload=SharedWorkload.of(workload(model)),
        parameters=SharedBytes(8 * model.dimension),
        vectors=Place(0, "<f4", (2, model.dimension)),
        updates=UpdateMatrix(1, model.dimension),
    )
    found.vector(START)[:] = start_of(model)
    return found


def test_samples_are_where_they_were_and_nobody_can_write_to_them() -> None:
    opened = SharedWorkload.of(workload(BRANCHED)).opened()
    assert list(opened.sets) == list(SETS)
    pairs = zip((*opened.train, *opened.sets.values()), (*DATA.train, *SETS.values()), strict=True)
    for found, given in pairs:
        assert np.array_equal(found.x, given.x)
        assert np.array_equal(found.y, given.y)
        assert not found.x.flags.writeable


def test_it_writes_each_update_to_its_place_and_answers_with_digests() -> None:
    memory = shared(BRANCHED)
    bench = Bench(memory)
    assert bench.reply(BeginTask()) == Ready(chunk=1)
    task = TrainTask(rows=5, places=(4, 1), jobs=tuple(jobs(2, 0)))
    reply = bench.reply(task)
    rows = memory.updates.rows(5)
    assert reply == Trained((sha256(rows[4].tobytes()), sha256(rows[1].tobytes())))
    assert not rows[[0, 2, 3]].any()
    assert len(pickle.dumps(task)) < 1000
    assert len(pickle.dumps(reply)) < 500


def test_it_goes_on_after_a_task_that_failed() -> None:
    bench = Bench(shared(model_of(failing, FORM)))
    bench.reply(BeginTask())
    reply = bench.reply(TrainTask(1, (0,), (TrainingJob(1, bytes(32)),)))
    assert isinstance(reply, Failed)
    assert reply.sentence.startswith("the model failed: IndexError: index 7 is out of bounds")
    assert isinstance(bench.reply(TrainTask(1, (0,), tuple(jobs(0)))), Trained)
    evaluated = bench.reply(EvaluateTask(("test",), slice(1, 2)))
    assert isinstance(evaluated, Evaluated)
    assert [part.samples for part in evaluated.parts] == [256]
    assert isinstance(bench.reply(EvaluateTask(("client 0",), slice(0, 1))), Failed)
