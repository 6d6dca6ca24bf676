"""The verification page: what the audit found, as it finds it, in no colour that says more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.settings import Settings
from tests.api.conftest import root_of, serving
from tests.api.web.conftest import run_address, settled, show
from tests.api.web.test_hostile_records import HOSTILE, IMAGE, answering, unharmed
from tests.api.web.test_views import TOO_WIDE, rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


pytestmark = pytest.mark.xdist_group("web")

TOKEN = "a-token-that-this-test-has-made-up"


def steps(page: Page) -> list[str | None]:
    return [row.get_attribute("data-outcome") for row in page.locator("[data-step]").all()]


def test_page_shows_liar(
    page: Page, client: httpx.Client, root: str, verified: dict[str, Any]
) -> None:
    report = client.get(verified["links"]["report"]).json()
    show(page, f"{run_address(root)}/verification?name={verified['verification']}")
    verdict = page.locator(".verdict[data-state]")
    assert verdict.get_attribute("data-outcome") == report["outcome"] == "passed"
    assert f"all ten steps hold for all {report['rounds']} rounds" in verdict.inner_text()
    assert steps(page) == [step["outcome"] for step in report["steps"]]
    shown = rows(page, "Misbehaviour and missing")
    lies = [one for one in report["findings"] if one["kind"] == "false scores"]
    assert lies
    for lie in lies:
        told = [str(lie["round"]), str(lie["clients"][0]), "false scores", lie["sentence"]]
        assert any(row[:4] == told and row[4] == "proven" for row in shown)
    (liar,) = {lie["clients"][0] for lie in lies}
    assert f"client {liar}: false scores in round" in page.locator("#caught").inner_text()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download the report").click()
    assert json.loads(saved.value.path().read_text()) == report


@pytest.mark.parametrize("outcome", ["failed", "incomplete"])
def test_only_a_pass_is_green_and_only_a_failure_red(
    page: Page, client: httpx.Client, root: str, verified: dict[str, Any], outcome: str
) -> None:
    report = client.get(verified["links"]["report"]).json()
    failing = outcome == "failed"
    step = {"failed": "failed", "incomplete": "not checkable"}[outcome]
    report["steps"][5] |= {
        "outcome": step,
        "contradiction": {"sentence": IMAGE} if failing else None,
        "contradictions": int(failing),
        "missing": [] if failing else [{"sentence": text} for text in HOSTILE],
        "missing_count": 0 if failing else len(HOSTILE),
    }
    report["findings"][0] |= {"sentence": HOSTILE[5], "kind": HOSTILE[3], "evidence": [HOSTILE[2]]}
    if failing:
        report["steps"][5]["contradiction"]["clients"] = [5]
    told = verified | {"outcome": outcome}
    listed = {"verifications": [told], "permission": "granted"}
    answering(page, f"**{root}/verifications", listed)
    answering(page, "**/report", report)
    show(page, f"{run_address(root)}/verification")
    verdict = page.locator(".verdict[data-state]")
    assert verdict.get_attribute("class") == f"verdict {'bad' if failing else 'open'}"
    assert page.locator(".verdict.good").count() == 0
    assert page.locator(".verdict.bad").count() == int(failing)
    row = page.locator("[data-step='6']")
    assert row.get_attribute("class") == f"check {'differs' if failing else 'open'}"
    assert IMAGE in row.inner_text()
    if failing:
        assert "Contradictions involve 1 client: 5." in page.locator("main").inner_text()
    unharmed(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(TOO_WIDE) <= 0


def test_a_page_asks_its_reader_for_the_token(browser: Browser, home: Path) -> None:
    with (
        serving(Settings(home=home, tokens=(TOKEN,))) as client,
        browser.new_context(base_url=str(client.base_url)) as context,
    ):
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        (deployment,) = client.get("/v1/status").json()["deployments"]
        root = root_of(client, deployment["address"])
        page = context.new_page()
        page.goto(f"/dashboard/{run_address(root)}/verification")
        settled(page)
        assert page.locator("[role=alert] h1").inner_text() == "A token is needed"
        page.fill("#token", "another-token")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Forget the current token").wait_for()
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Verify").wait_for()
        assert TOKEN not in page.content()
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"


def test_file_is_compared_with_its_name(page: Page, client: httpx.Client, root: str) -> None:
    model = (
        client.get(f"{root}/rounds/9").json()["model"] or client.get(root).json()["state"]["model"]
    )
    decided = client.get(f"{root}/rounds?status=decided").json()["rounds"][0]["round"]
    show(page, f"{run_address(root)}/rounds/{decided}")
    button = page.get_by_role("button", name=f"Download and check model {model[:10]}")
    with page.expect_download() as saved:
        button.click()
    assert saved.value.path().read_bytes() == client.get(f"/v1/blobs/{model[2:]}").content
    page.get_by_text("✓ sha256 matches").wait_for()
    page.route("**/v1/blobs/*", lambda route: route.fulfill(status=200, body="another"))
    button.click()
    page.get_by_text("✗ wrong sha256").wait_for()
