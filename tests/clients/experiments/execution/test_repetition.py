"""A cell that was on a chain comes out again, or what differs is named."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from clients.experiments.execution.chain_run import portable
from clients.experiments.execution.repetition import (
    RepeatedCell,
    repeat_cell,
    saved_file_differences,
)
from clients.experiments.execution.row_store import RowStore
from ledger.audit.report import AuditOutcome
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.minis import plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from clients.experiments.rows import ChainEvidence
    from tests.clients.experiments.execution.conftest import Finished

pytestmark = pytest.mark.xdist_group("experiments")

CELL = "CMFL-I__back-gradient__seed200"


def test_an_honest_row_is_reproduced_and_a_changed_one_reported(
    finished: Finished, tmp_path: Path
) -> None:
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
    # A row of an earlier version names no attack.
    attacked = replace(found.again, attack="alie")
    assert RepeatedCell(replace(found.row, attack=None), attacked, found.report).differing == ()
    for name in ("verdict", "report", "configuration"):
        change = {name: "other"}
        other = replace(found.row, ledger=replace(evidence, **change))
        assert (
            RepeatedCell(other, found.again, found.report).differing[0].startswith(f"{name}: other")
        )


def _alter_what_is_kept(store: RowStore, found: RepeatedCell, evidence: ChainEvidence) -> None:
    """Change each kept file, and look that it is told; then put it back."""
    kept_toml, kept_json = store.out / evidence.configuration, store.out / evidence.report
    text = kept_toml.read_text("utf-8")

    def told() -> list[str]:
        return saved_file_differences(store.out, evidence, text, found.report)

    assert told() == []
    for path, old, new, said in (
        (kept_toml, "learning_rate = ", "learning_rate = 7", "training: {"),
        (kept_toml, "workers = 1", "workers = 2", None),  # changes no result
        (
            kept_json,
            '"outcome": "passed"',
            '"outcome": "failed"',
            "outcome: failed, and now passed",
        ),
        (
            kept_json,
            '"genesis_hash": "0x',
            '"genesis_hash": "0xff',
            "deployment: genesis_hash: 0xff",
        ),
        (kept_json, "{", "[", "cannot be read: JSONDecodeError"),
        (kept_toml, "[protocol]", "[protocol", "cannot be read: TOMLDecodeError"),
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
        ("CMFL-I__clean__seed201", "was on no chain: only the first seed of CMFL's cells is"),
        ("CMFL-II__clean__seed200", "experiment mini has no cell 'CMFL-II__clean__seed200'"),
    ],
)
def test_what_was_on_no_chain_is_not_audited(
    finished: Finished, tmp_path: Path, cell: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        repeat_cell(finished.plan, finished.store, cell, tmp_path / "home", lambda: None)
    assert not (tmp_path / "home").exists()


def test_cell_without_a_row_or_with_another_version_is_refused(
    finished: Finished, tmp_path: Path
) -> None:
    changed = plan_of(("protocol.rounds=2", "protocol.rounds=3"))
    with pytest.raises(ConfigurationError, match="has changed since its row was written"):
        repeat_cell(changed, finished.store, CELL, tmp_path / "home", lambda: None)
    with pytest.raises(ConfigurationError, match="has no row of cell"):
        repeat_cell(
            finished.plan, RowStore(tmp_path, "mini"), CELL, tmp_path / "home", lambda: None
        )


def test_a_cell_of_another_protocol_version_is_refused_unplayed(
    finished: Finished, tmp_path: Path
) -> None:
    row = next(row for row in finished.store.rows().cells if row.cell == CELL)
    assert row.ledger is not None
    kept = finished.store.out / row.ledger.report
    text = kept.read_text("utf-8")
    for other in ('"protocol": 2,', ""):  # version 1 did not say
        assert '"protocol": 3,' in text
        kept.write_text(text.replace('"protocol": 3,', other), "utf-8")
        try:
            with pytest.raises(ConfigurationError, match=r"is of protocol version [12], and this"):
                repeat_cell(finished.plan, finished.store, CELL, tmp_path / "home", lambda: None)
        finally:
            kept.write_text(text, "utf-8")
    assert not (tmp_path / "home").exists()


def test_a_row_without_the_choice_of_its_rate_is_refused(
    finished: Finished, tmp_path: Path
) -> None:
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
