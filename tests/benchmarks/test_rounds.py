"""Contenders of `benchmarks.rounds` do the same work, and other work is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers.our_rounds import data_of, jobs_of, training_of
from benchmarks.rounds import PLAIN, SAME_WORK, TASKS, Contender, PeerTask, Turns, compare
from benchmarks.workloads import (
    WORKS,
    flat,
    load_flat,
    make_workload,
    module_of,
    read_workload,
    run_sgd,
    trained_parameters,
    write_workload,
)
from clients.devices import reproducible
from clients.models.registry import model_named
from clients.training.plain_trainer import PlainTrainer
from tests.clients.training.made import work_of

NOBODY = Contender("another", "nobody", peer="nobody")
DIMENSIONS = {"W1L": 6_603_710, "W1S": 1_690_046, "W2": 132_720, "W3": 785 * 62}


def turns_of(contender: Contender, **facts: object) -> Turns:
    turns = Turns(contender)
    turns.results.append(facts)
    return turns


def test_near_aggregates_are_equal_work_and_others_are_not(tmp_path: Path) -> None:
    task = PeerTask("W3", "W3", (PLAIN, NOBODY), 1)
    turns = [turns_of(PLAIN), turns_of(NOBODY)]
    for place in ("W3-0", "W3-1"):
        (tmp_path / place).mkdir()
    np.save(tmp_path / "W3-0" / "aggregate.npy", np.array([3.0, 4.0]))
    for off, faults in ((0.9 * SAME_WORK, 0), (1.1 * SAME_WORK, 1), (np.nan, 1)):
        np.save(tmp_path / "W3-1" / "aggregate.npy", np.array([3.0, 4.0 + 5 * off]))
        assert len(compare(task, turns, tmp_path)) == faults


def test_equal_runs_on_two_ledgers_must_have_equal_heads(tmp_path: Path) -> None:
    task = TASKS["CMFL"]
    memory, chain = (turns_of(one, heads=["0x1", "0x2"]) for one in task.contenders[:2])
    assert compare(task, [memory, chain], tmp_path) == []
    chain.results.append({"heads": ["0x1", "0x3"]})
    assert compare(task, [memory, chain], tmp_path) == ["CMFL: equal runs have come to other heads"]


@pytest.mark.parametrize("name", WORKS)
def test_the_plain_module_has_the_products_vector(name: str) -> None:
    work = WORKS[name]
    shapes = [tuple(parameter.shape) for parameter in trained_parameters(module_of(work))]
    model = model_named(work.model, data_of(make_workload(work, 1)).form, dict(work.options))
    assert [shape for _, shape in model.layout] == shapes
    assert model.dimension == DIMENSIONS[name]


@pytest.mark.parametrize(("name", "clients"), [("W2", 1), ("W3", 2)])
def test_the_engine_takes_the_plain_loops_steps_in_order(
    tmp_path: Path, name: str, clients: int
) -> None:
    work = replace(WORKS[name], steps=2)
    write_workload(make_workload(work, clients), tmp_path)
    workload = read_workload(tmp_path)
    data, module, start = data_of(workload), module_of(work), torch.from_numpy(workload.start)
    rows = np.empty((clients, len(start)), dtype=np.float32)
    model = model_named(work.model, data.form, dict(work.options))
    trainer = PlainTrainer(work_of(model, data.train, data.collate, training_of(work)))
    trainer.train(workload.start, jobs_of(clients), list(rows))
    for client, row in enumerate(rows):
        load_flat(module, start)
        with reproducible(torch.device("cpu")):
            run_sgd(module, workload, client)
        expected = workload.start - flat(module)
        # Two orders of the same float32 steps: 1e-6 of the weights' size, of updates far smaller.
        assert np.linalg.norm(row - expected) <= 1e-5 * np.linalg.norm(expected)
