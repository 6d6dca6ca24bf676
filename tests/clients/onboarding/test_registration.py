"""Entries of many owners come to one registry, and whether a round is seen in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.configuration.loading import load
from clients.registration import (
    combined_registry,
    encode_entry,
    encode_registry,
    proposal_digest,
    read_entry,
    read_registry,
    signed_entry,
)
from clients.worker.checks import FinalityLag, finality_lag
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Block
from ledger.protocol.errors import ConfigurationError
from tests.clients.onboarding.owners import agreed, entry_of, owner, registry_of

ENTRIES = [(f"owner {number}", entry_of(number)) for number in range(5)]


def test_clients_are_ordered_by_address_and_keep_their_samples() -> None:
    registry = combined_registry(ENTRIES)
    assert [client.address for client in registry.clients] == sorted(
        owner(number).address for number in range(5)
    )
    samples = {owner(number).address: 10 + number for number in range(5)}
    assert all(client.samples == samples[client.address] for client in registry.clients)


@settings(max_examples=8)
@given(st.permutations(ENTRIES))
def test_the_order_in_which_entries_come_changes_nothing(entries: Any) -> None:
    assert encode_registry(combined_registry(entries)) == encode_registry(
        combined_registry(ENTRIES)
    )


def test_entries_and_registries_survive_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "me.json").write_bytes(encode_entry(ENTRIES[0][1]))
    assert read_entry(tmp_path / "me.json") == ENTRIES[0][1]
    registry = registry_of()
    (tmp_path / "all.json").write_bytes(encode_registry(registry))
    assert read_registry(tmp_path / "all.json") == registry


def test_what_does_not_go_together_is_not_gathered() -> None:
    with pytest.raises(ConfigurationError, match="no entry to gather"):
        combined_registry([])
    with pytest.raises(ConfigurationError, match=r"again: 0x\w+ already has an entry in owner 0"):
        combined_registry([*ENTRIES, ("again", ENTRIES[0][1])])
    with pytest.raises(ConfigurationError, match=r"is for run \w+, and .* for (other|fed)"):
        combined_registry([*ENTRIES, ("late", entry_of(7, run="other"))])
    with pytest.raises(ConfigurationError, match="for settings 0x"):
        combined_registry([*ENTRIES, ("late", entry_of(7, "seed=1"))])
    most = signed_entry(owner(8), "fed", proposal_digest(agreed()), 2**53 - 1)
    with pytest.raises(ConfigurationError, match=r"samples; must be fewer than 2\^53"):
        combined_registry([*ENTRIES, ("many", most)])


@pytest.mark.parametrize("samples", [0, -1, 2**53])
def test_impossible_numbers_and_names_are_not_signed(samples: int) -> None:
    digest = proposal_digest(agreed())
    with pytest.raises(ConfigurationError, match="samples = "):
        signed_entry(owner(0), "fed", digest, samples)
    with pytest.raises(ConfigurationError, match=r"run name '\.\./fed'"):
        signed_entry(owner(0), "../fed", digest, 1)


def entry_with(**changed: Any) -> bytes:
    return json.dumps(json.loads(encode_entry(ENTRIES[0][1])) | changed).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "not JSON"),
        (b'{"run": 1, "run": 2}', "a map has a key twice"),
        (b"[]", "no entry: must be a map of client, configuration"),
        (b" " * 20_000, "over 10000 bytes"),
        (entry_with(more=1), "must be a map of"),
        (entry_with(version=1), "entry has protocol version 1; this program needs"),
        (entry_with(run=5), "run must be a name"),
        (entry_with(samples=11), "is not signed by 0x"),
        (entry_with(samples="10"), "samples a whole number"),
        (entry_with(client="0x12"), "client: '0x12' is not an address"),
        (entry_with(configuration="0x" + "00" * 31), "configuration: must be 0x and 64 hex digits"),
        (entry_with(signature="0x" + "00" * 65), "signature: a signature is 65 bytes with v"),
    ],
)
def test_what_is_no_signed_entry_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "me.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=sentence):
        read_entry(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_entry(tmp_path / "none.json")


def registry_with(**changed: Any) -> bytes:
    return json.dumps(json.loads(encode_registry(registry_of())) | changed).encode()


LISTED = json.loads(encode_registry(registry_of()))["clients"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (registry_with(clients={}), "clients must be a list"),
        (registry_with(clients=[]), "no entry to gather"),
        (registry_with(clients=LISTED[::-1]), "addresses must be ascending"),
        (registry_with(clients=LISTED[:1] * 2), "has an entry in"),
        (registry_with(clients=LISTED[1:]), "states the registry digest 0x"),
        (registry_with(run="other"), "is not signed by"),
        (registry_with(registry="0x" + "11" * 32), "states the registry digest 0x1111"),
    ],
)
def test_whoever_gathers_can_change_nothing(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "all.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=sentence):
        read_registry(path)


def test_the_proposal_determines_the_result_except_the_client_count() -> None:
    digest = proposal_digest(agreed())
    same = ("protocol.clients=8", "machine.workers=2", "evaluation.every=2")
    assert all(proposal_digest(agreed(setting)) == digest for setting in same)
    others = ("seed=1", "protocol.rounds=9", "training.batch_size=3", "data.options.classes=4")
    assert len({digest, *(proposal_digest(agreed(setting)) for setting in others)}) == 5


def test_a_local_path_is_no_part_of_the_proposal() -> None:
    settings = ("data.name=sent140", "model.name=sent140_lstm")
    one, other, low = (
        proposal_digest(load("smoke", settings=(*settings, *paths)))
        for paths in (
            ("data.path=a", "data.options.glove=b"),
            ("data.path=c", "data.options.glove=d"),
            ("data.path=a", "data.options.glove=b", "data.options.lower=false"),
        )
    )
    assert one == other != low


class Lagging(EmbeddedChain):
    """A chain that calls a block final when 64 others stand on it, as anvil does."""

    def finalized(self) -> int:
        return max(0, self.head().number - 64)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with Lagging.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(70)
        yield chain


def test_a_window_closed_before_finality_takes_nobodys_commitment(chain: EmbeddedChain) -> None:
    # Opened in block 6, seen when block 70 is there: block 71 is the 65th behind the opening one.
    lag = finality_lag(chain, None)
    assert lag.closed_too_early(65) is None
    said = lag.closed_too_early(64)
    assert said is not None
    assert "the newest final block, 6, is 64 blocks behind block 70" in said
    assert "--confirmations N, well under 64" in said


def test_a_given_depth_overrides_the_chains_finality(chain: EmbeddedChain) -> None:
    assert finality_lag(chain, 2).closed_too_early(4) is None
    assert finality_lag(chain, 3).closed_too_early(4) is None
    for depth in (4, 12):
        said = finality_lag(chain, depth).closed_too_early(4)
        assert "accepts commitments for only 4 blocks" in (said or "")


def test_commitments_final_after_the_first_view_are_reported() -> None:
    # Two blocks of twelve seconds each stand on a block before it is final: by pencil, 24 seconds.
    final, newest = (Block(n, bytes(32), bytes(32), 1_000 + 12 * n) for n in (7, 9))
    lag = FinalityLag(final, newest)
    assert lag.seen_too_late(25) is None
    assert "is 24 s older than the newest block, and the first view begins 24 s after" in (
        lag.seen_too_late(24) or ""
    )
