"""A node that goes away once, whenever it is: the audit says so, and concludes nothing from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from ledger.audit.checks.common import CHAIN_UNAVAILABLE
from ledger.audit.checks.head_chain import CHAIN_UNREADABLE
from ledger.audit.earlier_report import read_report, report_bytes
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep, Need
from ledger.audit.report_text import readable
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError
from tests.audit.forged_chain import forged
from tests.audit.passed_on import PassedOn
from tests.audit.runs import Run, contradiction_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.earlier_report import EarlierAudit
    from ledger.audit.report import AuditReport
    from ledger.chain.ports import ChainReader
    from ledger.protocol.errors import ChainError

T = TypeVar("T")


class OnceAway(PassedOn):
    """A node that does not answer one call, and all others.

    Attributes:
        calls: how often each call was made.
    """

    def __init__(
        self,
        chain: ChainReader,
        name: str = "",
        number: int = 0,
        *,
        error: ChainError | None = None,
    ) -> None:
        self._chain = chain
        self._away = (name, number)
        self._error = ChainUnreachableError("the node went away") if error is None else error
        self.calls: dict[str, int] = {}

    @property
    def true(self) -> ChainReader:
        return self._chain

    def passed(self, name: str, ask: Callable[[ChainReader], T], *_asked: object) -> T:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self._away == (name, self.calls[name]):
            raise self._error
        return ask(self._chain)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.on_revm(tmp_path_factory.mktemp("lost")).play()


def audited(run: Run, node: OnceAway, earlier: EarlierAudit | None = None) -> AuditReport:
    ledger = CommitteeLedger(node, run.ledger.address, run.ledger.from_block)
    return audit(ledger, run.blobs, earlier=earlier)


def needs(report: AuditReport) -> set[Need]:
    return {missing.need for step in report.steps for missing in step.missing}


def test_whatever_answer_is_lost_the_chain_is_missing(run: Run) -> None:
    node = OnceAway(run.chain)
    report = audited(run, node)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    for name in ("code", "call", "logs", "transaction"):
        assert node.calls[name] > 0
        for number in range(1, node.calls[name] + 1):
            report = audited(run, OnceAway(run.chain, name, number))
            assert report.outcome is AuditOutcome.INCOMPLETE, (name, number, readable(report))
            assert CHAIN_UNAVAILABLE in needs(report), (name, number, readable(report))


def test_a_chain_that_contradicts_itself_about_what_is_final_fails(run: Run) -> None:
    damaged = ChainDamagedError("block 7 is not block 7")
    report = audited(run, OnceAway(run.chain, "finalized", 1, error=damaged))
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    contradiction = contradiction_in(report, AuditStep.HEAD)
    assert contradiction.fact == CHAIN_UNREADABLE
    # Who does not say what is final contradicts nothing.
    away = audited(run, OnceAway(run.chain, "finalized", 1))
    assert away.outcome is AuditOutcome.PASSED, readable(away)


@pytest.mark.parametrize("function", ["deployment", "state"])
def test_node_offline_at_the_second_question_has_answered_nothing(run: Run, function: str) -> None:
    """An empty answer is held against the code; where that is not to be had, nothing is said."""

    def empty(name: str, data: bytes) -> bytes:
        return b"" if name == function else data

    doubted = OnceAway(forged(run.ledger, answer_of=empty).chain)
    assert CHAIN_UNAVAILABLE not in needs(audited(run, doubted))
    for number in range(1, doubted.calls["code"] + 1):
        away = OnceAway(doubted.true, "code", number)
        report = audited(run, away)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert CHAIN_UNAVAILABLE in needs(report), (number, readable(report))


def test_follow_up_audit_misses_a_chain_that_lost_a_block(run: Run) -> None:
    earlier = read_report(report_bytes(audit(run.ledger, run.blobs)))
    node = OnceAway(run.chain)
    assert audited(run, node, earlier).outcome is AuditOutcome.PASSED
    outcomes = []
    for number in range(1, node.calls["block"] + 1):
        report = audited(run, OnceAway(run.chain, "block", number), earlier)
        assert report.outcome is not AuditOutcome.FAILED, (number, readable(report))
        outcomes.append((report.outcome, CHAIN_UNAVAILABLE in needs(report)))
    # The block of the earlier report's head is one of them.
    assert (AuditOutcome.INCOMPLETE, True) in outcomes
