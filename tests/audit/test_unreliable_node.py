"""No node makes a false word of an honest run, and no tampering passes through the noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ledger.audit.anchors import EarlierAudit, read_report, report_bytes
from ledger.audit.checks.chain import (
    CHAIN_UNAVAILABLE,
    CHAIN_UNREADABLE,
    LOGS_INCOMPLETE,
    NOT_FINAL,
    REORGANISED,
)
from ledger.audit.checks.rounds import ABANDONED_ROUND, BAN, FALSE_SCORES
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, Need, StepOutcome
from ledger.audit.report_text import readable
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import (
    Block,
    ChainDamagedError,
    ChainReader,
    ChainUnreachableError,
    Log,
    LogQuery,
    Receipt,
    Transaction,
    TransactionRevertedError,
)
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Digest
from tests.audit.blobs import ChangedBlobs
from tests.audit.deviations import wrong_model
from tests.audit.forged_chain import forged
from tests.audit.honest import one_lies, two_fail
from tests.audit.passed_on import PassedOn
from tests.audit.revm_history import RevmHistory
from tests.audit.runs import PARAMETERS, Deviation, Run, contradiction_in
from tests.audit.unreliable_node import UnreliableNode

RATES = st.sampled_from((0.0, 0.02, 0.1, 0.4))
SEEDS = st.integers(0, 2**32)


@dataclass
class Branches:
    """One run that has gone two ways since its second round."""

    one: Run
    other: Run
    final: int

    def audited(
        self, node: UnreliableNode, *, changed: dict[Digest, bytes | None] | None = None
    ) -> AuditReport:
        ledger = CommitteeLedger(node, self.one.ledger.address, self.one.ledger.from_block)
        kept = self.one.ledger.state().head if node.final < self.one.chain.head().number else None
        return audit(ledger, ChangedBlobs(self.one.blobs, changed or {}), head=kept)

    def node(self, seed: int = 0, **rates: Any) -> UnreliableNode:
        chains = [self.one.chain, self.other.chain]
        return UnreliableNode(chains, self.final, random.Random(seed), **rates)


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Branches:
    run = Run.on_revm(tmp_path_factory.mktemp("branches")).play(
        Deviation(payloads=two_fail, vectors=one_lies)
    )
    run.ban(run.committee[0])
    final = run.chain.head().number
    one, other = run.branched(), run.branched()
    other.blobs = one.blobs
    one.take_up()
    one.play()
    one.play()
    other.take_up()
    other.chain.mine(1)
    other.play(Deviation(payloads=two_fail))
    other.ban(other.committee[0])
    other.commit({client: other.word(client) for client in other.trainers[:3]})
    other.abandon()
    return Branches(one, other, final)


def test_each_branch_has_nothing_against_it(branches: Branches) -> None:
    report = branches.audited(branches.node())
    assert (report.outcome, report.rounds) == (AuditOutcome.PASSED, 3), readable(report)
    report = branches.audited(replace(branches.node(), branch=1))
    needs = {missing.need for step in report.steps for missing in step.missing}
    # The head that was kept is the other branch's, and either may be taken back yet.
    assert (report.outcome, needs, report.rounds) == (AuditOutcome.INCOMPLETE, {NOT_FINAL}, 3)


@hypothesis_settings(max_examples=40)
@given(seed=SEEDS, failing=RATES, moving=RATES, leaving=st.sampled_from((0.0, 0.01)), lost=RATES)
def test_an_honest_run_never_fails(branches: Branches, seed: int, **rates: float) -> None:
    report = branches.audited(branches.node(seed, **rates))
    assert report.outcome is not AuditOutcome.FAILED, readable(report)
    is_quiet = not any(rates.values())
    assert report.outcome is AuditOutcome.PASSED or not is_quiet, readable(report)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def a_wrong_log(branches: Branches) -> Callable[[str, Any], Any]:
    place = branches.final

    def wrong(log: Log) -> Log:
        return replace(log, data=flipped(log.data)) if log.block_number == place else log

    return lambda call, answer: list(map(wrong, answer)) if call == "logs" else answer


def a_wrong_transaction(branches: Branches) -> Callable[[str, Any], Any]:
    def wrong(transaction: Transaction) -> Transaction:
        is_meant = transaction.block_number == branches.final
        return replace(transaction, input=flipped(transaction.input)) if is_meant else transaction

    return lambda call, answer: wrong(answer) if call == "transaction" else answer


def a_wrong_block(branches: Branches) -> Callable[[str, Any], Any]:
    def wrong(block: Block) -> Block:
        is_meant = block.number == branches.final - 1
        return replace(block, hash=bytes(32)) if is_meant else block

    return lambda call, answer: wrong(answer) if call == "block" else answer


def wrong_code(_branches: Branches) -> Callable[[str, Any], Any]:
    return lambda call, answer: flipped(answer) if call == "code" else answer


def wrong_answers(_branches: Branches) -> Callable[[str, Any], Any]:
    return lambda call, answer: flipped(answer) if call == "call" else answer


LIES = {
    "a wrong log": a_wrong_log,
    "a wrong transaction": a_wrong_transaction,
    "a wrong block": a_wrong_block,
    "wrong code": wrong_code,
    "wrong answers": wrong_answers,
}
# The deployment is in the code: calls say the state alone, which a node may have of another block.
CONTRADICTING = sorted(LIES.keys() - {"wrong answers"})


@pytest.mark.parametrize("name", CONTRADICTING)
def test_a_tampered_run_fails_through_a_working_node(branches: Branches, name: str) -> None:
    report = branches.audited(replace(branches.node(), lie=LIES[name](branches)))
    assert report.outcome is AuditOutcome.FAILED, readable(report)


@pytest.mark.parametrize("is_manifest_there", [True, False])
def test_log_omitted_by_a_node_is_named_and_contradicts_nothing(
    branches: Branches, *, is_manifest_there: bool
) -> None:
    """Neither in a block that is final nor in one that may be taken back."""
    run = branches.one
    logs = run.chain.logs(LogQuery(run.ledger.address, [], 0, run.chain.head().number))
    for hidden in logs:

        def lie(call: str, answer: Any, hidden: Log = hidden) -> Any:
            return [log for log in answer if log != hidden] if call == "logs" else answer

        for final in (branches.final, run.chain.head().number):
            node = replace(branches.node(), lie=lie, final=final)
            report = (
                branches.audited(node) if is_manifest_there else audited_by_address(branches, node)
            )
            assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
            if hidden.block_number > final:
                continue
            for step in report.steps:
                assert LOGS_INCOMPLETE in {missing.need for missing in step.missing}, readable(
                    report
                )
            assert "http://unreliable" in str(readable(report))


def audited_by_address(branches: Branches, node: UnreliableNode) -> AuditReport:
    """Audit without a manifest, which would say which block created the contract."""
    return audit(CommitteeLedger(node, branches.one.ledger.address), branches.one.blobs)


def test_unconfirmed_contract_never_fails_when_missing(branches: Branches, tmp_path: Path) -> None:
    """Nobody says which block created it, and on the other branch it does not exist."""
    salt = branches.one.chain.chain_id
    with EmbeddedChain.create(tmp_path / "chain.sqlite", chain_id=salt) as without:
        without.mine(branches.one.chain.head().number)
        for seed in range(20):
            node = replace(branches.node(seed, moving=0.3), final=0)
            node.branches = [branches.one.chain, without]
            report = audited_by_address(branches, node)
            assert report.outcome is not AuditOutcome.FAILED, readable(report)
            assert report.deployment["final_head"] == "", "nothing of it is final"


@pytest.mark.parametrize("name", CONTRADICTING)
def test_a_tampered_run_fails_without_a_manifest_too(branches: Branches, name: str) -> None:
    """Where the final block has the contract already, what was deployed cannot be taken back."""
    assert audited_by_address(branches, branches.node()).outcome is AuditOutcome.PASSED
    node = replace(branches.node(), lie=LIES[name](branches))
    report = audited_by_address(branches, node)
    assert report.outcome is AuditOutcome.FAILED, readable(report)


def test_a_nodes_wrong_answers_are_no_fact_of_the_chain(branches: Branches) -> None:
    node = replace(branches.node(), lie=wrong_answers(branches))
    for report in (branches.audited(node), audited_by_address(branches, node)):
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)


@pytest.mark.parametrize("function", ["deployment", "state"])
def test_a_failing_view_contradicts_only_with_other_code(branches: Branches, function: str) -> None:
    """A node that lags behind, or has lost state, answers as if there were no contract."""

    def empty(name: str, data: bytes) -> bytes:
        return b"" if name == function else data

    def reverting(name: str, data: bytes) -> bytes:
        if name == function:
            raise TransactionRevertedError(b"")
        return data

    run = branches.one
    for wrong in (empty, reverting):
        report = audit(forged(run.ledger, answer_of=wrong), run.blobs)
        # The published code has the deployment, and is not called for it.
        is_called = function == "state"
        expected = AuditOutcome.INCOMPLETE if is_called else AuditOutcome.PASSED
        assert report.outcome is expected, readable(report)
        for other in (b"", b"other code"):
            ledger = forged(run.ledger, answer_of=wrong, code_of=lambda _code, one=other: one)
            report = audit(ledger, run.blobs)
            assert report.outcome is AuditOutcome.FAILED, readable(report)


@hypothesis_settings(max_examples=40)
@given(
    seed=SEEDS,
    name=st.sampled_from(sorted(LIES)),
    failing=RATES,
    moving=RATES,
    leaving=st.sampled_from((0.0, 0.01)),
    lost=RATES,
)
def test_a_tampered_run_never_passes(
    branches: Branches, seed: int, name: str, **rates: float
) -> None:
    node = replace(branches.node(seed, **rates), lie=LIES[name](branches))
    report = branches.audited(node)
    assert report.outcome is not AuditOutcome.PASSED, readable(report)


def test_a_tampered_blob_never_passes(branches: Branches) -> None:
    record = branches.one.outcome(1).record
    for seed in range(8):
        node = branches.node(seed, failing=0.1, moving=0.3, lost=0.1)
        for wrong in (b"another record", None):
            report = branches.audited(node, changed={record: wrong})
            assert report.outcome is not AuditOutcome.PASSED, readable(report)


def test_what_contradicts_only_after_the_final_block_is_left_open(branches: Branches) -> None:
    """It may be another branch's; as soon as the block is final it is a contradiction."""
    head = branches.one.chain.head().number
    assert head > branches.final

    def wrong(call: str, answer: Any) -> Any:
        if call != "logs":
            return answer
        return [replace(x, data=flipped(x.data)) if x.block_number == head else x for x in answer]

    report = branches.audited(replace(branches.node(), lie=wrong))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    needs = {missing.need for step in report.steps for missing in step.missing}
    assert needs == {NOT_FINAL}
    settled = branches.audited(replace(branches.node(), lie=wrong, final=head))
    assert settled.outcome is AuditOutcome.FAILED, readable(settled)


