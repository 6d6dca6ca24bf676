"""What a worker answers: little, for what it makes lies in the memory that it shares."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from clients.models.model import model_of
from clients.training.environment import isa_in_force
from clients.training.port import TrainingJob
from clients.training.workers.shared_memory import (
    ArrayLocation,
    EncodedRow,
    SharedBytes,
    UpdateMatrix,
)
from clients.training.workers.worker_process import (
    START,
    EvaluateReply,
    EvaluateTask,
    FailureReply,
    SharedState,
    SharedWorkload,
    StartReply,
    StartTask,
    TaskRunner,
    TrainReply,
    TrainTask,
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

if TYPE_CHECKING:
    from clients.models.model import Model


def shared(model: Model) -> SharedState:
    found = SharedState(
        workload=SharedWorkload.of(workload(model)),
        parameters=SharedBytes(8 * model.dimension),
        vectors=ArrayLocation(0, "<f4", (2, model.dimension)),
        updates=UpdateMatrix(1, model.dimension),
    )
    found.vector(START)[:] = start_of(model)
    return found


def test_samples_stay_in_place_and_are_read_only() -> None:
    opened = SharedWorkload.of(workload(BRANCHED)).opened()
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
    encoded = [EncodedRow(sha256(row.tobytes()), row.nbytes) for row in (rows[4], rows[1])]
    assert reply == TrainReply(tuple(encoded), (None, None))
    assert not rows[[0, 2, 3]].any()
    assert len(pickle.dumps(task)) < 1000
    assert len(pickle.dumps(reply)) < 500


def test_it_goes_on_after_a_task_that_failed() -> None:
    bench = TaskRunner(shared(model_of(failing, FORM)))
    bench.reply(StartTask())
    reply = bench.reply(TrainTask(1, (0,), (TrainingJob(1, bytes(32)),)))
    assert isinstance(reply, FailureReply)
    assert reply.sentence.startswith("the model failed: IndexError: index 7 is out of bounds")
    assert isinstance(bench.reply(TrainTask(1, (0,), tuple(jobs(0)))), TrainReply)
    evaluated = bench.reply(EvaluateTask(("test",), slice(1, 2)))
    assert isinstance(evaluated, EvaluateReply)
    assert [part.samples for part in evaluated.parts] == [256]
    assert isinstance(bench.reply(EvaluateTask(("client 0",), slice(0, 1))), FailureReply)
