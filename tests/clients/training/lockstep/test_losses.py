"""Losses of local steps: of both paths, in any company, and updates that stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.local_sgd import step_count
from clients.models.registry import model_named
from clients.training.engine_factory import open_engine
from clients.training.lockstep.trainer import LockstepTrainer
from tests.clients.training.lockstep.support import (
    EPOCHS,
    FORM,
    JOBS,
    SIZES,
    STEPS,
    TRAIN,
    both,
    updates,
)
from tests.clients.training.made import DATA, SETTINGS
from tests.clients.training.made import JOBS as MADE_JOBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clients.local_sgd import LocalTraining
    from clients.training.plain_trainer import PlainTrainer
    from clients.training.port import TrainingJob, TrainingPath

CNN = model_named("cnn", FORM)
START = CNN.initial(np.random.default_rng(5))
BOTH = pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["steps", "epochs"])


def with_losses(
    trainer: LockstepTrainer | PlainTrainer, settings: LocalTraining, jobs: Sequence[TrainingJob]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    rows = np.zeros((len(jobs), len(START)), dtype=np.float32)
    sizes = [step_count(SIZES[job.client], settings) for job in jobs]
    losses = [np.full(size, np.nan, np.float32) for size in sizes]
    trainer.train(START, jobs, list(rows), losses)
    return rows, losses


@BOTH
def test_losses_change_no_update_and_agree_between_paths(settings: LocalTraining) -> None:
    found = []
    for trainer in both(CNN, settings):
        before = updates(trainer, START, JOBS)
        rows, losses = with_losses(trainer, settings, JOBS)
        assert rows.tobytes() == before.tobytes() == updates(trainer, START, JOBS).tobytes()
        found.append(np.concatenate(losses))
    lockstep, plain = found
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(lockstep, plain, rtol=1e-4)
    # The first loss of ten classes, before anything is learnt, is near log 10.
    assert abs(plain[0] - np.log(10)) < 1


@BOTH
def test_losses_do_not_depend_on_the_chunk(settings: LocalTraining) -> None:
    trainer, _ = both(CNN, settings)
    _, together = with_losses(trainer, settings, JOBS)
    for job, losses in zip(JOBS, together, strict=True):
        _, (alone,) = with_losses(trainer, settings, [job])
        assert alone.tobytes() == losses.tobytes()


@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_an_engine_gives_losses_where_they_are_asked_for(path: TrainingPath) -> None:
    model = model_named("cnn", DATA.form)
    start = model.initial(np.random.default_rng(5))
    found = []
    for asked in (True, False):
        with open_engine(
            model, DATA, SETTINGS,
            device="cpu", workers=1, path=path, sets={}, rows=1, records_losses=asked,
        ) as engine:  # fmt: skip
            (update,) = engine.train(start, MADE_JOBS[:1])
            found.append((bytes(update.payload.data), update.losses))
    (with_, losses), (without, none) = found
    assert with_ == without
    assert losses is not None
    assert len(losses) == 4 * step_count(len(DATA.train[0].y), SETTINGS)
    assert none is None


def test_an_update_depends_on_no_host_of_its_client() -> None:
    # Client 3 has fewer samples than a batch: the rows that fill it are those of the largest.
    alone = [part if client == 3 else TRAIN[0]._replace(x=TRAIN[0].x[:0], y=TRAIN[0].y[:0])
             for client, part in enumerate(TRAIN)]  # fmt: skip
    arguments = (CNN, alone, lambda rows: rows, EPOCHS, "cpu")
    hosted = LockstepTrainer(*arguments, SIZES)
    everybody, _ = both(CNN, EPOCHS)
    expected = updates(everybody, START, [JOBS[3]])
    assert updates(hosted, START, [JOBS[3]]).tobytes() == expected.tobytes()
    assert LockstepTrainer(*arguments).chunk == hosted.chunk
