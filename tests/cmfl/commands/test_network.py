"""`cmfl network`: what it refuses before anything begins, and what it says of a round."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clients.configuration.parsing import plain_values
from clients.testnet import ChainKind
from clients.testnet.network import PACES, fitted_to_pace
from ledger.audit.checks.rounds import ABANDONED_ROUND
from ledger.protocol.types import Beacon
from tests.cmfl.commands.conftest import refusal, succeeds
from tests.faults import times


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "13"], "--workers 13: must be at most 12"),
        (["--set", "malice.members.silent=1"], "do not simulate attackers"),
        (["--set", "protocol.commit_blocks=0"], "commit_blocks"),
        (["--set", "protocol.beacon=none"], 'protocol.beacon = "none"'),
        (
            ["--set", "protocol.beacon=none", "--allow-predictable-seeds", "--workers", "13"],
            "--workers 13: must be at most 12",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_begun(
    tmp_path: Path, options: list[str], said: str
) -> None:
    home = tmp_path / "home"
    assert said in refusal("network", "--home", home, "--preset", "smoke", *options)
    assert not home.exists()


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    said = refusal("network", "--home", tmp_path, "--preset", "smoke")
    assert "is not empty; name a new folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_default_times_suit_the_chain_and_given_ones_stay() -> None:
    pace = PACES[ChainKind.EMBEDDED]
    protocol = fitted_to_pace(plain_values("smoke"), pace).protocol
    assert protocol.beacon is Beacon.BLOCK
    assert protocol.commit_blocks == 10, "one block for each of ten active clients"
    assert protocol.deadline_blocks == 10 + pace.deadline_blocks
    given = plain_values("smoke", settings=("protocol.commit_blocks=70", "protocol.beacon=none"))
    kept = fitted_to_pace(given, pace).protocol
    assert (kept.commit_blocks, kept.deadline_blocks, kept.beacon.value) == (
        70,
        70 + pace.deadline_blocks,
        "none",
    )


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_network_plays_its_rounds_and_is_audited(tmp_path: Path) -> None:
    """One round on the embedded chain; by `make faults` three on each chain."""
    rounds = times(1, 3)
    chains = [kind for kind in ChainKind if kind != "anvil" or os.environ.get("CMFL_ANVIL")]
    for chain in chains[: times(1, 2)]:
        home = ["--home", tmp_path / chain, "--preset", "smoke", "--rounds", rounds]
        told = succeeds("network", *home, "--chain", chain, "--workers", 2, "--json").json
        assert told["audit"]["outcome"] == "passed"
        assert told["played"]["rounds"] == rounds
        # On a slow machine, a round may be decided too late.
        proven = {f["kind"] for f in told["audit"]["findings"] if f["proven"]}
        assert proven <= {ABANDONED_ROUND.code}
