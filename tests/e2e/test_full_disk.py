"""A disk that fills ends a command with the path, and loses nothing that was there before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import recorded_configuration
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.errors import CmflError
from ledger.storage.blobs import FolderBlobs
from tests.cmfl.commands.conftest import cmfl, succeeds
from tests.disks import fill, small_disk

DISK_BYTES = 16 << 20


def played(home: Path) -> str:
    """Begin the run of a home, or take it up; return its last head."""
    begun = Home(home).run("run").configuration.exists()
    settings = ("training.path=plain", "protocol.rounds=2")
    configuration = (
        recorded_configuration(home, "run") if begun else load("smoke", settings=settings)
    )
    blobs = FolderBlobs(home / "blobs")
    with (
        EmbeddedChain.open_or_create(home / "chain.sqlite") as chain,
        open_run(home, "run", configuration, chain, blobs) as run,
    ):
        run.go_on(lambda _: None)
        return run.ledger.state().head.hex()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def head(whole: Path) -> str:
    return played(whole)


# The disk is full at the first document, while the contract is deployed, and within a round.
@pytest.mark.parametrize("free", [0, 100_000, 250_000, 400_000])
@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_resumes_later(
    head: str, tmp_path: Path, free: int
) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        home = disk / "home"
        home.mkdir()
        filling = fill(disk, free)
        with pytest.raises((CmflError, OSError)) as caught:
            played(home)
        assert os.statvfs(disk).f_bavail < 50, "the disk was not filled"
        error = caught.value
        shown = str(error.filename) if isinstance(error, OSError) else str(error)
        assert str(home) in shown
        assert not list(home.rglob(".writing-*"))
        filling.unlink()
        assert played(home) == head
        succeeds("audit", "--home", home)


RESULTS: dict[str, tuple[object, ...]] = {
    "audit": ("audit", "--jobs", 1, "--report"),
    "training": ("verify", "training", "--round", 1, "--sample", 1, "--report"),
    "bundle": ("export", "bundle", "--round", 1, "--out"),
    "proof": ("export", "proof", "--round", 1, "--client", 0, "--out"),
    "attestation": ("export", "attestation", "--out"),
    "mlbom": ("export", "mlbom", "--out"),
    "model": ("model", "export", "--out"),
    "table": ("export", "table", "updates", "--output"),
}


@pytest.mark.parametrize("command", RESULTS.values(), ids=RESULTS)
@pytest.mark.usefixtures("head")
@pytest.mark.slow
def test_on_a_full_disk_an_earlier_result_is_kept(
    whole: Path, tmp_path: Path, command: tuple[object, ...]
) -> None:
    words, option = command[:-1], command[-1]
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        out = disk / "result"
        assert cmfl(*words, "--home", whole, option, out).code in {0, 1, 3}
        before = out.read_bytes()
        assert before
        filling = fill(disk, 0)
        result = cmfl(*words, "--home", whole, option, out)
        assert "No space left on device" in result.err
        assert result.code == 2
        assert out.read_bytes() == before
        assert sorted(disk.iterdir()) == [filling, out]


@pytest.mark.usefixtures("head")
@pytest.mark.slow
def test_on_a_full_disk_no_half_folder_is_left(whole: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        filling = fill(disk, 0)
        result = cmfl("export", "crate", "--home", whole, "--out", disk / "crate")
        assert (result.code, [*disk.iterdir()]) == (2, [filling])
        assert "No space left on device" in result.err