def test_findings_after_the_final_block_prove_nothing_yet(branches: Branches) -> None:
    report = branches.audited(replace(branches.node(), branch=1))
    proven = {(finding.round, finding.kind) for finding in report.findings if finding.proven}
    assert (1, FALSE_SCORES) in proven
    assert {kind for at, kind in proven if at == 2} == {BAN}, "in the final block"
    later = {finding.kind for finding in report.findings if finding.round == 3}
    assert {BAN, ABANDONED_ROUND} <= later
    assert not {kind for at, kind in proven if at == 3}


def test_the_line_to_keep_is_the_newest_final_head(branches: Branches) -> None:
    """A head that may be taken back would be missed by the next audit, of an honest run."""
    for branch in (0, 1):
        report = branches.audited(replace(branches.node(), branch=branch))
        kept = report.deployment["final_head"]
        lines = readable(report)
        age = lines[lines.index(f"To keep for a later audit: --head {kept}") + 1]
        assert kept != report.deployment["head"]
        ended, newer = report.deployment["final_round"], report.rounds - 1
        assert (ended, report.deployment["final_block"]) == (1, branches.final)
        assert age.startswith(f"This head is after round 1, as of block {branches.final}, ")
        assert f" {newer} newer round" in age
        assert "not final yet" in age
        again = audit(branches.other.ledger, branches.other.blobs, head=head_of(kept))
        assert again.kept is not None
        assert (again.kept.found, again.kept.event) == (True, "ClientBanned")
    for unsettled in (branches.node(leaving=1.0), replace(branches.node(), final=0)):
        lines = readable(branches.audited(unsettled))
        assert any(line.startswith("No head to keep") for line in lines)


