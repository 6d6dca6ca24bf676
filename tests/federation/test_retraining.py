"""What an honest client has trained follows from the chain's model, and from no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import read_manifest
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs
from tests.cmfl.commands.conftest import settings_of, succeeds
from tests.federation.retraining import Retraining


def test_updates_of_another_model_differ(tmp_path: Path) -> None:
    settings = settings_of("protocol.rounds=2", "training.path=plain")
    succeeds("run", "--preset", "smoke", "--home", tmp_path, "--run", "one", *settings, "--json")
    home = Home(tmp_path)
    with EmbeddedChain.open(home.chain) as chain:
        ledger = connect(chain, read_manifest(home.run("one").manifest))
        first = ledger.deployment().model
        with Retraining(ledger, FolderBlobs(home.blobs)) as retraining:
            assert retraining.differing(1, ()) == retraining.differing(2, ()) == ()
            with pytest.raises(KeyError):
                retraining.differing(4, ())  # its model follows from the rounds before
            retraining.begins_with(2, first)
            assert len(retraining.differing(2, ())) == 10, "every active client's"
            assert len(retraining.differing(2, (ClientId(0), ClientId(1)))) < 10
