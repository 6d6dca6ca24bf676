"""Every view shows what REST answers, to everybody: by eye, by keyboard, by ear, on a phone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import deployments, read, rounds_that_are, serving
from tests.api.proxying import proxied
from tests.api.web.conftest import WAIT_MS, run_address, settled, show
from tests.cmfl.commands.conftest import succeeds
from tests.faults import times
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.xdist_group("web")

AXE = Path(__file__).parent / "vendor/axe-core/axe.min.js"
PAGES = {
    "deployments": "#/",
    "run": "{run}",
    "rounds": "{run}/rounds",
    "round": "{run}/rounds/{decided}",
    "abandoned": "{run}/rounds/{abandoned}",
    "proof": "{run}/rounds/{decided}/clients/{client}",
    "clients": "{run}/clients",
    "client": "{run}/clients/{client}",
    "compare": "#/compare?left={root}&right={root}",
    "search": "#/search?q=7",
    "words": "#/words",
    "verification": "{run}/verification",
}
VIOLATIONS = """async (only) => (await axe.run(document, { resultTypes: ["violations"],
    ...(only ? { runOnly: [only] } : {}) })).violations
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`)"""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def accepted_in(client: httpx.Client, root: str, number: int) -> list[int]:
    told = read(client, f"{root}/rounds/{number}/aggregation")
    return [entry["client"] for entry in told["accepted"]]


@pytest.fixture(scope="module")
def decided(client: httpx.Client, root: str) -> int:
    return max(rounds_that_are(client, root, "decided"))


def figure(page: Page, name: str) -> str:
    entry = page.locator(".figures > div").filter(has=page.get_by_text(name, exact=True))
    return entry.locator("dd").inner_text().split("\n")[0]


def rows(page: Page, caption: str) -> list[list[str]]:
    found: Locator = page.locator("table").filter(has=page.locator("caption", has_text=caption))
    return [
        [cell.strip() for cell in row.locator("th, td").all_text_contents()]
        for row in found.first.locator("tbody tr").all()
    ]


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("name", list(PAGES)[:: -times(4, 1)])
def test_page_is_accessible(
    page: Page, client: httpx.Client, root: str, decided: int, name: str
) -> None:
    rounds = {"decided": decided, "abandoned": rounds_that_are(client, root, "abandoned")[0]}
    accepted = accepted_in(client, root, decided)[0]
    show(page, PAGES[name].format(run=run_address(root), root=root, client=accepted, **rounds))
    assert page.locator(".failure").count() == 0
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(VIOLATIONS, "color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(TOO_WIDE) <= 0


def test_the_deployments_are_those_of_rest(page: Page, client: httpx.Client, root: str) -> None:
    show(page, "#/")
    told = read(client, root)
    (row,) = rows(page, "Runs")
    assert row[0] == told["run"]
    assert row[1] == "finished"
    assert row[2] == f"{told['state']['round']} of {told['contract']['rounds']}"
    accuracy, attackers = row[3:5]
    rows_of_run = succeeds("runs", "list", "--api", str(client.base_url), "--json").json
    assert accuracy == shown_share(rows_of_run[0]["accuracy"])
    assert attackers == shown_share(rows_of_run[0]["accepted_attackers"])
    assert row[5:8] == [str(told["sizes"][name]) for name in ("clients", "trainers", "members")]
    assert page.locator("#places [aria-current=page]").inner_text() == "Runs"
    page.get_by_role("link", name=str(told["run"])).click()
    page.wait_for_selector(".tabs")
    assert page.title() == f"{told['run']} · CMFL ledger"
    page.go_back()
    page.wait_for_selector("h1:text-is('Runs')")


def shown_share(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{100 * value:.1f}%"


def test_a_run_tells_its_rounds(page: Page, client: httpx.Client, root: str) -> None:
    show(page, run_address(root))
    abandoned = rounds_that_are(client, root, "abandoned")
    assert figure(page, "decided") == str(len(rounds_that_are(client, root, "decided")))
    assert figure(page, "abandoned") == str(len(abandoned))
    told = read(client, f"{root}/rounds", limit=100, order="oldest")["rounds"]
    shown = rows(page, "Updates in each round")
    assert [row[0] for row in shown] == [str(one["round"]) for one in told]
    decided = [one for one in told if one["status"] == "decided"]
    assert [row[3] for row in shown if row[1] == "decided"] == [
        str(one["accepted"]) for one in decided
    ]
    late = [one["round"] for one in told if one["views"] is None or max(one["views"]) > 0]
    rough = rows(page, "Rounds with problems")
    assert sorted(int(row[0]) for row in rough) == late
    page.locator("svg.strip .cell").first.click()
    page.wait_for_selector("h1:has-text('Round ')")


def test_round_tells_ranking_and_votes(
    page: Page, client: httpx.Client, root: str, decided: int
) -> None:
    show(page, f"{run_address(root)}/rounds/{decided}")
    told = read(client, f"{root}/rounds/{decided}", full=True)
    assert figure(page, "accepted") == str(told["accepted"])
    ranked = sorted(
        (one for one in told["parts"]["updates"] if one["rank"] is not None),
        key=lambda one: one["rank"],
    )
    shown = [row for row in rows(page, "Ranking") if len(row) > 1]
    assert [row[1] for row in shown] == [f"client {one['client']}" for one in ranked]
    assert [float(row[2]) for row in shown] == pytest.approx(
        [one["distance"] for one in ranked], rel=1e-3
    )
    elected = {one["client"] for one in told["parts"]["next_committee"]}
    assert {row[1] for row in shown if "elected" in row[4]} == {f"client {one}" for one in elected}
    below = any(one["distance"] < 2 for one in ranked)
    drawn = "".join(page.locator("tr.across").all_inner_texts())
    assert ("at a distance of 2" in drawn) == below
    signed = sum("signed" in cell for row in rows(page, "Committee and votes") for cell in row[3:])
    certificates = told["parts"]["votes"]["certificates"]
    assert signed == sum(1 + len(one["replies"]) for one in certificates)
    scores = read(client, f"{root}/rounds/{decided}/scores", include="vectors")["claims"]
    assert page.locator("svg.heat[role=img] rect").count() == sum(len(ranked) for _ in scores)


def test_proof_tells_whether_used(
    page: Page, client: httpx.Client, root: str, decided: int
) -> None:
    told = read(client, f"{root}/rounds/{decided}/aggregation")
    best = told["accepted"][0]
    show(page, f"{run_address(root)}/rounds/{decided}")
    page.get_by_role("link", name=f"Proof for client {best['client']}", exact=True).click()
    page.wait_for_selector(".answer")
    assert f"Yes: client {best['client']}'s update was used" in page.inner_text(".answer")
    assert f"{100 * best['weight']['value']:.1f}%" in page.inner_text(".answer")
    assert page.locator(".verdict.bad").count() == 0
    updates = read(client, f"{root}/rounds/{decided}/updates")["updates"]
    taking = {one["client"] for one in updates}
    committee = read(client, f"{root}/rounds/{decided}/committee")["committee"]
    serving = {one["client"] for one in committee}
    idle = next(number for number in range(14) if number not in taking | serving)
    show(page, f"{run_address(root)}/rounds/{decided}/clients/{idle}")
    assert "neither sampled nor on the committee" in page.inner_text(".answer")


def test_a_client_tells_all_it_did(page: Page, client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/clients", limit=100)["clients"]
    liar = max(told, key=lambda one: int(one["refused"]))
    assert liar["refused"] > 0
    show(page, f"{run_address(root)}/clients")
    shown = rows(page, "Activity of each client")
    assert [row[3:13] for row in shown] == [[str(one[name]) for name in COUNTS] for one in told]
    page.get_by_role("link", name=str(liar["client"]), exact=True).click()
    page.wait_for_selector("h1:has-text('Client ')")
    assert figure(page, "scores refused") == str(liar["refused"])
    entries = read(client, f"{root}/clients/{liar['client']}/rounds", limit=100)["rounds"]
    assert [row[0] for row in rows(page, "Round by round")] == [
        str(one["round"]) for one in entries
    ]


COUNTS = (
    *("sampled", "ranked", "accepted", "dropped_out", "served"),
    *("scored", "refused", "voted", "primary", "incidents"),
)


def test_search_finds_what_there_is(
    page: Page, client: httpx.Client, root: str, decided: int
) -> None:
    one = read(client, f"{root}/clients/3")["client"]
    told = read(client, f"{root}/rounds/{decided}", full=True)
    for text, hits in (
        (str(decided), [f"round {decided}", f"client {decided}"]),
        (f"round {decided}", [f"round {decided}"]),
        (one["address"].lower(), ["client 3"]),
        (told["ended"]["transaction"], [f"transaction of round {decided}"]),
        (told["head"].removeprefix("0x"), [f"head of round {decided}"]),
        ("nobody", []),
    ):
        show(page, "#/words")
        page.fill("#query", text)
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Search')")
        found = page.locator(".hits li a").all_inner_texts()
        assert found == hits or text.removeprefix("0x") in told["head"]


# A page that is open while a run goes on shows what has come, and keeps its reader's place.


@contextmanager
def playing(home: Path) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Play a run of two rounds; tell when the first has ended, and wait for leave to go on."""
    first, leave = threading.Event(), threading.Event()

    def pause(_: object) -> None:
        first.set()
        leave.wait(PATIENCE_SECONDS)

    def play() -> None:
        with (
            EmbeddedChain.create(home / "chain.sqlite") as chain,
            open_run(
                home,
                "live",
                load("smoke", settings=("protocol.rounds=2",)),
                chain,
                FolderBlobs(home / "blobs"),
            ) as run,
        ):
            run.go_on(pause)

    home.mkdir()
    player = threading.Thread(target=play)
    player.start()
    try:
        yield first, leave
    finally:
        leave.set()
        player.join()


def test_a_page_follows_a_run_that_goes_on(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with playing(home) as (first, leave), serving(Settings(home=home)) as client:
        assert first.wait(PATIENCE_SECONDS)
        (deployment,) = deployments(client)
        root = str(deployment["links"]["self"])
        with browser.new_context(base_url=str(client.base_url)) as context:
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            page.goto(f"/dashboard/{run_address(root)}")
            settled(page)
            assert page.locator(".badge.stage-open").count() == 1
            page.locator("#more-updates summary").click()
            leave.set()
            page.wait_for_selector(".badge.stage-finished", timeout=1_000 * PATIENCE_SECONDS)
            assert read(client, root)["state"]["stage"] == "finished"
            rows = page.locator("#more-updates[open] tbody tr")
            assert [row.locator("td").first.inner_text() for row in rows.all()] == [
                "decided",
                "decided",
            ]
            assert page.locator("#said").inner_text()


# The dashboard behind a proxy that serves it below a path, and the REST reference.


ROOT = "/audit/ledger"


def test_every_view_works_below_a_path(browser: Browser, home: Path) -> None:
    with serving(Settings(home=home, root_path=ROOT)) as service, proxied(service, ROOT) as url:
        chain_link = read(service, "/v1/chains")["chains"][0]["links"]["deployments"]
        listed = read(service, chain_link.removeprefix(ROOT))["deployments"]
        link = listed[0]["links"]["self"]
        _, chain, address = link.removeprefix(f"{ROOT}/v1/").replace("/deployments", "").split("/")
        run = f"#/runs/{chain}/{address}"
        with browser.new_context(reduced_motion="reduce") as context:
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            asked: list[str] = []
            faults: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("response", lambda one: faults.extend([one.url] * (one.status >= 400)))
            page.goto(f"{url}/")
            settled(page)
            assert page.url == f"{url}/dashboard/"
            views = ["", "/rounds", "/rounds/1", "/clients", "/clients/1", "/verification"]
            compared = f"#/compare?left={link}&right={link}"
            for view in (*(run + each for each in views), compared, "#/search?q=7"):
                page.goto(f"{url}/dashboard/{view}")
                settled(page)
            page.goto(f"{url}/dashboard/{compared}")
            settled(page)
            assert page.locator("main table").count() > 0
            page.goto(f"{url}/dashboard/#/")
            settled(page)
            page.locator(f'main a[href="{run}"]').first.click()
            settled(page)
            assert page.url.endswith(run)
            page.goto(f"{url}/docs")
            page.wait_for_selector(".opblock")
            assert faults == []
            assert [one for one in asked if not one.startswith((f"{url}/", "data:"))] == []
            assert any(f"{ROOT}/v1/chains/" in one for one in asked)