def head_of(text: str) -> Digest:
    return Digest(bytes.fromhex(text.removeprefix("0x")))


def test_a_chain_that_is_reorganised_during_the_audit_is_named(branches: Branches) -> None:
    node = branches.node()
    ledger = CommitteeLedger(node, branches.one.ledger.address, branches.one.ledger.from_block)

    def move(_done: int, _total: int) -> None:
        node.branch = 1

    report = audit(ledger, branches.one.blobs, AuditOptions(progress=move))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    assert all(REORGANISED in {m.need for m in step.missing} for step in report.steps)
    assert "the node's chain was reorganised during the audit" in str(readable(report))


def test_a_node_that_retracts_finality_proves_nothing(branches: Branches) -> None:
    """A node without finality calls its head final: no contradiction of its stays then."""
    head = branches.one.chain.head().number
    lie = a_wrong_log(branches)
    node = replace(branches.node(), final=head, lie=lie)
    ledger = CommitteeLedger(node, branches.one.ledger.address, branches.one.ledger.from_block)

    def move(done: int, _total: int) -> None:
        node.branch = int(done >= 2)

    assert branches.audited(replace(node, branch=0)).outcome is AuditOutcome.FAILED
    report = audit(ledger, branches.one.blobs, AuditOptions(progress=move))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)


