"""The creation of a contract: the runtime code alone does not show what filled the storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn, cast

import pytest

from ledger.audit.checks.chain import (
    CODE_DIFFERS,
    CODE_UNAVAILABLE,
    DEPLOYMENT_UNREADABLE,
)
from ledger.audit.engine import audit
from ledger.audit.proofs.recorded import make_proof, read_trusted_contract
from ledger.audit.proofs.verification import StepName, VerificationStep, verify_proof
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, Need
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import (
    code_violation,
    deployed_domain,
    deployment_for,
    runtime_violation,
)
from ledger.chain.contract.ledger import CommitteeLedger, LedgerWriter
from ledger.chain.ports import (
    ChainWriter,
    ForeignCodeError,
    NotServedError,
    Transaction,
    UncheckableCreationError,
)
from ledger.chain.rpc.wire import MalformedAnswerError
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from ledger.storage.blobs import MemoryBlobs
from tests.audit.forged_chain import forged
from tests.audit.revm_history import RevmHistory
from tests.audit.runs import INITIAL, PARAMETERS, Run, contradiction_in, document_of
from tests.support.creations import FLAGS, created_by_factory, planted

BLOBS = MemoryBlobs()
DOCUMENT = document_of(PARAMETERS, BLOBS.put(vector_bytes(INITIAL)))
BLOBS.put(encode_run(DOCUMENT))
DEPLOYMENT, BATCHES = deployment_for(DOCUMENT)
FIRST_CLIENTS = 1 << 224 | 0b1111
OTHER_CODE = bytes.fromhex("60016000f3")  # creates a contract of one zero byte


def audited(ledger: LedgerWriter) -> AuditReport:
    for batch in BATCHES:
        ledger.register_clients(batch.words, batch.rest)
    return audit(ledger, BLOBS)


def needs(report: AuditReport) -> list[Need]:
    return [missing.need for missing in report.step(AuditStep.DEPLOYMENT).missing]


def code_step(ledger: CommitteeLedger) -> VerificationStep:
    proof = make_proof(ledger, BLOBS, 1, ClientId(0))
    result = verify_proof(proof, 1, ClientId(0), read_trusted_contract(ledger, 1))
    return next(step for step in result.steps if step.name is StepName.CODE)


def planted_ledger() -> LedgerWriter:
    return planted(cast("ChainWriter", RevmHistory()), DEPLOYMENT, {FLAGS: FIRST_CLIENTS})


def factory_ledger() -> LedgerWriter:
    return created_by_factory(cast("ChainWriter", RevmHistory()), DEPLOYMENT)


def test_planted_storage_leaves_the_runtime_code_as_it_is() -> None:
    ledger = planted_ledger()
    code, domain = ledger.chain.code(ledger.address), ledger.domain()
    assert runtime_violation(code, DEPLOYMENT, domain) is None
    assert ledger.deployment() == DEPLOYMENT


def test_another_creation_with_the_same_runtime_code_fails_the_audit() -> None:
    report = audited(planted_ledger())
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    contradiction = contradiction_in(report, AuditStep.DEPLOYMENT)
    assert contradiction.fact == CODE_DIFFERS


def test_clients_do_not_sign_for_another_creation() -> None:
    for is_allowed in (False, True):
        with pytest.raises(ForeignCodeError, match="created by other code"):
            deployed_domain(planted_ledger(), allow_unknown_creation=is_allowed)


def test_a_client_s_proof_is_contradicted_by_another_creation() -> None:
    ledger = planted_ledger()
    audited(ledger)
    assert code_step(ledger).is_ok is False


def test_a_contract_of_a_factory_leaves_the_audit_incomplete() -> None:
    ledger = factory_ledger()
    report = audited(ledger)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    assert needs(report) == [CODE_UNAVAILABLE]
    assert code_step(ledger).is_ok is None


def test_clients_sign_for_the_contract_of_a_factory_only_if_they_accept_it() -> None:
    ledger = factory_ledger()
    with pytest.raises(ConfigurationError, match="--allow-unknown-creation"):
        deployed_domain(ledger, allow_unknown_creation=False)
    assert deployed_domain(ledger, allow_unknown_creation=True) == ledger.domain()


def test_a_creation_that_a_node_does_not_serve_now_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limited(_: CommitteeLedger) -> NoReturn:
        raise MalformedAnswerError("request rate limited")

    ledger = factory_ledger()
    monkeypatch.setattr(CommitteeLedger, "creation", limited)
    with pytest.raises(UncheckableCreationError, match="rate limited; --allow-unknown-creation"):
        deployed_domain(ledger, allow_unknown_creation=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.on_revm(tmp_path_factory.mktemp("creation"))


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: replace(sent, nonce=sent.nonce + 1),
        lambda sent: replace(sent, sender="0x" + "11" * 20),
        lambda sent: replace(sent, to=sent.sender),
    ],
    ids=["nonce", "sender", "target"],
)
def test_a_transaction_that_did_not_create_the_contract_leaves_its_creation_open(
    run: Run, change: Callable[[Transaction], Transaction]
) -> None:
    def changed(sent: Transaction) -> Transaction:
        return change(sent) if sent.block_number == run.manifest.block else sent

    ledger = forged(run.ledger, transaction_of=changed)
    with pytest.raises(UncheckableCreationError):
        code_violation(ledger, run.ledger.deployment(), run.manifest.domain())


def test_a_creation_that_the_node_does_not_serve_is_not_checkable(run: Run) -> None:
    def lost(_: Transaction) -> Transaction:
        raise NotServedError("the index is pruned")

    report = audit(forged(run.ledger, transaction_of=lost), run.blobs)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    assert CODE_UNAVAILABLE in needs(report)


def test_other_code_fails_step_one_of_an_audit() -> None:
    chain = cast("ChainWriter", RevmHistory())
    receipt = chain.send(None, OTHER_CODE, 100_000)
    assert receipt.contract_address is not None
    report = audit(CommitteeLedger(chain, receipt.contract_address), BLOBS)
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    contradiction = contradiction_in(report, AuditStep.DEPLOYMENT)
    assert contradiction.fact == DEPLOYMENT_UNREADABLE
