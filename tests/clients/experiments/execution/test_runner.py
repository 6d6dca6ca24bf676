"""An experiment is run once, whoever is killed; a cell that was on a chain comes out again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from clients.experiments.cells import (
    RepeatedCell,
    play_cell,
    portable,
    saved_file_differences,
)
from clients.experiments.plan import ExperimentPlan, Job
from clients.experiments.rows import CellRow, CellSeconds, ChainEvidence, ExperimentRows, read_rows
from clients.experiments.run import (
    ExperimentProgress,
    RowStore,
    repeat_cell,
    require_data,
    run_experiment,
)
from ledger.audit.report import AuditOutcome
from ledger.io.home import Home
from ledger.io.processes import task_pool
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.minis import plan_of

pytestmark = pytest.mark.xdist_group("experiments")


@dataclass(frozen=True)
class Finished:
    plan: ExperimentPlan
    store: RowStore
    progress: ExperimentProgress


def run_here(
    plan: ExperimentPlan,
    store: RowStore,
    on_progress: Callable[[ExperimentProgress], None] = lambda _: None,
) -> ExperimentProgress:
    with task_pool(1) as here:
        return run_experiment(plan, store, here, on_progress)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    plan, store = plan_of(), RowStore(tmp_path_factory.mktemp("experiments"), "mini")
    return Finished(plan, store, run_here(plan, store))


NO_TIME = CellSeconds(wall=0.0, cpu=0.0)


def timeless(rows: tuple[CellRow, ...]) -> dict[str, CellRow]:
    """Return rows by their cells, without what no run repeats."""
    return {row.cell: replace(row, seconds=NO_TIME) for row in rows}


def copied(finished: Finished, folder: Path) -> RowStore:
    shutil.copytree(finished.store.out, folder, dirs_exist_ok=True)
    return RowStore(folder, "mini")


def test_every_cell_has_one_row_and_one_rate_is_chosen(finished: Finished) -> None:
    rows = finished.store.rows()
    assert [row.cell for row in rows.cells] == [cell.name for cell in finished.plan.cells]
    assert [row.digest for row in rows.cells] == [cell.digest for cell in finished.plan.cells]
    assert [row.cell for row in rows.trials] == [trial.name for trial in finished.plan.trials]
    (choice,) = rows.choices
    rates = {row.method: row.learning_rate for row in rows.cells}
    assert rates == {"CMFL-I": 0.5 * choice.factor, "FedAvg (n)": 0.5}
    progress = finished.progress
    assert progress.done == progress.rounds == 2 * (8 + 2)
    assert not progress.failures


def test_the_first_seed_of_cmfl_is_audited_on_its_chain(finished: Finished) -> None:
    rows = finished.store.rows().cells
    recorded = [row for row in rows if row.ledger is not None]
    assert [row.cell for row in recorded] == [
        "CMFL-I__clean__seed200",
        "CMFL-I__back-gradient__seed200",
    ]
    evidence = [row.ledger for row in recorded if row.ledger is not None]
    assert {one.verdict for one in evidence} == {"passed"}
    assert len({one.chain_id for one in evidence}) == 2
    for one in evidence:
        kept = finished.store.out / one.report
        assert one.head in kept.read_text()
        assert (finished.store.out / one.configuration).is_file()
        assert sorted(path.name for path in kept.parent.iterdir()) == ["config.toml", "report.json"]


def test_a_chain_run_has_the_numbers_of_a_memory_run(finished: Finished) -> None:
    rows = finished.store.rows()
    cell = replace(finished.plan.cells[2], is_recorded=False)
    job = Job(cell, rows.choices[0].factor)
    again = play_cell(job, finished.store.folder, None, lambda: None)
    there = rows.cells[2]
    assert there.ledger is not None
    assert replace(again, seconds=NO_TIME) == replace(there, seconds=NO_TIME, ledger=None)


def test_what_has_its_row_is_not_run_again(finished: Finished) -> None:
    data = finished.store.path.read_bytes()
    seen: list[ExperimentProgress] = []
    progress = run_here(finished.plan, finished.store, seen.append)
    assert (progress.rounds, progress.done, progress.rows, seen) == (0, 0, [], [])
    assert finished.store.path.read_bytes() == data


def test_more_seeds_add_rows_and_change_none(finished: Finished, tmp_path: Path) -> None:
    store = copied(finished, tmp_path)
    run_here(plan_of(seeds=3), store)
    rows = store.rows().cells
    assert rows[:8] == finished.store.rows().cells
    assert {row.seed for row in rows[8:]} == {202}
    assert not any(row.ledger for row in rows[8:])


def test_a_killed_process_loses_the_cells_in_flight_alone(tmp_path: Path) -> None:
    plan = plan_of(('conditions = ["clean"]', ""), is_quick=True)
    store = RowStore(tmp_path, "mini")

    def kill(progress: ExperimentProgress) -> None:
        if progress.done == 3:  # after the only round of a cell on a chain, before its audit
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:  # pragma: no cover - nothing of it survives
        try:
            run_here(plan, store, kill)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    left = store.folder / "CMFL-I__back-gradient__seed200" / "home"
    assert left.is_dir()
    there = store.rows().cells
    assert [row.cell for row in there] == ["CMFL-I__clean__seed200", "FedAvg-n__clean__seed200"]
    progress = run_here(plan, store)
    assert progress.rounds == 2
    assert store.rows().cells[:2] == there
    assert [row.cell for row in store.rows().cells] == [cell.name for cell in plan.cells]
    assert not left.exists()


def test_a_half_written_row_is_cut_off_and_made_again(finished: Finished, tmp_path: Path) -> None:
    store = copied(finished, tmp_path)
    lines = store.path.read_bytes().splitlines(keepends=True)
    store.path.write_bytes(b"".join(lines[:-3]) + lines[-3][:100])
    progress = run_here(finished.plan, store)
    assert [row.cell for row in progress.rows] == [c.name for c in finished.plan.cells[-3:]]
    assert timeless(store.rows().cells) == timeless(finished.store.rows().cells)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("protocol.rounds=2", "protocol.rounds=3"), "CMFL-I__clean__seed200 (0x"),
        (("malicious_rate=0.1", "malicious_rate=0.2"), "CMFL-I__back-gradient__seed200 (0x"),
    ],
)
def test_a_changed_experiment_is_refused_and_nothing_is_lost(
    finished: Finished, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    store = copied(finished, tmp_path)
    data = store.path.read_bytes()
    with pytest.raises(ConfigurationError, match="experiment mini has changed since") as refused:
        run_here(plan_of(change), store)
    assert said in str(refused.value)
    assert store.path.read_bytes() == data


def test_a_choice_contradicting_its_trials_is_refused(finished: Finished, tmp_path: Path) -> None:
    store, rows = RowStore(tmp_path, "mini"), finished.store.rows()
    for trial in rows.trials:
        store.add(trial)
    store.add(replace(rows.choices[0], factor=9.0))
    with pytest.raises(ConfigurationError, match="CMFL-I is not what its trials say; restore its"):
        run_here(finished.plan, store)


def test_two_processes_do_not_add_to_the_same_rows(finished: Finished, tmp_path: Path) -> None:
    first, second = RowStore(tmp_path, "mini"), RowStore(tmp_path, "mini")
    with first.writing(), pytest.raises(ConfigurationError, match="another process runs exp"):
        run_here(finished.plan, second)
    with second.writing():
        assert not read_rows(second.path).cells


def test_a_cell_that_cannot_be_carried_out_stops_no_other(tmp_path: Path) -> None:
    # That a model has no million segments is known only once there is a model.
    plan = plan_of(
        ('kind = "federated"', 'kind = "gossip"\noptions = {segments = 1000000}'), is_quick=True
    )
    store = RowStore(tmp_path, "mini")
    progress = run_here(plan, store)
    assert [row.cell for row in store.rows().cells] == ["CMFL-I__clean__seed200"]
    (failure,) = progress.failures
    assert failure.job == "FedAvg-n__clean__seed200"
    assert "at most the 650 numbers of the model" in failure.reason
    assert run_here(plan, store).failures == [failure], "it is tried again"


def test_unfit_data_are_refused_before_the_first_run(finished: Finished) -> None:
    plan = plan_of(("protocol.rounds=2", "evaluation.samples=100000"))
    with pytest.raises(ConfigurationError, match=r"clean__seed200: evaluation\.samples"):
        require_data(plan, ExperimentRows())
    require_data(plan_of(), ExperimentRows())
    require_data(finished.plan, finished.store.rows())


CELL = "CMFL-I__back-gradient__seed200"


def test_an_honest_row_is_reproduced_a_changed_one_told(finished: Finished, tmp_path: Path) -> None:
    rounds: list[None] = []
    home = tmp_path / "home"
    found = repeat_cell(finished.plan, finished.store, CELL, home, lambda: rounds.append(None))
    assert (found.outcome, found.differing, len(rounds)) == (AuditOutcome.PASSED, (), 2)
    assert Home(home).chain.exists()
    assert Home(home).run("run").manifest.exists()
    evidence = found.row.ledger
    assert evidence is not None
    assert found.report.as_dict()["deployment"]["head"] == evidence.head
    # The report that was kept is the report that a stranger gets.
    assert f'"{found.report.as_dict()["deployment"]["head_block_hash"]}"' in (
        finished.store.out / evidence.report
    ).read_text("utf-8")

    _alter_what_is_kept(finished.store, found, evidence)

    lie = replace(found.row, final=0.99, ledger=replace(evidence, head="0x00"))
    told = RepeatedCell(lie, found.again, found.report)
    assert told.outcome is AuditOutcome.FAILED
    assert told.differing[0].startswith("head: 0x00, and now 0x")
    assert told.differing[1].startswith("final: 0.99, and now 0.")
    assert len(told.differing) == 2

    # Nothing that figures and reports are made from can be altered unseen; seconds are measured.
    for name in (one.name for one in fields(found.row)):
        change: dict[str, Any] = {name: evidence if name == "ledger" else "other"}
        other = replace(found.row, **change)
        expected = set() if name in {"seconds", "ledger"} else {name}
        told = RepeatedCell(other, found.again, found.report)
        assert {line.partition(":")[0] for line in told.differing} == expected
    for name in ("verdict", "report", "configuration"):
        change = {name: "other"}
        other = replace(found.row, ledger=replace(evidence, **change))
        assert (
            RepeatedCell(other, found.again, found.report).differing[0].startswith(f"{name}: other")
        )


def _alter_what_is_kept(store: RowStore, found: RepeatedCell, evidence: ChainEvidence) -> None:
    kept_toml, kept_json = store.out / evidence.configuration, store.out / evidence.report
    text = kept_toml.read_text("utf-8")

    def told() -> list[str]:
        return saved_file_differences(store.out, evidence, text, found.report)

    assert told() == []
    for path, old, new, said in (
        (kept_toml, "learning_rate = ", "learning_rate = 7", "training: {"),
        (kept_toml, "workers = 1", "workers = 2", None),  # changes no result
        (kept_json, '_hash": "0x', '_hash": "0xff', "_hash: 0xff"),
        (kept_json, "{", "[", "cannot be read: JSONDecodeError"),
    ):
        before = path.read_text("utf-8")
        assert old in before
        path.write_text(before.replace(old, new, 1), "utf-8")
        said_now = told()
        path.write_text(before, "utf-8")
        assert [said in line for line in said_now] == [True] if said else said_now == []
    moved = kept_json.rename(f"{kept_json}.away")
    assert told() == ["report.json of the row cannot be read: FileNotFoundError"]
    moved.rename(kept_json)
    assert RepeatedCell(found.row, found.again, found.report, ("x",)).outcome is AuditOutcome.FAILED


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("CMFL-I__clean__seed201", "was not on a chain; only the first seed of each CMFL cell is"),
        ("CMFL-II__clean__seed200", "experiment mini has no cell 'CMFL-II__clean__seed200'"),
    ],
)
def test_what_is_on_no_chain_is_not_told(
    finished: Finished, tmp_path: Path, cell: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        repeat_cell(finished.plan, finished.store, cell, tmp_path / "home", lambda: None)
    assert not (tmp_path / "home").exists()


def test_a_cell_without_row_or_of_another_is_refused(finished: Finished, tmp_path: Path) -> None:
    changed = plan_of(("protocol.rounds=2", "protocol.rounds=3"))
    with pytest.raises(ConfigurationError, match="has changed since its row was written"):
        repeat_cell(changed, finished.store, CELL, tmp_path / "home", lambda: None)
    with pytest.raises(ConfigurationError, match="has no row of cell"):
        repeat_cell(
            finished.plan, RowStore(tmp_path, "mini"), CELL, tmp_path / "home", lambda: None
        )


def test_a_row_without_the_choice_of_its_rate_is_refused(finished: Any, tmp_path: Path) -> None:
    alone = RowStore(tmp_path, "mini")
    lines = finished.store.path.read_text("utf-8").splitlines(keepends=True)
    alone.path.write_text("".join(one for one in lines if '"row": "choice"' not in one), "utf-8")
    with pytest.raises(ConfigurationError, match="no choice of a learning rate for CMFL-I"):
        repeat_cell(finished.plan, alone, CELL, tmp_path / "home", lambda: None)


def test_a_stored_configuration_names_no_local_folder(tmp_path: Path) -> None:
    configuration = plan_of().cells[0].configuration
    data = configuration.data.model_copy(update={"path": f"{tmp_path}/digits.npz"})
    text = portable(configuration.model_copy(update={"data": data}), tmp_path)
    assert 'path = "{data}/digits.npz"' in text
    assert str(tmp_path) not in text