def test_dropped_transactions_leave_signatures_open(branches: Branches) -> None:
    report = branches.audited(branches.node(lost=1.0))
    open_steps = {s.number for s in report.steps if s.outcome is StepOutcome.NOT_CHECKABLE}
    expected = {AuditStep.DEPLOYMENT, AuditStep.CERTIFICATES}
    assert (report.outcome, open_steps) == (AuditOutcome.INCOMPLETE, expected)
    assert "the node has no transaction of this hash" in str(readable(report))


# A node's logs are confirmed one by one: several of them in one block confirm no other.


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


def shared(ended: Run, act: Callable[[], object]) -> None:
    """Let what an act sends share the newest block."""
    chain = cast("SharedBlocks", ended.chain)
    chain.is_shared = True
    act()
    chain.is_shared = False


def ban_and_commit_with_the_decision(ended: Run) -> None:
    """Let one block hold a ban, a stray's commitment and the decision, in this order."""
    record = ended.prepare()
    ended.ban(ended.bystanders[0])
    stray = ended.bystanders[1]
    shared(ended, lambda: ended.commit({stray: ended.word(stray)}))
    shared(ended, lambda: ended.conclude(record))


def commit_twice_before_a_ban(ended: Run) -> None:
    """Let a second transaction repeat a commitment, of which the contract takes the new ones."""
    first, *others = ended.trainers
    ended.commit({first: ended.word(first)})
    ended.commit({client: ended.word(client) for client in (first, *others)})
    ended.ban(ended.committee[0])


def commit_with_the_decision(ended: Run) -> None:
    ended.play()
    shared(ended, lambda: ended.commit({ended.trainers[0]: ended.word(ended.trainers[0])}))


def ban_with_the_decision(ended: Run) -> None:
    ended.play()
    shared(ended, lambda: ended.ban(ended.committee[0]))


def commit_with_a_ban(ended: Run) -> None:
    """Let the newest block hold a commitment and a ban, whose head names no commitment."""
    ended.play()
    ended.commit({ended.trainers[0]: ended.word(ended.trainers[0])})
    shared(ended, lambda: ended.ban(ended.committee[0]))


ENDINGS = {
    "a ban, a commitment and the decision": ban_and_commit_with_the_decision,
    "two transactions with one commitment and a ban": commit_twice_before_a_ban,
    "a decision and a commitment": commit_with_the_decision,
    "a decision and a ban": ban_with_the_decision,
    "a commitment and a ban": commit_with_a_ban,
}


@pytest.fixture(scope="module", params=ENDINGS)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    chain = cast("EmbeddedChain", SharedBlocks())
    ended = Run.opened(tmp_path_factory.mktemp("run"), PARAMETERS, chain=chain)
    ended.play()
    ENDINGS[request.param](ended)
    return ended


def audited(
    ended: Run, lie: Callable[[str, Any], Any] = lambda _call, answer: answer, newer: int = 0
) -> AuditReport:
    """Audit through a lying node whose newest blocks, so many, are not final."""
    final = ended.chain.head().number - newer
    node = UnreliableNode([ended.chain], final, random.Random(0), lie=lie)
    return audit(CommitteeLedger(node, ended.ledger.address, ended.ledger.from_block), ended.blobs)


def proven(report: AuditReport) -> set[tuple[object, ...]]:
    found = (finding for finding in report.findings if finding.proven)
    # Two signatures prove a ban, though a missing end of a round puts it into the round before.
    return {(finding.kind, finding.clients) for finding in found}


def test_a_truthful_node_passes(ended: Run) -> None:
    report = audited(ended)
    assert report.outcome is AuditOutcome.PASSED, readable(report)


def test_each_omitted_log_leaves_the_audit_incomplete(ended: Run) -> None:
    truth = proven(audited(ended))
    for hidden in ended.chain.logs(
        LogQuery(ended.ledger.address, [], 0, ended.chain.head().number)
    ):

        def lie(call: str, answer: Any, hidden: Log = hidden) -> Any:
            return [log for log in answer if log != hidden] if call == "logs" else answer

        for newer in (0, 1):
            report = audited(ended, lie, newer)
            assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
            needs = {missing.need for step in report.steps for missing in step.missing}
            assert LOGS_INCOMPLETE in needs
            assert proven(report) <= truth


