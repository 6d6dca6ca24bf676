"""A node's logs are confirmed one by one: several of them in one block confirm no other."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ledger.audit.checks.common import LOGS_INCOMPLETE
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.audit.report_text import readable
from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerSnapshot
from tests.audit.deviations import wrong_model
from tests.audit.revm_history import RevmHistory
from tests.audit.runs import PARAMETERS, Deviation, Run
from tests.audit.unreliable_node import UnreliableNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.audit.report import AuditReport
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.ports import Log, Receipt


class SharedBlocks(RevmHistory):
    """A chain that can put a transaction into the block of the one before it."""

    is_shared = False

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        if self.is_shared:
            self._number -= 1
        receipt = super().send(to, data, gas, value=value)
        mined = [other for _, other in self._mined.values()]
        before = [
            log
            for other in mined
            if other.block_number == receipt.block_number and other is not receipt
            for log in other.logs
        ]
        logs = tuple(replace(log, log_index=log.log_index + len(before)) for log in receipt.logs)
        receipt = replace(receipt, logs=logs)
        own = receipt.transaction_hash
        self._mined[own] = (self._mined[own][0], receipt)
        return receipt


def shared(run: Run, act: Callable[[], object]) -> None:
    """Let what an act sends share the newest block."""
    chain = cast("SharedBlocks", run.chain)
    chain.is_shared = True
    act()
    chain.is_shared = False


def ban_and_commit_with_the_decision(run: Run) -> None:
    """Let one block hold a ban, a stray's commitment and the decision, in this order."""
    record = run.prepare()
    run.ban(run.bystanders[0])
    stray = run.bystanders[1]
    shared(run, lambda: run.commit({stray: run.word(stray)}))
    shared(run, lambda: run.conclude(record))


def commit_twice_before_a_ban(run: Run) -> None:
    """Let a second transaction repeat a commitment, of which the contract takes the new ones."""
    first, *others = run.trainers
    run.commit({first: run.word(first)})
    run.commit({client: run.word(client) for client in (first, *others)})
    run.ban(run.committee[0])


def commit_with_the_decision(run: Run) -> None:
    """Let the block of a decision hold the next round's first commitment, as the newest one."""
    run.play()
    shared(run, lambda: run.commit({run.trainers[0]: run.word(run.trainers[0])}))


def ban_with_the_decision(run: Run) -> None:
    """Let the newest block hold a decision and a ban."""
    run.play()
    shared(run, lambda: run.ban(run.committee[0]))


def commit_with_a_ban(run: Run) -> None:
    """Let the newest block hold a commitment and a ban, whose head names no commitment."""
    run.play()
    run.commit({run.trainers[0]: run.word(run.trainers[0])})
    shared(run, lambda: run.ban(run.committee[0]))


ENDINGS = {
    "a ban, a commitment and the decision": ban_and_commit_with_the_decision,
    "two transactions with one commitment and a ban": commit_twice_before_a_ban,
    "a decision and a commitment": commit_with_the_decision,
    "a decision and a ban": ban_with_the_decision,
    "a commitment and a ban": commit_with_a_ban,
}


@pytest.fixture(scope="module", params=ENDINGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    chain = cast("EmbeddedChain", SharedBlocks())
    run = Run.opened(tmp_path_factory.mktemp("run"), PARAMETERS, chain=chain)
    run.play()
    ENDINGS[request.param](run)
    return run


def audited(
    run: Run, lie: Callable[[str, Any], Any] = lambda _call, answer: answer, newer: int = 0
) -> AuditReport:
    """Audit through a lying node whose newest blocks, so many, are not final."""
    final = run.chain.head().number - newer
    node = UnreliableNode([run.chain], final, random.Random(0), lie=lie)
    return audit(CommitteeLedger(node, run.ledger.address, run.ledger.from_block), run.blobs)


def proven(report: AuditReport) -> set[tuple[object, ...]]:
    found = (finding for finding in report.findings if finding.proven)
    # Two signatures prove a ban, though a missing end of a round puts it into the round before.
    return {(finding.kind, finding.clients) for finding in found}


def test_a_truthful_node_passes(run: Run) -> None:
    report = audited(run)
    assert report.outcome is AuditOutcome.PASSED, readable(report)


def test_each_omitted_log_leaves_the_audit_incomplete(run: Run) -> None:
    truth = proven(audited(run))
    for hidden in run.chain.logs(run.ledger.address, [], 0, run.chain.head().number):

        def lie(call: str, answer: Any, hidden: Log = hidden) -> Any:
            return [log for log in answer if log != hidden] if call == "logs" else answer

        for newer in (0, 1):
            report = audited(run, lie, newer)
            assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
            needs = {missing.need for step in report.steps for missing in step.missing}
            assert LOGS_INCOMPLETE in needs
            assert proven(report) <= truth


@pytest.mark.parametrize("place", range(len(fields(LedgerSnapshot))))
def test_a_false_state_leaves_the_audit_incomplete(run: Run, place: int) -> None:
    size = 32 * len(fields(LedgerSnapshot))

    def lie(call: str, answer: Any) -> Any:
        if call != "call" or len(answer) != size:
            return answer
        last = 32 * place + 31
        return answer[:last] + bytes([answer[last] ^ 1]) + answer[last + 1 :]

    for newer in (0, 1):
        report = audited(run, lie, newer)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)


def test_a_confirmed_round_still_contradicts_though_a_later_log_is_missing(tmp_path: Path) -> None:
    run = Run.opened(tmp_path, PARAMETERS, chain=cast("EmbeddedChain", SharedBlocks()))
    run.play(Deviation(judgement=wrong_model))
    shared(run, lambda: run.commit({run.trainers[0]: run.word(run.trainers[0])}))
    newest = run.chain.logs(run.ledger.address, [], 0, run.chain.head().number)[-1]
    assert (newest.block_number, newest.log_index) == (run.chain.head().number, 1)

    def lie(call: str, answer: Any) -> Any:
        return [log for log in answer if log != newest] if call == "logs" else answer

    report = audited(run, lie)
    failed = {step.number for step in report.steps if step.outcome is StepOutcome.FAILED}
    assert failed == {AuditStep.MODEL}, readable(report)
