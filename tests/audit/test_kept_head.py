"""The one line that an auditor keeps, and the note that a home keeps: what a roll-back meets."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ledger.audit.checks.head_chain import HEAD_NOTE_UNREADABLE, KEPT_HEAD_ABSENT, ROLLED_BACK
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditStep
from ledger.audit.report_text import readable
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.ports import ChainDamagedError
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided
from ledger.protocol.types import Digest
from tests.audit.forged_chain import ForgedChain, forged
from tests.audit.runs import Run, contradiction_in

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.report import AuditReport


def heads_of(run: Run) -> list[tuple[int, str, Digest]]:
    """Return every head that the run has had: its round, what made it, and the head."""
    recorded = run.ledger.events(0, run.chain.head().number)
    moved = (RoundDecided, RoundAbandoned, ClientBanned)
    made = [r.event for r in recorded if isinstance(r.event, moved)]
    return [
        (0, "", run.ledger.deployment().config),
        *((event.round, type(event).__name__, event.head) for event in made),
    ]


def test_a_run_passes_through_every_head_that_it_has_had(honest: Run) -> None:
    heads = heads_of(honest)
    assert {event for _, event, _ in heads} == {
        "",
        "RoundDecided",
        "RoundAbandoned",
        "ClientBanned",
    }
    for at, event, head in heads:
        report = audit(honest.ledger, honest.blobs, head=head)
        assert report.outcome is AuditOutcome.PASSED, readable(report)
        assert report.kept is not None
        assert (report.kept.found, report.kept.round, report.kept.event) == (True, at, event)
        shown = [line for line in readable(report) if "head that you kept" in line]
        assert shown == [report.kept.sentence]
        assert f"0x{head.hex()}" in shown[0]
        data = json.loads(json.dumps(report.as_dict()))
        assert data["kept_head"]["found"] is True


def test_a_head_that_the_run_never_had_contradicts(honest: Run) -> None:
    for other in (Digest(bytes(32)), honest.ledger.state().seed):
        report = audit(honest.ledger, honest.blobs, head=other)
        contradiction = contradiction_in(report, AuditStep.HEAD)
        assert contradiction.fact == KEPT_HEAD_ABSENT
        assert f"0x{other.hex()}" in contradiction.sentence
        assert report.kept is not None
        assert (report.kept.found, report.kept.round) == (False, None)
        assert "was not found" in str(readable(report))


@dataclass
class Copies:
    """A run, and its home as it was after its first round."""

    run: Run
    backup: Path
    head: Digest

    def audited(self, folder: Path, *, head: Digest | None = None) -> AuditReport:
        with EmbeddedReader.open(folder / "chain.sqlite") as chain:
            return audit(connect(chain, self.run.manifest), self.run.blobs, head=head)


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    (tmp_path / "home").mkdir()
    run = Run.opened(tmp_path / "home")
    run.play()
    run.chain.close()
    shutil.copytree(tmp_path / "home", tmp_path / "backup")
    with EmbeddedReader.open(tmp_path / "home" / "chain.sqlite") as chain:
        assert chain.acknowledged() is not None
    again = type(run.chain).open(tmp_path / "home" / "chain.sqlite", synchronous="NORMAL")
    with again:
        run.chain = again
        run.ledger = type(run.ledger)(again, run.ledger.address, run.ledger.from_block)
        run.play()
        head = run.ledger.state().head
    return Copies(run, tmp_path / "backup", head)


def test_an_older_chain_beside_a_newer_note_contradicts(copies: Copies) -> None:
    home = copies.backup.parent / "home"
    shutil.copy(copies.backup / "chain.sqlite", home / "chain.sqlite")
    report = copies.audited(home)
    contradiction = contradiction_in(report, AuditStep.HEAD)
    assert contradiction.fact == ROLLED_BACK
    assert "the chain does not have it, it ends with block" in contradiction.sentence


@dataclass
class Noting(ForgedChain):
    """A chain whose home has noted something."""

    noted: tuple[int, bytes] | None = None
    is_damaged: bool = False

    def acknowledged(self) -> Noted | None:
        if self.is_damaged:
            raise ChainDamagedError("the note is damaged")
        return None if self.noted is None else Noted(*self.noted)


@dataclass
class Noted:
    number: int
    hash: bytes


def with_note(
    run: Run, noted: tuple[int, bytes] | None, *, is_damaged: bool = False
) -> AuditReport:
    ledger = forged(run.ledger)
    ledger.chain = Noting(run.chain, noted=noted, is_damaged=is_damaged)
    return audit(ledger, run.blobs)


def test_noted_block_must_be_in_the_chain_with_its_hash(honest: Run) -> None:
    head = honest.chain.head()
    for block in (head, honest.chain.block(3)):
        assert with_note(honest, (block.number, block.hash)).outcome is AuditOutcome.PASSED
    assert with_note(honest, None).outcome is AuditOutcome.PASSED
    for noted in ((head.number + 1, bytes(32)), (3, bytes(32)), (head.number, bytes(32))):
        report = with_note(honest, noted)
        contradiction = contradiction_in(report, AuditStep.HEAD)
        assert contradiction.fact == ROLLED_BACK


def test_a_damaged_note_says_nothing_of_the_chain(honest: Run) -> None:
    report = with_note(honest, None, is_damaged=True)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    [missing] = report.step(AuditStep.HEAD).missing
    assert missing.need == HEAD_NOTE_UNREADABLE
    assert "the note is damaged" in missing.sentence


def test_a_growing_run_is_audited_as_of_its_first_head(tmp_path: Path) -> None:
    """The writer goes on between two rounds; what it writes is not in the snapshot."""
    run = Run.opened(tmp_path)
    with run.chain:
        run.play().play()
        head, ledger_head = run.chain.head(), run.ledger.state().head

        def go_on(_done: int, _total: int) -> None:
            run.chain.mine(2)
            run.ban(run.committee[0] if run.round == 3 else run.committee[1])
            run.round += 1

        run.round = 3
        with EmbeddedReader.open(tmp_path / "chain.sqlite") as chain:
            report = audit(connect(chain, run.manifest), run.blobs, AuditOptions(progress=go_on))
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert report.deployment["head_block"] == head.number
    assert report.deployment["head"] == f"0x{ledger_head.hex()}"
