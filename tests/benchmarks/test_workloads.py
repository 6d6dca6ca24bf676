"""Contenders of a benchmark do the same work: the same data, order, steps and parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from benchmarks.peers.our_rounds import data_of, jobs_of, training_of
from benchmarks.workloads import (
    WORKS,
    flat,
    load_flat,
    make_workload,
    module_of,
    own_module,
    read_workload,
    run_sgd,
    trained_parameters,
    write_workload,
)
from clients.devices import reproducible
from clients.models.model import model_of
from clients.models.registry import model_named
from clients.training.plain_trainer import PlainTrainer

if TYPE_CHECKING:
    from pathlib import Path

DIMENSIONS = {"W1L": 6_603_710, "W1S": 1_690_046, "W2": 132_720, "W3": 785 * 62}


@pytest.mark.parametrize("name", WORKS)
def test_the_plain_module_has_the_products_vector(name: str) -> None:
    work = WORKS[name]
    shapes = [tuple(parameter.shape) for parameter in trained_parameters(module_of(work))]
    model = model_named(work.model, data_of(make_workload(work, 1)).form, dict(work.options))
    assert [shape for _, shape in model.layout] == shapes
    assert model.dimension == DIMENSIONS[name]


@pytest.mark.parametrize(("name", "clients"), [("W2", 1), ("W3", 2)])
def test_the_engine_takes_the_plain_loops_steps_in_order(name: str, clients: int) -> None:
    work = replace(WORKS[name], steps=2)
    workload = make_workload(work, clients)
    data, module, start = data_of(workload), module_of(work), torch.from_numpy(workload.start)
    rows = np.empty((clients, len(start)), dtype=np.float32)
    model = model_of(own_module, data.form, {"work": name})
    trainer = PlainTrainer(model, data.train, data.collate, training_of(work), "cpu")
    trainer.train(workload.start, jobs_of(workload), list(rows))
    for client, row in enumerate(rows):
        load_flat(module, start)
        with reproducible(torch.device("cpu")):
            run_sgd(module, workload, client)
        expected = workload.start - flat(module)
        # Two orders of the same float32 steps: 1e-6 of the weights' size, of updates far smaller.
        assert np.linalg.norm(row - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_workload_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    made = make_workload(WORKS["W2"], 1)
    write_workload(made, tmp_path)
    read = read_workload(tmp_path)
    assert read.work == made.work
    for name in ("x", "y", "start"):
        assert np.array_equal(getattr(read, name), getattr(made, name))


def test_a_workload_is_the_same_whenever_it_is_made() -> None:
    first, again = (make_workload(WORKS["W3"], 2) for _ in range(2))
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.start, again.start)
