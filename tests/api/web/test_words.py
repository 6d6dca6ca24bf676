"""The dashboard's words agree with what the round shows beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.settings import Settings
from tests.api.conftest import deployments, make_run, read, serving
from tests.api.test_bans import SETTINGS, banned_in
from tests.api.web.conftest import run_address, show
from tests.api.web.test_views import figure
from tests.seeds import first_that_shows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from playwright.sync_api import Page

pytestmark = pytest.mark.group("web")

ROUNDS = (1, 2, 3)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a run by lot that accepts more than the places, and fewer, and has an empty seat."""
    folder = tmp_path_factory.mktemp("words")

    def play(seed: int) -> Path:
        home = folder / str(seed)
        make_run(home, "first", (f"seed={seed}", *LOT))
        return home

    with serving(Settings(home=first_that_shows(_shows_all, play, first=6))) as client:
        yield client


LOT = (*SETTINGS, "protocol.strategy=3")


def _shows_all(home: Path) -> bool:
    with serving(Settings(home=home)) as client:
        rounds = rounds_of(client)
    decided = [one for one in rounds if one["status"] == "decided"]
    return {by_lot(one) for one in decided} == {True, False} and any(map(empty_seats, rounds))


def root_of(client: httpx.Client) -> str:
    return str(deployments(client)[0]["links"]["self"])


def rounds_of(client: httpx.Client) -> list[dict[str, Any]]:
    return [read(client, f"{root_of(client)}/rounds/{t}", full="true") for t in ROUNDS]


def by_lot(one: dict[str, Any]) -> bool:
    """Return whether a round accepted more than the places of the next committee."""
    return bool(one["accepted"] > len(one["parts"]["next_committee"]))


def empty_seats(one: dict[str, Any]) -> int:
    return sum(member["empty_seat"] for member in one["parts"]["committee"])


def test_the_sentence_on_the_election_agrees_with_the_ranking(
    page: Page, client: httpx.Client
) -> None:
    for one in rounds_of(client):
        if one["status"] != "decided":
            continue
        show(page, f"{run_address(root_of(client))}/rounds/{one['round']}")
        ranking = page.locator("section").filter(has=page.locator("h2", has_text="Ranking"))
        sentence = ranking.first.locator("p").first.inner_text()
        outside = ranking.first.locator("tr.is-out", has_text="elected").count()
        assert ("drawn by lot" in sentence) is by_lot(one)
        assert ("next to them" in sentence) is (outside > 0)


def test_an_empty_seat_is_not_counted_among_those_who_commit(
    page: Page, client: httpx.Client
) -> None:
    one = next(one for one in rounds_of(client) if empty_seats(one))
    show(page, f"{run_address(root_of(client))}/rounds/{one['round']}")
    committed = page.locator(".figures > div").filter(has=page.get_by_text("committed", exact=True))
    expected = one["trainers"] + one["members"] - empty_seats(one)
    assert committed.locator("small").inner_text() == f"of {expected}"
    votes = page.locator("tr").filter(has_text="empty seat").first
    assert "no vote" in votes.inner_text()


def test_a_banned_client_has_its_reason(page: Page, client: httpx.Client) -> None:
    root = root_of(client)
    for number, banned_round in banned_in(client, root).items():
        show(page, f"{run_address(root)}/clients/{number}")
        assert "signed two different" in page.locator("header .facts").inner_text()
        show(page, f"{run_address(root)}/rounds/{banned_round}")
        assert int(figure(page, "banned")) >= 1
        note = page.locator(".figures > div").filter(has=page.get_by_text("banned", exact=True))
        assert str(number) in note.locator("small").inner_text()


def test_a_distance_is_not_said_to_be_to_the_members_where_it_is_to_all(
    page: Page, client: httpx.Client
) -> None:
    """In strategy III it is the distance from the round's other updates."""
    show(page, "#/words")
    meaning = page.locator("main dt", has_text="distance").first.locator("xpath=following::dd[1]")
    assert "strategy III" in meaning.inner_text()
    show(page, f"{run_address(root_of(client))}/rounds/1")
    assert "from its own" not in page.locator("main").inner_text()


def test_members_are_not_said_to_be_drawn(page: Page, client: httpx.Client) -> None:
    show(page, run_address(root_of(client)))
    assert "drawn in a round" not in page.locator("main").inner_text()


def test_one_thing_has_one_name(page: Page, client: httpx.Client) -> None:
    run = run_address(root_of(client))
    for place in ("#/", run, f"{run}/rounds/1"):
        show(page, place)
        assert "deployment" not in page.locator("body").inner_text().lower()
