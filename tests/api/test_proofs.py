"""Proofs and bundles from the service hold on the caller's side, which trusts a head alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger.audit.bundles.bundle import read_manifest
from ledger.audit.bundles.bundle_verification import verify_bundle
from ledger.audit.bundles.container import open_bundle
from ledger.audit.proofs.proof_document import read_proof
from ledger.audit.proofs.proof_verification import verify_proof
from ledger.audit.proofs.trust import TrustedHead
from ledger.audit.report import AuditOutcome
from ledger.protocol.types import ClientId, Digest
from tests.api.conftest import CLIENTS, ROUNDS, read, refused, rounds_that_are

if TYPE_CHECKING:
    from pathlib import Path

    import httpx


@pytest.fixture(scope="module")
def kept(client: httpx.Client, root: str) -> TrustedHead:
    """Return the run's head, which the caller has from elsewhere."""
    return TrustedHead(Digest(bytes.fromhex(read(client, root)["state"]["head"][2:])))


def test_every_participation_is_proven_by_the_head_alone(
    client: httpx.Client, root: str, kept: TrustedHead
) -> None:
    number = rounds_that_are(client, root, "decided")[0]
    accepted = {
        entry["client"] for entry in read(client, f"{root}/rounds/{number}/aggregation")["accepted"]
    }
    for who in range(CLIENTS):
        path = f"{root}/rounds/{number}/proof/{who}"
        answer = client.get(path, params={"whole": "true"})
        assert answer.status_code == 200
        proof = read_proof(answer.content)
        result = verify_proof(proof, number, ClientId(who), kept)
        assert result.outcome is AuditOutcome.PASSED, [s for s in result.steps if not s.is_ok]
        told = json.loads(answer.content)["statement"]
        assert (told["verdict"] == "used") == (who in accepted), told


def test_a_round_is_checked_from_its_bundle_alone(
    client: httpx.Client, root: str, kept: TrustedHead, tmp_path: Path
) -> None:
    number = rounds_that_are(client, root, "decided")[1]
    answer = client.get(f"{root}/rounds/{number}/bundle", params={"whole": "true"})
    assert answer.headers["content-type"] == "application/x-tar"
    assert f"round-{number}.bundle.tar" in answer.headers["content-disposition"]
    file = tmp_path / "round.bundle"
    file.write_bytes(answer.content)
    with open_bundle(file) as parts:
        result = verify_bundle(read_manifest(parts.manifest, parts), parts, kept)
    assert result.outcome is AuditOutcome.PASSED


def test_what_is_not_there_is_not_proven(client: httpx.Client, root: str) -> None:
    refused(client.get(f"{root}/rounds/{ROUNDS + 1}/proof/0"), 404, "round-not-found")
    refused(client.get(f"{root}/rounds/1/proof/{CLIENTS}"), 404, "client-not-found")
    refused(client.get(f"{root}/rounds/{ROUNDS + 1}/bundle"), 404, "round-not-found")
    refused(client.get(f"{root}/rounds/1/proof/x"), 422, "request-invalid")
