"""The one line that an auditor keeps, and the note that a home keeps: what a roll-back meets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.anchors import MAX_REPORT_BYTES, EarlierReportError, read_report
from ledger.audit.checks.chain import (
    EARLIER_BLOCK_DIFFERS,
    EARLIER_HEAD_DIFFERS,
    HEAD_NOTE_UNREADABLE,
    KEPT_HEAD_ABSENT,
    ROLLED_BACK,
)
from ledger.audit.checks.rounds import COMMITMENTS, DISTANCES, FALSE_SCORES, ROUNDS_DECIDED, VOTES
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, BlobKind, StepOutcome
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import connect
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import ChainDamagedError
from ledger.protocol.encoding import sha256
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided
from ledger.protocol.types import Digest
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs, kinds
from tests.audit.forged_chain import ForgedChain, forged
from tests.audit.runs import Deviation, Run, contradiction_in
from tests.faults import times


def heads_of(run: Run) -> list[tuple[int, str, Digest]]:
    recorded = run.ledger.recorded_in(0, run.chain.head().number)
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


def test_an_older_chain_beside_a_newer_note_contradicts(tmp_path: Path) -> None:
    run, file = Run.opened(tmp_path).play(), tmp_path / "chain.sqlite"
    run.chain.close()
    older = file.read_bytes()
    with type(run.chain).open(file, synchronous="NORMAL") as again:
        again.mine(1)
    file.write_bytes(older)
    with EmbeddedReader.open(file) as chain:
        report = audit(connect(chain, run.manifest), run.blobs)
    contradiction = contradiction_in(report, AuditStep.HEAD)
    assert contradiction.fact == ROLLED_BACK
    assert "the chain lacks it (it ends with block" in contradiction.sentence


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


# An audit that builds on an earlier one: what it takes from its report, and what it never does.


TRUSTED = 2
ENDED = 4


@dataclass
class Grown:
    """A run of four rounds, and what an audit said of it when two had ended.

    Attributes:
        old: a copy as it was then.
        older: a copy as it was before the second round ended.
    """

    run: Run
    report: bytes
    old: Run
    older: Run

    def edited(self, change: Callable[[dict[str, Any]], None]) -> bytes:
        """Return the report with a change by somebody who knows its form."""
        report = json.loads(self.report)
        change(report)
        return json.dumps(report).encode()

    def since(self, report: bytes, gone: frozenset[Digest] = frozenset()) -> AuditReport:
        blobs = ChangedBlobs(self.run.blobs, dict.fromkeys(gone))
        return audit(self.run.ledger, blobs, earlier=read_report(report))


def written(report: AuditReport) -> bytes:
    return json.dumps(report.as_dict(), indent=1).encode()


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    run = Run.on_revm(tmp_path_factory.mktemp("grown")).play()
    older = run.branched()
    run.play()
    report = written(audit(run.ledger, run.blobs))
    old = run.branched()
    run.play(Deviation(vectors=dev.scaled(2.0))).play()
    return Grown(run, report, old, older)


def test_only_later_rounds_are_checked_and_the_report_says_so(grown: Grown) -> None:
    found, whole = grown.since(grown.report), audit(grown.run.ledger, grown.run.blobs)
    assert found.outcome is AuditOutcome.PASSED, readable(found)
    assert (found.rounds, whole.rounds) == (ENDED, ENDED)
    built_on = found.built_on
    assert built_on is not None
    assert (built_on.rounds, built_on.audits, built_on.found) == (TRUSTED, 1, True)
    assert built_on.report == f"0x{sha256(grown.report).hex()}"
    assert built_on.head == json.loads(grown.report)["deployment"]["head"]
    # All transactions are replayed again, half of the blobs are read.
    for count in (VOTES, COMMITMENTS, "transactions", ROUNDS_DECIDED):
        assert found.counts[count] == whole.counts[count]
    assert found.counts[DISTANCES] == whole.counts[DISTANCES] / 2
    assert found.findings == whole.findings, "those of later rounds: the earlier ones have none"
    assert found.finding_counts == {FALSE_SCORES.code: 1}


def test_only_blobs_of_later_rounds_are_requested(grown: Grown) -> None:
    records = kinds(grown.run)[BlobKind.RECORD]
    assert grown.since(grown.report, frozenset(records[:2])).outcome is AuditOutcome.PASSED
    for gone in records[2:]:
        found = grown.since(grown.report, frozenset({gone}))
        assert found.outcome is AuditOutcome.INCOMPLETE
        assert found.step(AuditStep.BLOBS).outcome is StepOutcome.NOT_CHECKABLE


def test_the_model_that_later_rounds_begin_with_must_exist(grown: Grown) -> None:
    gone = frozenset({kinds(grown.run)[BlobKind.MODEL][TRUSTED - 1]})
    found = grown.since(grown.report, gone)
    assert found.outcome is AuditOutcome.INCOMPLETE
    assert found.step(AuditStep.MODEL).outcome is StepOutcome.NOT_CHECKABLE


def test_a_report_may_build_on_one_that_builds_on_another(grown: Grown) -> None:
    second = grown.since(written(grown.since(grown.report)))
    assert second.outcome is AuditOutcome.PASSED
    assert second.built_on is not None
    assert (second.built_on.rounds, second.built_on.audits) == (ENDED, 2)
    assert "2 earlier audits for rounds 1 to 4" in second.built_on.sentence
    assert readable(second)[-1] == (
        "PASSED: no round has ended since the earlier audit, which this audit trusts"
    )


@pytest.mark.parametrize("copy", ["old", "older"])
def test_an_older_chain_copy_misses_the_head_of_the_report(grown: Grown, copy: str) -> None:
    """A copy from then is the run as it was; one from before, which lacks its block, is not."""
    ledger = getattr(grown, copy).ledger
    found = audit(ledger, grown.run.blobs, earlier=read_report(grown.report))
    step, built_on = found.step(AuditStep.HEAD), found.built_on
    assert built_on is not None
    if copy == "old":
        assert (found.outcome, built_on.found) == (AuditOutcome.PASSED, True), readable(found)
        return
    assert (found.outcome, built_on.found) == (AuditOutcome.FAILED, False), readable(found)
    assert step.contradiction is not None
    assert step.contradiction.fact == KEPT_HEAD_ABSENT
    assert "The last head of the earlier audit, 0x" in built_on.sentence


def forked_report(folder: Path, go_on: Callable[[Run], None]) -> bytes:
    """Return the report of another branch of the deployment, on which it can be built."""
    fork = Run.on_revm(folder)
    go_on(fork)
    report = written(audit(fork.ledger, fork.blobs))
    own = audit(fork.ledger, fork.blobs, earlier=read_report(report))
    assert own.outcome is AuditOutcome.PASSED, readable(own)
    return report


def test_a_report_of_another_fork_contradicts(grown: Grown, tmp_path: Path) -> None:
    """Same contract and genesis, as in every fresh home; another second round."""

    def go_on(fork: Run) -> None:
        fork.play()
        fork.play(Deviation(views=(1, 0)))

    step = grown.since(forked_report(tmp_path, go_on)).step(AuditStep.HEAD)
    assert step.contradiction is not None
    assert (step.contradiction.fact, step.contradictions) == (EARLIER_BLOCK_DIFFERS, 2)
    assert step.contradiction.sentence.startswith("the earlier audit ended with block 6, 0x")
    assert step.contradiction.sentence.endswith("here: this is another branch or another chain")


def test_branch_with_equal_heads_in_other_blocks_contradicts(grown: Grown, tmp_path: Path) -> None:
    """A head does not say in which block it came about; the report's block hash does."""

    def go_on(fork: Run) -> None:
        fork.chain.mine(1)
        fork.play()
        fork.play()

    report = forked_report(tmp_path, go_on)
    heads = [json.loads(one)["deployment"]["head"] for one in (report, grown.report)]
    assert heads[0] == heads[1]
    step = grown.since(report).step(AuditStep.HEAD)
    assert step.contradiction is not None
    assert (step.contradiction.fact, step.contradictions) == (EARLIER_BLOCK_DIFFERS, 1)


