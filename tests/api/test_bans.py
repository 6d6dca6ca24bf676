"""Who is banned is told with the round, and has no part in any round after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.settings import Settings
from ledger.protocol.ledger_state import SIGNED_TWICE, StatementKind
from tests.api.conftest import make_run, read, root_of, serving
from tests.cmfl.commands.conftest import succeeds
from tests.seeds import first_that_shows

SETTINGS = (
    *("protocol.rounds=3", "protocol.clients=14", "protocol.active_rate=0.857143"),
    "protocol.committee_rate=0.416667",
    *("protocol.commit_blocks=1", "malice.trainers.self-ban=2"),
)
"""Two trainers ban themselves, each in the first round that it trains in."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, str]]:
    """Serve a run in which both train and are banned in round 1, and one is elected in it."""
    folder = tmp_path_factory.mktemp("bans")

    def play(seed: int) -> tuple[Path, str]:
        home = folder / str(seed)
        return home, make_run(home, "first", (f"seed={seed}", *SETTINGS))

    def elects_a_banned_one(played: tuple[Path, str]) -> bool:
        home, address = played
        with serving(Settings(home=home)) as client:
            root = root_of(client, address)
            banned = banned_in(client, root)
            trained = {e["client"] for e in read(client, f"{root}/rounds/1/updates")["updates"]}
            elected = read(client, f"{root}/rounds/1/committee")["next_committee"]
            return banned.keys() <= trained and any(m["client"] in banned for m in elected)

    home, address = first_that_shows(elects_a_banned_one, play, first=7)
    with serving(Settings(home=home)) as client:
        root = root_of(client, address)
        assert list(banned_in(client, root).values()) == [1, 1]
        yield client, root


def banned_in(client: httpx.Client, root: str) -> dict[int, int]:
    told = read(client, f"{root}/clients", limit=100)["clients"]
    return {e["client"]: e["banned_in_round"] for e in told if e["banned_in_round"] is not None}


def test_member_that_was_banned_before_has_an_empty_seat(served: tuple[httpx.Client, str]) -> None:
    client, root = served
    bans = banned_in(client, root)
    members = read(client, f"{root}/rounds/2/committee")["committee"]
    empty = [member["client"] for member in members if member["empty_seat"]]
    assert empty == [member["client"] for member in members if member["client"] in bans]
    assert empty
    for seat in (member for member in members if member["empty_seat"]):
        assert (seat["commitment"], seat["payload"], seat["primary_of"]) == (None, None, [])
    parts = read(client, f"{root}/clients/{empty[0]}/rounds", order="oldest")["rounds"]
    told = [(part["round"], part["role"], part["empty_seat"], part["banned"]) for part in parts]
    assert told == [(1, "trainer", False, True), (2, "member", True, False)]
    evidence = read(client, f"{root}/evidence", client=empty[0])["evidence"]
    assert {entry["round"] for entry in evidence} == {1}, "an empty seat is not a dropout"


def test_a_banned_client_has_its_reason_at_every_door(served: tuple[httpx.Client, str]) -> None:
    client, root = served
    evidence = read(client, f"{root}/evidence", limit=100)["evidence"]
    proven = {entry["client"]: entry["ban"] for entry in evidence if entry["kind"] == "ban"}
    bans = banned_in(client, root)
    assert set(proven) == set(bans)
    sentences = read(client, f"{root}/rounds/1/explanation")["sentences"]
    for banned, number in bans.items():
        assert read(client, f"{root}/clients/{banned}")["ban"] == proven[banned]
        reason = SIGNED_TWICE[StatementKind(proven[banned]["signed_twice"]["code"])]
        assert any(f"Client {banned} was banned" in line and reason in line for line in sentences)
        shown = succeeds("clients", "show", banned, "--api", str(client.base_url)).out
        assert f"banned_in_round {number}" in shown
        assert reason in shown
        assert proven[banned]["transaction"] in shown
    free = min(set(range(14)) - set(bans))
    assert read(client, f"{root}/clients/{free}")["ban"] is None
    assert "reason" not in succeeds("clients", "show", free, "--api", str(client.base_url)).out
