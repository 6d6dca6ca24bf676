"""A full disk ends a run with the path that could not be written, and loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import recorded_configuration
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.errors import CmflError
from ledger.storage.blobs import FolderBlobs
from tests.io.test_home import full_disk

if TYPE_CHECKING:
    from pathlib import Path


def played(home: Path, largest_file: int | None = None) -> str:
    """Begin the run of a home, or take it up; return its last head."""
    begun = Home(home).run("run").configuration.exists()
    settings = ("training.path=plain", "protocol.rounds=2")
    configuration = (
        recorded_configuration(home, "run") if begun else load("smoke", settings=settings)
    )
    blobs = FolderBlobs(home / "blobs")
    with EmbeddedChain.open_or_create(home / "chain.sqlite") as chain:
        if largest_file is None:
            with open_run(home, "run", configuration, chain, blobs) as run:
                run.go_on(lambda _: None)
                return run.simulation.head.hex()
        with full_disk(largest_file), open_run(home, "run", configuration, chain, blobs) as run:
            run.go_on(lambda _: None)
    raise AssertionError("the disk was large enough")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> str:
    return played(tmp_path_factory.mktemp("whole"))


# What grows beyond these sizes: a document, and the chain early and late.
@pytest.mark.parametrize("largest_file", [100, 5_000, 200_000])
@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_resumes_later(
    head: str, tmp_path: Path, largest_file: int
) -> None:
    with pytest.raises((CmflError, OSError)) as caught:
        played(tmp_path, largest_file)
    error = caught.value
    shown = str(error.filename) if isinstance(error, OSError) else str(error)
    assert str(tmp_path) in shown
    assert not list(tmp_path.rglob(".writing-*"))
    assert played(tmp_path) == head
