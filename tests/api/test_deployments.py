"""What a deployment has fixed is told as contract and run document have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.settings import Settings
from ledger.chain.contract.deployment import connect
from ledger.chain.contract.manifest import read_manifest
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.history.documents import read_run
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import CLIENTS, MEMBERS, ROUNDS, TRAINERS, make_run, read, root_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from ledger.protocol.ledger_state import Deployment


@pytest.fixture(scope="module")
def fixed(home: Path) -> Iterator[Deployment]:
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        manifest = read_manifest(home / "runs" / "first" / "deployment.json")
        yield connect(chain, manifest).deployment()


def test_the_contracts_own_facts_are_told(
    client: httpx.Client, root: str, fixed: Deployment
) -> None:
    told = read(client, root)
    assert told["sizes"]["clients"] == CLIENTS
    assert (told["sizes"]["trainers"], told["sizes"]["members"]) == (TRAINERS, MEMBERS)
    contract = told["contract"]
    assert contract == {
        "aggregation_ppm": fixed.aggregation_ppm,
        "form": {"code": int(fixed.form), "name": "below_two"},
        "rounds": ROUNDS,
        "commit_blocks": 1,
        "deadline_blocks": 3,
        "replies": fixed.replies,
        "beacon": "none",
        "registry": f"0x{fixed.registry.hex()}",
        "initial_model": f"0x{fixed.model.hex()}",
    }
    assert told["sizes"]["replies"] == fixed.replies == 3


def test_rules_are_told_by_the_names_of_the_run_document(
    home: Path, client: httpx.Client, root: str, fixed: Deployment
) -> None:
    document = read_run(FolderBlobs(home / "blobs"), fixed.config)
    assert document is not None
    p, told = document.parameters, read(client, root)["parameters"]
    assert told == {
        "active_ppm": p.active_ppm,
        "committee_ppm": p.committee_ppm,
        "aggregation_ppm": p.aggregation_ppm,
        "dimension": p.dimension,
        "strategy": {"number": 3, "name": "III"},
        "distance": "direction",
        "quorum": "paper",
        "server_rate": 1.0,
        "view_seconds": 10,
    }


def test_without_the_configurations_blob_the_contracts_facts_remain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    address = make_run(home, "first", ("protocol.rounds=1",))
    with serving(Settings(home=home)) as client:
        root = root_of(client, address)
        before = read(client, root)
        assert before["parameters"]["strategy"] == {"number": 1, "name": "I"}
        digest = before["config"][2:]
        (home / "blobs" / digest[:2] / digest).unlink()
        after = read(client, root)
    assert after == before | {"parameters": None}