def field(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(report: Any) -> None:
        for name in path[:-1]:
            report = report[name]
        report[path[-1]] = to

    return change


def failed(report: dict[str, Any]) -> None:
    report["outcome"], report["steps"][4]["outcome"] = "failed", "failed"


def more_rounds(report: dict[str, Any]) -> None:
    report["rounds"], report["counts"]["rounds decided"] = 3, 3


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (failed, "outcome is 'failed', must be passed"),
        (field("steps", 5, "outcome", to="not checkable"), "step 6, outcome is 'not checkable'"),
        (field("steps", 5, "contradictions", to=True), "contradictions is True, must be 0"),
        (field("steps", 0, "number", to=2), "step 1, number is 2, must be 1"),
        (field("steps", to=[]), "steps must be a list of 10"),
        (field("version", to=2), "has version 2, and only version 3"),
        (field("rounds", to=3), "has 3 rounds, but counts 2 decided and 0"),
        (more_rounds, "counts 3 ended rounds by the head"),
        (field("deployment", "head", to="0x12"), "head is '0x12', must be text of the form"),
        (field("deployment", "address", to="0x" + "11" * 20), "has contract 0x1111"),
        (field("deployment", "chain_id", to=1), "has chain id 1, and the audited run"),
        (field("deployment", "genesis_hash", to="0x" + "11" * 32), "has genesis block 0x11"),
        (field("kept_head", to={"found": False}), "kept_head, found is False, must be True"),
        (field("built_on", to={"found": True}), "built_on, audits is missing"),
    ],
)
def test_an_unusable_earlier_report_is_refused_by_value_and_rule(
    grown: Grown, change: Callable[[dict[str, Any]], None], rule: str
) -> None:
    with pytest.raises(EarlierReportError) as refused:
        grown.since(grown.edited(change))
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b"null", b"[]", b"{}", b"\xff", bytes(MAX_REPORT_BYTES + 1)]
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(EarlierReportError, match="the earlier report"):
        read_report(data)


