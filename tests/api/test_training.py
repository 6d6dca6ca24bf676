"""Coverage of training over REST: what auditors attest, side by side, and no more of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.client import Service
from api.settings import Settings
from clients.runs.run_folder import manifest_of
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ServiceError
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import ClientId, Digest
from ledger.storage.opening import mailbox_at
from tests.api.conftest import ROUNDS, deployments, read, refused, serving

ONE, OTHER = KeySigner(bytes([7] * 32)), KeySigner(bytes([9] * 32))
ENVIRONMENT = TrainingEnvironment("2.13.0", "plain", "x86_64", "avx2", "cpu", 1)


@dataclass(frozen=True)
class Attested:
    """A served copy of the shared home, to which auditors write."""

    home: Path
    client: httpx.Client
    root: str
    run: Digest

    def attest(self, signer: KeySigner, client: int, verdict: ReplayVerdict) -> None:
        """Put an attestation about an update of the first round."""
        domain = manifest_of(self.home, "first").domain()
        body = Attestation(
            signer.address, self.run, verdict, ENVIRONMENT, Digest(bytes(32)), bytes(65)
        )
        statement = body.statement(1, ClientId(client))
        signed = replace(body, signature=sign(signer, domain, statement))
        envelope = Envelope(domain, 1, ClientId(client), signed)
        mailbox_at(str(self.home / "blobs")).put(envelope)

    def coverage(self, **query: Any) -> dict[str, Any]:
        """Return the service's answer, without its block."""
        answer: dict[str, Any] = read(self.client, f"{self.root}/training", **query)
        answer.pop("as_of")
        return answer


@pytest.fixture
def attested(home: Path, tmp_path: Path) -> Iterator[Attested]:
    copy = Path(shutil.copytree(home, tmp_path / "home"))
    with serving(Settings(home=copy)) as client:
        deployment = deployments(client)[0]
        root = deployment["links"]["self"]
        config = read(client, root)["config"]
        yield Attested(copy, client, root, Digest(bytes.fromhex(config[2:])))


def test_auditors_who_disagree_are_side_by_side(attested: Attested) -> None:
    nothing = attested.coverage()
    assert (nothing["first"], nothing["last"], nothing["ended"]) == (1, ROUNDS, ROUNDS)
    assert nothing["counts"]["none"] == len(nothing["updates"])
    first, second, third = (each["client"] for each in nothing["updates"][:3])
    attested.attest(ONE, first, ReplayVerdict.SAME)
    attested.attest(ONE, second, ReplayVerdict.OTHER)
    attested.attest(OTHER, second, ReplayVerdict.SAME)
    attested.attest(OTHER, third, ReplayVerdict.OTHER)
    attested.attest(OTHER, 999, ReplayVerdict.OTHER)
    shown = attested.coverage()
    assert [each["verdict"] for each in shown["updates"][:3]] == ["same", "disputed", "other"]
    both = {(each["auditor"], each["verdict"]) for each in shown["updates"][1]["attestations"]}
    assert both == {(checksum(ONE.address), "other"), (checksum(OTHER.address), "same")}
    assert set(shown["auditors"]) == {checksum(ONE.address), checksum(OTHER.address)}
    assert attested.coverage(**{"from": 2})["auditors"] == []
    assert attested.coverage(to=1)["updates"] == [
        each for each in shown["updates"] if each["round"] == 1
    ]


def test_an_answer_changes_with_its_mailbox_and_no_block(attested: Attested) -> None:
    path = f"{attested.root}/training"
    answer = attested.client.get(path, params={"to": 1})
    assert answer.headers["Cache-Control"] == "no-cache"
    known = {"If-None-Match": answer.headers["ETag"]}
    assert attested.client.get(path, params={"to": 1}, headers=known).status_code == 304
    client = answer.json()["updates"][0]["client"]
    attested.attest(ONE, client, ReplayVerdict.SAME)
    changed = attested.client.get(path, params={"to": 1}, headers=known)
    assert changed.status_code == 200
    assert changed.json()["as_of"] == answer.json()["as_of"]


def test_rounds_that_have_not_ended_are_refused(attested: Attested) -> None:
    path = f"{attested.root}/training"
    for query in ("from=0", "to=0", "from=x", "from=3&to=2", f"to={ROUNDS + 1}", "round=1"):
        refused(attested.client.get(f"{path}?{query}"), 422, "request-invalid")
    elsewhere = path.replace(attested.root[-40:], "1" * 40)
    refused(attested.client.get(elsewhere), 404, "deployment-not-found")


def test_long_answers_go_on(attested: Attested, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attested.coverage()
    monkeypatch.setattr("api.federation.MAX_UPDATES", 1)
    part = attested.coverage(**{"from": 2})
    assert (part["first"], part["last"], part["next_from"]) == (2, 2, 3)
    _, _, _, chain, _, address = attested.root.split("/")
    with Service(str(attested.client.base_url)) as service:
        deployment = service.deployment(chain, address)
        assert deployment.training() == whole
        assert deployment.training(2, 3)["updates"] == [
            each for each in whole["updates"] if each["round"] in {2, 3}
        ]
        monkeypatch.setattr("api.client.MAX_COVERAGE_PAGES", 3)
        with pytest.raises(ServiceError, match="without an end"):
            deployment.training()
