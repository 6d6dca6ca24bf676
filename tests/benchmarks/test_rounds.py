"""Who takes part in a benchmark of rounds, and who is told that his work was another's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from benchmarks.rounds import (
    PLAIN,
    TASKS,
    Contender,
    PeerTask,
    Turns,
    compare,
    fault_of,
    take_turns,
)
from benchmarks.workloads import sketch

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = Contender("somebody else", "nobody", peer="nobody")


def turns_of(contender: Contender, **facts: object) -> Turns:
    turns = Turns(contender)
    turns.results.append(facts)
    return turns


def test_a_peer_without_an_environment_is_skipped_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = PeerTask("W3", "W3", (NOBODY,), 1)
    assert take_turns(task, 1, tmp_path, Console(), quick=True) == []
    assert "somebody else is left out: `make bench-peers`" in capsys.readouterr().out


def test_equal_aggregates_are_equal_work_and_others_are_not(tmp_path: Path) -> None:
    task = PeerTask("W3", "W3", (PLAIN, NOBODY), 1)
    for place, aggregate in enumerate(([3.0, 4.0], [3.0, 4.00004])):
        (tmp_path / f"W3-{place}").mkdir()
        np.save(tmp_path / f"W3-{place}" / "aggregate.npy", np.array(aggregate))
    near = [turns_of(PLAIN, moved=[0.0]), turns_of(NOBODY)]
    assert compare(task, near, tmp_path) == []
    assert near[1].difference == pytest.approx(0.00004 / 5)
    np.save(tmp_path / "W3-1" / "aggregate.npy", np.array([3.0, 4.001]))
    (fault,) = compare(task, near, tmp_path)
    assert fault == (
        "W3, somebody else: its first aggregate differs from the plain loop's by 2.0e-04, over "
        "1.0e-05"
    )


def test_who_sends_parameters_may_round_them() -> None:
    turns = turns_of(NOBODY, rounding=1e-4)
    turns.difference = 2e-4
    assert fault_of(turns, norm=0.5, moved=0.0) is None
    assert fault_of(turns, norm=5.0, moved=0.0) is not None


def test_in_lockstep_few_updates_may_differ_and_only_slightly() -> None:
    turns = turns_of(NOBODY, path="lockstep")
    turns.updates_differ = [1e-6, 2e-6, 5e-2]
    assert fault_of(turns, norm=1.0, moved=0.1) is None
    turns.updates_differ = [1e-6, 2e-2, 5e-2]
    fault = fault_of(turns, norm=1.0, moved=0.1)
    assert "differ from the plain loop's by 2.0e-02, at worst 5.0e-02" in str(fault)
    turns.updates_differ = [1e-6, 2e-6, 0.5]
    assert fault_of(turns, norm=1.0, moved=0.1) is not None


def test_equal_runs_on_two_ledgers_must_have_equal_heads(tmp_path: Path) -> None:
    task = TASKS["CMFL"]
    memory, chain = (turns_of(one, heads=["0x1", "0x2"]) for one in task.contenders[:2])
    assert compare(task, [memory, chain], tmp_path) == []
    chain.results.append({"heads": ["0x1", "0x3"]})
    assert compare(task, [memory, chain], tmp_path) == ["CMFL: equal runs have come to other heads"]


def test_a_sketch_tells_how_far_two_updates_are_apart() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 10_000), dtype=np.float32)
    apart = np.linalg.norm(sketch(one) - sketch(other))
    # Of 64 numbers: a tenth of the length is one standard deviation of its chance.
    assert apart == pytest.approx(np.linalg.norm(one - other), rel=0.3)
    assert np.array_equal(sketch(one), sketch(one.copy()))
    assert json.dumps(sketch(np.zeros(3, dtype=np.float32)).tolist()).count("0.0") == 64
