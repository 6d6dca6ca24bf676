"""Step 1: a deployment that is not the configuration's, however its numbers look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.audit.checks.chain import CONFIGURATION_MALFORMED, DEPLOYMENT_DIFFERS
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import creation_data, deployment_for
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Transaction
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import RegisteredClient, keccak256, sha256, vector_bytes
from ledger.protocol.ledger_state import Deployment, deployment_of
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import AcceptanceForm, Beacon, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.audit.forged_chain import forged
from tests.audit.runs import INITIAL, PARAMETERS, contradiction_in, document_of


def created(chain: EmbeddedChain, deployment: Deployment) -> LedgerWriter:
    receipt = chain.send(None, creation_data(deployment), 8_000_000)
    assert receipt.contract_address is not None
    return LedgerWriter(chain, receipt.contract_address, receipt.block_number)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("aggregation_ppm", 1_000_000),
        ("form", AcceptanceForm.LAST),
        ("rounds", 6),
        ("commit_blocks", 2),
        ("deadline_blocks", 8),
        ("replies", 4),
        ("trainers", 6),
        ("beacon", Beacon.BLOCK),
        ("model", Digest(bytes(32))),
    ],
)
def test_a_deployment_that_is_not_the_configuration_s_fails(
    tmp_path: Path, name: str, wrong: object
) -> None:
    blobs = MemoryBlobs()
    document = document_of(PARAMETERS, blobs.put(vector_bytes(INITIAL)))
    blobs.put(encode_run(document))
    deployment, batches = deployment_for(document)
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        ledger = created(chain, replace(deployment, **{name: wrong}))  # type: ignore[arg-type]
        for batch in batches:
            ledger.register_clients(batch.words, batch.rest)
        report = audit(ledger, blobs)
    contradiction = contradiction_in(report, AuditStep.DEPLOYMENT)
    assert (contradiction.fact, contradiction.subject) == (DEPLOYMENT_DIFFERS, name)


def test_clients_that_the_configuration_does_not_list_fail(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    document = document_of(PARAMETERS, blobs.put(vector_bytes(INITIAL)))
    config = blobs.put(encode_run(document))
    richer = (replace(document.registry[0], samples=1_000_000), *document.registry[1:])
    deployment, batches = deployment_of(PARAMETERS, config, richer, document.initial_model)
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        ledger = created(chain, deployment)
        for words, rest in batches:
            ledger.register_clients(words, rest)
        report = audit(ledger, blobs)
    contradiction = contradiction_in(report, AuditStep.DEPLOYMENT)
    assert contradiction.subject == "registry"


def test_a_configuration_that_is_none_fails(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    config = blobs.put(b"nothing")
    deployment, _ = deployment_for(document_of(PARAMETERS, sha256(b"a model")))
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        report = audit(created(chain, replace(deployment, config=config)), blobs)
    contradiction = contradiction_in(report, AuditStep.DEPLOYMENT)
    assert contradiction.fact == CONFIGURATION_MALFORMED


def test_a_registration_not_sent_to_the_ledger_is_partly_believed(tmp_path: Path) -> None:
    """Registering needs no signature: a first batch from elsewhere is no want of evidence."""
    keys = [KeySigner(keccak256(b"PUBLIC TEST KEY %d" % number)) for number in range(300)]
    addresses = sorted(signer.address for signer in keys)
    registry = tuple(RegisteredClient(address, 1) for address in addresses)
    parameters = replace(PARAMETERS, clients=300, active_ppm=40_000)
    blobs = MemoryBlobs()
    document = document_of(parameters, blobs.put(vector_bytes(INITIAL)))
    document = replace(document, registry=registry)
    blobs.put(encode_run(document))
    deployment, batches = deployment_for(document)

    def relayed_first(transaction: Transaction) -> Transaction:
        is_first = transaction.block_number == 2
        return replace(transaction, to=transaction.sender) if is_first else transaction

    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        ledger = created(chain, deployment)
        stages = []
        for batch in batches:
            ledger.register_clients(batch.words, batch.rest)
            report = audit(forged(ledger, transaction_of=relayed_first), blobs)
            assert report.outcome is AuditOutcome.PASSED, readable(report)
            stages.append(report.deployment["stage"])
    assert stages == ["registering", "open"]
