"""A power cut at any moment costs no run: what a transaction refers to is durable before it."""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import recorded_configuration
from ledger.io.home import DISK, Disk, Home
from ledger.protocol.errors import CmflError
from ledger.storage.blobs import FolderBlobs
from tests.e2e.power import SENDING, SENT, FailingDisk, PowerCutError, PoweredChain
from tests.faults import times

CUTS = times(6, 200)
SETTINGS = (
    "training.path=plain",
    "protocol.rounds=2",
    "malice.members.equivocating=1",
    "malice.trainers.not-finite=1",
)


class NamelessDisk(FailingDisk):
    def sync_folder(self, folder: Path) -> None:
        pass


class BytelessDisk(FailingDisk):
    """A disk whose user forgets that bytes need syncing, and renames what may be empty."""

    def sync_files(self, paths: Collection[Path]) -> None:
        pass


class HastyBlobs(FolderBlobs):
    def sync(self) -> None:
        pass


def played(home: Path, disk: Disk = DISK, kind: type[FolderBlobs] = FolderBlobs) -> str:
    """Begin the run of a home, or take it up where it stands; return its last head."""
    begun = Home(home).run("run").configuration.exists()
    configuration = (
        recorded_configuration(home, "run") if begun else load("smoke", settings=SETTINGS)
    )
    blobs = kind(home / "blobs", disk=disk)
    with Home(home).writing(), PoweredChain.open_or_create(home / "chain.sqlite") as chain:
        assert isinstance(chain, PoweredChain)
        chain.disk = disk if isinstance(disk, FailingDisk) else None
        with open_run(home, "run", configuration, chain, blobs, disk=disk) as run:
            run.go_on(lambda _: None)
            return run.ledger.state().head.hex()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """The head of a run that nothing interrupts, and what it does to disk and chain."""
    # As deep as the homes that are cut, so that as many folders lie above it.
    home, disk = tmp_path_factory.mktemp("whole") / "home", FailingDisk()
    home.mkdir()
    return played(home, disk), disk.operations


def moment(operations: list[str], number: int, rng: random.Random) -> int:
    """Return when to cut: half of the moments anywhere, half beside a transaction."""
    sending = [place for place, done in enumerate(operations) if done in {SENDING, SENT}]
    beside = [place + step for place in sending for step in (0, 1)]
    part = (range(len(operations)), beside)[number % 2]
    return part[int(len(part) * (number // 2 + rng.random()) / (CUTS // 2))]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(CUTS))
def test_a_run_survives_a_power_cut_at_any_moment(
    whole: tuple[str, list[str]], tmp_path: Path, number: int
) -> None:
    head, operations = whole
    rng = random.Random(number)
    cut_at = moment(operations, number, rng)
    home, disk = tmp_path / "home", FailingDisk(cut_at)
    home.mkdir()
    with pytest.raises(PowerCutError):
        played(home, disk)
    assert disk.operations == operations[:cut_at], "the run is the same up to the cut"
    disk.lose(rng, everything=rng.random() < 0.3)
    assert played(home) == head, f"cut before {operations[cut_at : cut_at + 1]}"


@pytest.mark.parametrize(
    ("disk_kind", "blobs_kind", "survives"),
    [
        (FailingDisk, FolderBlobs, True),
        (NamelessDisk, FolderBlobs, False),
        (BytelessDisk, FolderBlobs, False),
        (FailingDisk, HastyBlobs, False),
    ],
    ids=["all synced", "names forgotten", "bytes forgotten", "no barrier"],
)
@pytest.mark.slow
def test_a_run_that_leaves_a_sync_out_does_not_survive(
    whole: tuple[str, list[str]],
    tmp_path: Path,
    disk_kind: type[FailingDisk],
    blobs_kind: type[FolderBlobs],
    survives: bool,
) -> None:
    # Creation, registration, commitments, a ban, and the first decision.
    disk = disk_kind(transactions=5)
    with pytest.raises(PowerCutError):
        played(tmp_path, disk, blobs_kind)
    disk.lose(random.Random(6), everything=True)
    assert resumes_to(whole[0], tmp_path) is survives


def resumes_to(head: str, home: Path) -> bool:
    try:
        return played(home) == head
    except CmflError:
        return False
