"""The page of the live federation: REST's numbers, as they change, and nobody's text as markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.settings import Settings
from ledger.protocol.types import Phase
from tests.api.conftest import read, root_of, serving
from tests.api.live_federation import SECONDS, LiveFederation, live_federation
from tests.api.web.conftest import run_address, show
from tests.api.web.test_views import AXE, TOO_WIDE, VIOLATIONS, figure, rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("web")

NOTHING = "\u2013"
ROLES = {"trainer": "trainer", "member": "member"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFederation]:
    with live_federation(tmp_path_factory.mktemp("live")) as found:
        yield found


@pytest.fixture(scope="module")
def client(live: LiveFederation) -> Iterator[httpx.Client]:
    """The service that reads its mail; the pages of this module are this one's.

    It looks anew for each request: a page whose clock runs ahead asks soon again, and what it was
    told within the same second would be no news.
    """
    settings = Settings(home=live.home, mailbox=str(live.mailbox))
    with pytest.MonkeyPatch.context() as patch, serving(settings) as client:
        patch.setattr("api.federation.FRESH_SECONDS", 0.0)
        yield client


def shown(page: Page) -> list[list[str]]:
    """Return each client's row as far as time does not change it."""
    return [row[:2] + row[3:] for row in rows(page, "Clients in the open round")]


def expected(one: dict[str, Any], primary: int | None) -> list[str]:
    votes = [f"{v['kind']} in view {v['view'] + 1} of the {v['phase']}" for v in one["votes"]]
    return [
        str(one["client"]),
        ROLES[one["role"]] + (" primary" if one["client"] == primary else ""),
        ", ".join(each["act"] for each in one["awaited"]) or NOTHING,
        f"block {one['committed_block']}" if one["committed_block"] is not None else NOTHING,
        "published" if one["payload"] else NOTHING,
        ", ".join(f"of {each['size']} updates" for each in one["scored"]) or NOTHING,
        "; ".join(votes) or NOTHING,
    ]


def test_page_shows_what_rest_answers(
    page: Page, client: httpx.Client, live: LiveFederation
) -> None:
    actors = live.actors
    root = root_of(client, live.address)
    show(page, run_address(root))
    page.get_by_role("link", name="Live", exact=True).click()
    page.wait_for_selector("#course")
    assert stage(page) == "commitments"
    compare(page, client, root)

    # While it is open: all commit, all but one publish, and members score.
    view = actors.closed()
    live.pass_time(1.6 * SECONDS)  # view 0 is just over half
    seats = view.inputs.participants
    absent = seats.trainers[0]
    actors.publish(*(one for one in seats.active if one != absent))
    view = actors.observer.look(view)
    for member in seats.members:
        view = live.step(view, member, view.closed_at + SECONDS / 2)
    primary = view.primary(Phase.AGGREGATION, 0)
    page.wait_for_selector(f"tr.is-late[data-client='{primary}']")
    page.wait_for_function(
        "() => [...document.querySelectorAll('tr[data-client]')]"
        ".filter((row) => row.textContent.includes('of 11 updates')).length === 5"
    )
    told = compare(page, client, root)
    assert told["open"]["late"] == [absent, primary]
    assert page.locator("#late").inner_text() == f"{absent}, {primary}"
    assert stage(page) == "aggregation"
    assert "aggregation" in page.locator("#said").inner_text()
    check_place(page)
    check_access(page)


def stage(page: Page) -> str:
    return page.locator("#course .badge").inner_text()


def compare(page: Page, client: httpx.Client, root: str) -> dict[str, Any]:
    """Hold what is shown against REST's answer, and return that."""
    told = read(client, f"{root}/federation")
    view = told["open"]["view"]
    want = [expected(one, view and view["primary"]) for one in told["open"]["clients"]]
    assert shown(page) == want
    assert figure(page, "late") == str(len(told["open"]["late"]))
    assert figure(page, "view") == (str(view["number"] + 1) if view else NOTHING)
    return dict(told)


def check_place(page: Page) -> None:
    """Hold the page to leave its reader where he is while the time goes on."""
    link = page.locator("tr[data-client] a").nth(3)
    link.focus()
    link.evaluate("(one) => { one.seen = true; }")
    before = page.locator("#course").inner_text()
    page.wait_for_function(
        "(before) => document.querySelector('#course').textContent !== before", arg=before
    )
    assert page.evaluate("document.activeElement.seen") is True


def check_access(page: Page) -> None:
    """Hold the page to what every page is held to."""
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(VIOLATIONS, "color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(TOO_WIDE) <= 0
