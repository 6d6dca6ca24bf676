"""The page of the live federation: REST's numbers, as they change, and nobody's text as markup."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from api.settings import Settings
from ledger.protocol.types import Phase
from tests.api.conftest import read, root_of, serving
from tests.api.live_federation import SECONDS, live_federation
from tests.api.web.conftest import WAIT_MS, run_address, settled
from tests.api.web.test_views import AXE, TOO_WIDE, VIOLATIONS, figure, keep_pictures, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Route

    from tests.api.live_federation import LiveFederation

pytestmark = pytest.mark.xdist_group("web")

SCREENSHOTS = os.environ.get("CMFL_SCREENSHOTS")
HOSTILE = "<img src=x onerror=document.title='run'>"
ROLES = {"trainer": "trainer", "member": "member"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFederation]:
    """A federation whose view 0 is just over half when its commitments close."""
    with live_federation(tmp_path_factory.mktemp("live"), behind=1.6 * SECONDS) as found:
        yield found


def shown(page: Page) -> list[list[str]]:
    """Return each client's row as far as time does not change it."""
    return [[cell.split("\n")[0] for cell in row[:7]] for row in rows(page, "Everybody's part")]


def expected(one: dict[str, Any], primary: int | None) -> list[str]:
    """Return a client's row as REST has it."""
    votes = [f"{v['kind']} in view {v['view'] + 1} of the {v['phase']}" for v in one["votes"]]
    return [
        str(one["client"]),
        ROLES[one["role"]] + (" primary" if one["client"] == primary else ""),
        f"block {one['committed_block']}" if one["committed_block"] is not None else "–",
        "published" if one["payload"] else "–",
        ", ".join(f"of {each['size']} updates" for each in one["scored"]) or "–",
        "; ".join(votes) or "–",
        ", ".join(f"its {each['act']}" for each in one["awaited"]) or "–",
    ]


def test_the_page_follows_a_round_and_shows_what_rest_answers(
    browser: Browser, live: LiveFederation
) -> None:
    actors = live.actors
    chain = actors.chain_view()
    settings = Settings(home=live.home, mailbox=str(live.mailbox))
    with serving(settings) as client, browser.new_context(base_url=str(client.base_url)) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        root = root_of(client, live.address)

        def compare() -> dict[str, Any]:
            told = read(client, f"{root}/federation")
            primary = told["open"]["view"] and told["open"]["view"]["primary"]
            want = [expected(one, primary) for one in told["open"]["clients"]]
            page.wait_for_function(
                "(want) => document.querySelectorAll('tr[data-client]').length === want", arg=12
            )
            assert shown(page) == want
            assert figure(page, "late") == str(len(told["open"]["late"]))
            return dict(told)

        page.goto(f"/dashboard/{run_address(root)}")
        page.get_by_role("link", name="Live", exact=True).click()
        page.wait_for_selector("#course")
        settled(page)
        assert figure(page, "stage") == "commitments"
        compare()

        # While it is open: all commit, all but one publish, and members score.
        view = actors.closed()
        active = chain.participants().active
        absent = chain.participants().trainers[0]
        actors.publish(*(one for one in active if one != absent))
        view = actors.observer.look(view)
        for member in view.inputs.participants.members:
            view = live.step(view, member, view.closed_at + SECONDS / 2)
        primary = view.primary(Phase.AGGREGATION, 0)
        page.wait_for_selector(f"tr.is-late[data-client='{primary}']")
        page.wait_for_function(
            "() => [...document.querySelectorAll('tr[data-client]')]"
            ".filter((row) => row.textContent.includes('of 11 updates')).length === 5"
        )
        told = compare()
        assert told["open"]["late"] == [absent, primary]
        assert page.locator("#late").inner_text() == f"{absent}, {primary}"
        assert figure(page, "stage") == "aggregation"
        assert "aggregation" in page.locator("#said").inner_text()
        check_access(page)
        assert faults == []


def check_access(page: Page) -> None:
    """Hold the page to what every page is held to; keep pictures where they are wanted."""
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(VIOLATIONS, "color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(TOO_WIDE) <= 0
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        keep_pictures(page, "federation")


def test_what_is_shown_stays_in_place_while_the_time_goes_on(
    browser: Browser, live: LiveFederation
) -> None:
    settings = Settings(home=live.home, mailbox=str(live.mailbox))
    with serving(settings) as client, browser.new_context(base_url=str(client.base_url)) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        root = root_of(client, live.address)
        page.goto(f"/dashboard/{run_address(root)}/federation")
        page.wait_for_selector("#course")
        link = page.locator("tr[data-client] a").nth(3)
        link.focus()
        link.evaluate("(one) => { one.dataset.seen = 'yes'; }")
        before = page.locator("#course").inner_text()
        page.wait_for_function(
            "(before) => document.querySelector('#course').textContent !== before", arg=before
        )
        assert page.evaluate("document.activeElement.dataset.seen") == "yes"


def test_words_that_this_page_does_not_know_are_text(
    browser: Browser, live: LiveFederation
) -> None:
    """No envelope holds text that is told; but a page believes no service."""
    settings = Settings(home=live.home, mailbox=str(live.mailbox))

    def altered(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["open"]["stage"] = HOSTILE
        told["open"]["late"] = []
        for one in told["open"]["clients"]:
            one |= {"role": HOSTILE, "awaited": [{"act": HOSTILE, "due": None}]}
            one["votes"] = [{"kind": HOSTILE, "phase": HOSTILE, "view": 0, "different": 2}]
        route.fulfill(response=answer, body=json.dumps(told))

    with serving(settings) as client, browser.new_context(base_url=str(client.base_url)) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.route("**/federation", altered)
        page.route("**/federation/events", lambda route: route.fulfill(status=404))
        page.goto(f"/dashboard/{run_address(root_of(client, live.address))}/federation")
        page.wait_for_selector("#course")
        assert HOSTILE in page.locator("#course").inner_text()
        assert HOSTILE in page.locator("tr[data-client]").first.inner_text()
        assert page.locator("main img").count() == 0
        assert "run" not in page.title()


def test_a_service_without_a_mailbox_says_what_it_lacks(
    browser: Browser, live: LiveFederation
) -> None:
    with (
        serving(Settings(home=live.home)) as client,
        browser.new_context(base_url=str(client.base_url)) as context,
    ):
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        root = run_address(root_of(client, live.address))
        page.goto(f"/dashboard/{root}")
        settled(page)
        assert page.get_by_role("link", name="Live", exact=True).count() == 0
        page.goto(f"/dashboard/{root}/federation")
        settled(page)
        assert "cmfl serve --mailbox" in page.locator(".command").inner_text()
