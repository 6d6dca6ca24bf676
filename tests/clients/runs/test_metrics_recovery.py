"""The rows of a run that is taken up: made again, kept, or proof that its chain was taken back."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import OpenedRun, open_run
from clients.runs.run_folder import manifest_of
from ledger.actors.journal import FileJournal, begin_run, require_journal
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainRolledBackError
from ledger.io.home import Home, RunPaths
from ledger.protocol.errors import BlobMissingError, ChainError, JournalError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import NO_DIGEST
from ledger.storage.blobs import FolderBlobs

ROUNDS = 4


class EnoughError(BaseException):
    """What ends a session after a round."""


@dataclass(frozen=True)
class Lived:
    path: Path
    decided: dict[int, str] = field(default_factory=dict)

    @property
    def run(self) -> RunPaths:
        return Home(self.path).run("run")

    def play(self, until: int = ROUNDS, *, accept_rollback: bool = False) -> OpenedRun:
        def watch(row: RoundMetrics) -> None:
            if row.round == until < ROUNDS:
                raise EnoughError

        configuration = load("smoke", settings=(f"protocol.rounds={ROUNDS}",))
        with (
            EmbeddedChain.open_or_create(self.path / "chain.sqlite") as chain,
            open_run(
                *(self.path, "run", configuration, chain, FolderBlobs(self.path / "blobs")),
                accept_rollback=accept_rollback,
            ) as run,
        ):
            with suppress(EnoughError):
                run.go_on(watch)
            self.decided.update({e.round: e.model.hex() for e in decisions(run)})
            return run

    def model(self, number: int) -> Path:
        digest = self.decided[number]
        return self.path / "blobs" / digest[:2] / digest

    def rows(self) -> list[int]:
        lines = self.run.metrics.read_bytes().splitlines()
        return [json.loads(line)["round"] for line in lines]

    def copy(self, target: Path) -> Lived:
        return Lived(Path(shutil.copytree(self.path, target)), dict(self.decided))

    def put_chain_back(self, folder: Path) -> None:
        for path in self.path.glob("chain.sqlite*"):
            path.unlink()
        for path in folder.glob("chain.sqlite*"):
            shutil.copy(path, self.path)


def decisions(run: OpenedRun) -> list[RoundDecided]:
    events = [found.event for found in run.ledger.outcomes(ROUNDS, descending=False)]
    return [event for event in events if isinstance(event, RoundDecided)]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lived, Lived]:
    folder = tmp_path_factory.mktemp("sessions")
    (folder / "begun").mkdir()
    begun = Lived(folder / "begun")
    begun.play(2)
    ended = begun.copy(folder / "ended")
    ended.play()
    return begun, ended


@pytest.fixture
def begun(sessions: tuple[Lived, Lived], tmp_path: Path) -> Lived:
    return sessions[0].copy(tmp_path / "home")


@pytest.fixture
def ended(sessions: tuple[Lived, Lived], tmp_path: Path) -> Lived:
    return sessions[1].copy(tmp_path / "home")


@pytest.fixture
def taken_back(ended: Lived, sessions: tuple[Lived, Lived]) -> Lived:
    """A finished run whose chain is that of a backup from after the second round."""
    ended.put_chain_back(sessions[0].path)
    return ended


# A chain that was taken back.


def test_a_chain_lacking_rounds_of_the_rows_is_refused(taken_back: Lived) -> None:
    rows = taken_back.run.metrics.read_bytes()
    with pytest.raises(ChainRolledBackError) as caught:
        taken_back.play()
    said = str(caught.value)
    assert f"{taken_back.run.metrics} has round 3 with head 0x" in said
    assert "the chain no such round (2 rounds have ended there)" in said
    assert "--accept-rollback" in said
    assert taken_back.run.metrics.read_bytes() == rows


def test_who_means_it_goes_on_and_keeps_the_rows_aside(taken_back: Lived) -> None:
    rows = taken_back.run.metrics.read_bytes()
    taken_back.play(accept_rollback=True)
    aside = taken_back.run.path / "metrics.before-rollback-1.jsonl"
    assert aside.read_bytes() == rows
    assert taken_back.rows() == [1, 2, 3, 4]
    taken_back.play(accept_rollback=True)  # there is nothing to accept any more
    assert [path.name for path in taken_back.run.path.glob("*rollback*")] == [aside.name]


def test_an_equally_long_chain_with_another_history_is_refused(ended: Lived) -> None:
    lines = ended.run.metrics.read_bytes().splitlines(keepends=True)
    head = json.loads(lines[1])["head"]
    other = f"0x{'ab' * 32}"
    lines[1] = lines[1].replace(head.encode(), other.encode())
    ended.run.metrics.write_bytes(b"".join(lines))
    said = f"has round 2 with head {other}, the chain {head} \\(4 rounds have ended there\\)"
    with pytest.raises(ChainRolledBackError, match=said):
        ended.play()
    ended.play(accept_rollback=True)
    assert json.loads(ended.run.metrics.read_bytes().splitlines()[1])["head"] == head


def test_a_resumed_run_removes_doubled_rows(ended: Lived, caplog: pytest.LogCaptureFixture) -> None:
    rows = ended.run.metrics.read_bytes()
    lines = rows.splitlines(keepends=True)
    ended.run.metrics.write_bytes(b"".join([*lines[:3], lines[1], *lines[3:], lines[3]]))
    ended.play()
    assert ended.run.metrics.read_bytes() == rows
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "more than one row of round 2, 4; only the first row of a round counts"
    ]


# What a resumed run needs, and what not.


def test_records_and_models_of_past_rounds_are_not_needed(begun: Lived) -> None:
    for path in (begun.path / "blobs").glob("*/*"):
        if path != begun.model(2):
            path.unlink()
    assert begun.play().without_row == ()
    assert begun.rows() == [1, 2, 3, 4]


def test_a_row_without_its_model_is_named_and_stops_nobody(begun: Lived) -> None:
    begun.model(1).write_bytes(b"torn")
    begun.run.metrics.write_bytes(begun.run.metrics.read_bytes()[200:])
    assert begun.play(3).without_row == (1,)
    assert begun.rows() == [2, 3]
    assert begun.play().without_row == (1,)
    assert begun.rows() == [2, 3, 4]


def test_the_model_of_the_open_round_is_needed(begun: Lived) -> None:
    begun.model(2).unlink()
    with pytest.raises(BlobMissingError, match=begun.model(2).name):
        begun.play()


def test_a_finished_run_needs_no_blob_for_its_model(ended: Lived) -> None:
    ended.model(ROUNDS).unlink()
    assert ended.play().without_row == ()
    ended.run.model.write_bytes(ended.run.model.read_bytes()[:-1])
    with pytest.raises(BlobMissingError):
        ended.play()


@pytest.mark.parametrize("left", ["metrics", "journal", "model"])
def test_a_run_without_its_manifest_is_not_deployed_again(ended: Lived, left: str) -> None:
    kept = getattr(ended.run, left)
    for path in ended.run.path.iterdir():
        if path not in {kept, ended.run.configuration}:
            path.unlink()
    with pytest.raises(ChainError, match=f"was played .{kept.name} exists.; restore it"):
        ended.play()


@pytest.mark.parametrize("empty", [False, True])
def test_keys_whose_journal_is_lost_sign_nothing_any_more(begun: Lived, empty: bool) -> None:
    journal, rows = begun.run.journal.read_bytes(), begun.run.metrics.read_bytes()
    begun.run.journal.unlink()
    if empty:
        begun.run.journal.touch()
    with pytest.raises(JournalError, match="was played; restore it"):
        begun.play()
    assert begun.run.metrics.read_bytes() == rows
    begun.run.journal.write_bytes(journal)
    begun.play()
    begun.run.journal.unlink()
    begun.play()  # a finished run has nothing left to sign


def changed(journal: Path, *statements: str) -> None:
    with closing(sqlite3.connect(journal, isolation_level=None)) as base:
        for statement in statements:
            base.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM statements",
        "DELETE FROM statements WHERE place = (SELECT max(place) FROM statements)",
    ],
    ids=["all", "one"],
)
def test_keys_whose_journal_lacks_statements_sign_nothing_any_more(
    begun: Lived, statement: str
) -> None:
    rows, journal = begun.run.metrics.read_bytes(), begun.run.journal.read_bytes()
    changed(begun.run.journal, statement)
    with pytest.raises(JournalError, match="written to it; restore it in full"):
        begun.play()
    assert begun.run.metrics.read_bytes() == rows
    begun.run.journal.write_bytes(journal)
    begun.play()


def test_a_foreign_journal_counts_as_none(begun: Lived) -> None:
    begun.run.journal.unlink()
    another = FileJournal(begun.run.journal)
    domain = manifest_of(begun.path, "run").domain()
    begin_run(another, replace(domain, contract=type(domain.contract)(bytes(20))))
    another.close()
    with pytest.raises(JournalError, match="was played; restore it"):
        begun.play()
    changed(begun.run.journal, "DELETE FROM statements", "PRAGMA user_version = 0")
    with pytest.raises(JournalError, match="was played; restore it"):
        begun.play()


def test_a_run_that_workers_play_elsewhere_is_not_resumed(begun: Lived) -> None:
    while (left := begun.run.left_by_play()) is not None:
        left.unlink()
    with pytest.raises(JournalError, match="was played elsewhere, so its workers must continue it"):
        begun.play()


def test_rows_of_an_accepted_rollback_tell_that_keys_have_signed(begun: Lived) -> None:
    for path in (begun.run.journal, begun.run.metrics):
        path.unlink()
    aside = begun.run.metrics_before_rollback()
    with EmbeddedChain.open(begun.path / "chain.sqlite") as chain:
        state = CommitteeLedger(chain, manifest_of(begun.path, "run").address).state()
    unplayed = replace(state, round=1, commitments=NO_DIGEST)
    domain = manifest_of(begun.path, "run").domain()
    require_journal(begun.run, unplayed, domain)
    aside.touch()
    with pytest.raises(JournalError):
        require_journal(begun.run, unplayed, domain)


def test_a_run_without_its_contract_is_not_deployed_again(begun: Lived) -> None:
    for path in begun.path.glob("chain.sqlite*"):
        path.unlink()
    with pytest.raises(ChainError, match="the manifest is for the chain with genesis"):
        begun.play()
    with EmbeddedChain.open(begun.path / "chain.sqlite") as chain:
        assert chain.head().number == 0
