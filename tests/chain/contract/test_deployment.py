"""A run is deployed once, with what its document says, and everything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.chain.contract.deployment import connect, deploy, deployment_for
from ledger.chain.contract.manifest import read_manifest
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import Stage
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Beacon, Form, Quorum
from tests.contracts.twins import digest_of, registry_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.chain.ports import Receipt

PARAMETERS = Parameters(
    clients=300,
    active_ppm=100_000,
    committee_ppm=400_000,
    aggregation_ppm=250_000,
    rounds=7,
    dimension=6,
    strategy=3,
    threshold="spread",
    quorum=Quorum.BFT,
    beacon=Beacon.BLOCK,
    commit_blocks=5,
    deadline_blocks=31,
)
DOCUMENT = RunDocument(
    PARAMETERS, registry_of(300), digest_of("model"), (("weight", (2, 2)), ("bias", (2,))), {}
)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        yield chain


def test_the_contract_holds_what_the_document_says(chain: EmbeddedChain, tmp_path: Path) -> None:
    manifest = deploy(chain, DOCUMENT, tmp_path / "deployment.json")
    ledger = connect(chain, manifest)
    found = ledger.deployment()
    assert found == deployment_for(DOCUMENT)[0]
    assert found.config == sha256(encode_run(DOCUMENT))
    assert (found.clients, found.members, found.trainers) == (300, 12, 18)
    assert (found.form, found.beacon) == (Form.WITHIN_THRESHOLD, Beacon.BLOCK)
    assert (found.commit_blocks, found.deadline_blocks) == (5, 31)
    assert found.replies == 7  # of 12 members 3 may be faulty: ceil((12 + 3 + 1) / 2) - 1
    assert ledger.state().stage is Stage.OPEN
    assert ledger.registry() == DOCUMENT.registry


def test_the_manifest_says_what_was_deployed(chain: EmbeddedChain, tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    manifest = deploy(chain, DOCUMENT, path)
    assert read_manifest(path) == manifest
    arguments = json.loads(path.read_text("utf-8"))["arguments"]
    assert arguments == {
        "config": manifest.config,
        "registry": f"0x{deployment_for(DOCUMENT)[0].registry.hex()}",
        "clients": 300,
        "trainers": 18,
        "members": 12,
        "aggregation_ppm": 250_000,
        "form": 3,
        "rounds": 7,
        "commit_blocks": 5,
        "deadline_blocks": 31,
        "replies": 7,
        "beacon": "block",
        "model": f"0x{DOCUMENT.initial_model.hex()}",
    }


def test_deploying_again_deploys_nothing(chain: EmbeddedChain, tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    manifest, blocks = deploy(chain, DOCUMENT, path), chain.head().number
    assert deploy(chain, DOCUMENT, path) == manifest
    assert chain.head().number == blocks


def test_a_registration_that_was_cut_off_is_completed(
    chain: EmbeddedChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, send = tmp_path / "deployment.json", chain.send

    def send_two(to: str | None, data: bytes, gas: int) -> Receipt:
        if chain.head().number == 2:
            raise ChainError("cut off")
        return send(to, data, gas)

    with monkeypatch.context() as patched:
        patched.setattr(chain, "send", send_two)
        with pytest.raises(ChainError, match="cut off"):
            deploy(chain, DOCUMENT, path)
    ledger = connect(chain, read_manifest(path))
    assert ledger.state().registered == 256
    assert ledger.opening(1) is None
    assert deploy(chain, DOCUMENT, path) == read_manifest(path)
    assert ledger.state().stage is Stage.OPEN


def test_another_document_is_refused_where_one_is_deployed(
    chain: EmbeddedChain, tmp_path: Path
) -> None:
    path = tmp_path / "deployment.json"
    deploy(chain, DOCUMENT, path)
    other = replace(DOCUMENT, layout=(("weight", (6,)),))
    with pytest.raises(ChainError, match="is of another configuration"):
        deploy(chain, other, path)