def test_another_head_of_the_same_run_contradicts(grown: Grown) -> None:
    """A report whose head was put forward, so that less would be checked, names another block."""
    head = f"0x{grown.run.ledger.state().head.hex()}"
    found = grown.since(grown.edited(field("deployment", "head", to=head)))
    assert found.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(found, AuditStep.HEAD)
    assert contradiction.fact == EARLIER_HEAD_DIFFERS


def test_a_strict_audit_builds_on_no_report_with_remarks(grown: Grown) -> None:
    report = grown.edited(field("remarks", to=1))
    assert grown.since(report).outcome is AuditOutcome.PASSED
    with pytest.raises(EarlierReportError, match="has 1 remarks, so a strict audit"):
        audit(grown.run.ledger, grown.run.blobs, strict=True, earlier=read_report(report))


@settings(max_examples=times(12, 1000))
@given(st.data())
def test_changed_report_never_passes_more_rounds(grown: Grown, data: st.DataObject) -> None:
    """Whatever one value is put in the place of another, no later round goes unchecked."""
    report = json.loads(grown.report)
    place = report if data.draw(st.booleans()) else report["deployment"]
    name = data.draw(st.sampled_from(sorted(place)))
    place[name] = data.draw(
        st.none() | st.booleans() | st.integers(-1, 60) | st.text(max_size=3) | st.just({})
    )
    try:
        earlier = read_report(json.dumps(report).encode())
        # A chain id or address that is none of this run's is refused here.
        found = audit(grown.run.ledger, grown.run.blobs, earlier=earlier)
    except EarlierReportError:
        return
    true = read_report(grown.report)
    is_same = replace(earlier, report=true.report, remarks=true.remarks) == true
    assert found.outcome is (AuditOutcome.PASSED if is_same else AuditOutcome.FAILED), readable(
        found
    )