@pytest.mark.parametrize("place", range(len(fields(LedgerSnapshot))))
def test_a_false_state_leaves_the_audit_incomplete(ended: Run, place: int) -> None:
    size = 32 * len(fields(LedgerSnapshot))

    def lie(call: str, answer: Any) -> Any:
        if call != "call" or len(answer) != size:
            return answer
        last = 32 * place + 31
        return answer[:last] + bytes([answer[last] ^ 1]) + answer[last + 1 :]

    for newer in (0, 1):
        report = audited(ended, lie, newer)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)


def test_a_confirmed_round_still_contradicts_though_a_later_log_is_missing(tmp_path: Path) -> None:
    ended = Run.opened(tmp_path, PARAMETERS, chain=cast("EmbeddedChain", SharedBlocks()))
    ended.play(Deviation(judgement=wrong_model))
    shared(ended, lambda: ended.commit({ended.trainers[0]: ended.word(ended.trainers[0])}))
    newest = ended.chain.logs(LogQuery(ended.ledger.address, [], 0, ended.chain.head().number))[-1]
    assert (newest.block_number, newest.log_index) == (ended.chain.head().number, 1)

    def lie(call: str, answer: Any) -> Any:
        return [log for log in answer if log != newest] if call == "logs" else answer

    report = audited(ended, lie)
    failed = {step.number for step in report.steps if step.outcome is StepOutcome.FAILED}
    assert failed == {AuditStep.MODEL}, readable(report)


# A node that goes away once, whenever it is: the audit says so, and concludes nothing from it.


T = TypeVar("T")


class OnceAway(PassedOn):
    """A node that does not answer one call, and all others."""

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
def lone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.on_revm(tmp_path_factory.mktemp("lost")).play()


def audited_through(lone: Run, node: OnceAway, earlier: EarlierAudit | None = None) -> AuditReport:
    ledger = CommitteeLedger(node, lone.ledger.address, lone.ledger.from_block)
    return audit(ledger, lone.blobs, earlier=earlier)


def needs(report: AuditReport) -> set[Need]:
    return {missing.need for step in report.steps for missing in step.missing}


def test_whatever_answer_is_lost_the_chain_is_missing(lone: Run) -> None:
    node = OnceAway(lone.chain)
    report = audited_through(lone, node)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    for name in ("code", "call", "logs", "transaction"):
        assert node.calls[name] > 0
        for number in range(1, node.calls[name] + 1):
            report = audited_through(lone, OnceAway(lone.chain, name, number))
            assert report.outcome is AuditOutcome.INCOMPLETE, (name, number, readable(report))
            assert CHAIN_UNAVAILABLE in needs(report), (name, number, readable(report))


def test_a_chain_that_contradicts_itself_about_what_is_final_fails(lone: Run) -> None:
    damaged = ChainDamagedError("block 7 is not block 7")
    report = audited_through(lone, OnceAway(lone.chain, "finalized", 1, error=damaged))
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    contradiction = contradiction_in(report, AuditStep.HEAD)
    assert contradiction.fact == CHAIN_UNREADABLE
    # Who does not say what is final contradicts nothing.
    away = audited_through(lone, OnceAway(lone.chain, "finalized", 1))
    assert away.outcome is AuditOutcome.PASSED, readable(away)


@pytest.mark.parametrize("function", ["deployment", "state"])
def test_node_offline_at_the_second_question_has_answered_nothing(lone: Run, function: str) -> None:
    """An empty answer is held against the code; where that is not to be had, nothing is said."""

    def empty(name: str, data: bytes) -> bytes:
        return b"" if name == function else data

    doubted = OnceAway(forged(lone.ledger, answer_of=empty).chain)
    assert CHAIN_UNAVAILABLE not in needs(audited_through(lone, doubted))
    for number in range(1, doubted.calls["code"] + 1):
        away = OnceAway(doubted.true, "code", number)
        report = audited_through(lone, away)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert CHAIN_UNAVAILABLE in needs(report), (number, readable(report))


def test_follow_up_audit_misses_a_chain_that_lost_a_block(lone: Run) -> None:
    earlier = read_report(report_bytes(audit(lone.ledger, lone.blobs)))
    node = OnceAway(lone.chain)
    assert audited_through(lone, node, earlier).outcome is AuditOutcome.PASSED
    outcomes = []
    for number in range(1, node.calls["block"] + 1):
        report = audited_through(lone, OnceAway(lone.chain, "block", number), earlier)
        assert report.outcome is not AuditOutcome.FAILED, (number, readable(report))
        outcomes.append((report.outcome, CHAIN_UNAVAILABLE in needs(report)))
    # The block of the earlier report's head is one of them.
    assert (AuditOutcome.INCOMPLETE, True) in outcomes
