"""What others have written is text: it is shown, and never obeyed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.conftest import read
from tests.api.web.conftest import run_address, show

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.xdist_group("web")

IMAGE = '<img src=x onerror="window.harmed = 1"><script>window.harmed = 1</script>'
HOSTILE = (
    IMAGE,
    "[/x][bold]not markup[/]",
    "\x1b[31mred\x1b[0m\x07",
    "safe \u202etxt.exe\u2066 \u200bhidden",
    "javascript:window.harmed=1",
    "long " * 4_000,
)


def answering(page: Page, pattern: str, told: Any) -> None:
    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=json.dumps(told))

    page.route(pattern, answer)


def unharmed(page: Page) -> None:
    assert page.evaluate("window.harmed") is None
    assert page.locator("main img, main script, main iframe").count() == 0
    shown = page.locator("body").inner_text()
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2066", "\u200b"}
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) <= 0


def test_sentences_are_shown_as_they_are(page: Page, client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/rounds/2/explanation")
    answering(page, "**/rounds/2/explanation", told | {"sentences": HOSTILE})
    show(page, f"{run_address(root)}/rounds/2")
    lines = page.locator("ol.sentences li").all_inner_texts()
    assert lines[:2] == [IMAGE, "[/x][bold]not markup[/]"]
    assert lines[2] == "⟨U+001B⟩[31mred⟨U+001B⟩[0m⟨U+0007⟩"
    assert lines[3] == "safe ⟨U+202E⟩txt.exe⟨U+2066⟩ ⟨U+200B⟩hidden"
    assert lines[5].endswith("… (20000 characters)") or len(lines[5]) < 1_100
    unharmed(page)


@pytest.mark.parametrize("name", ["".join(HOSTILE[:5]), HOSTILE[5]], ids=["hostile", "long"])
def test_run_name_is_text_everywhere(
    page: Page, client: httpx.Client, root: str, name: str
) -> None:
    deployment, status = read(client, root), read(client, "/v1/status")
    status["deployments"][0]["run"] = name
    status["refused"] = [{"manifest": name, "reason": name}]
    listed = read(client, root.rpartition("/")[0])
    listed["deployments"][0]["run"] = name
    answering(page, f"**{root}", deployment | {"run": name})
    answering(page, "**/v1/status", status)
    answering(page, f"**{root.rpartition('/')[0]}", listed)
    for address in ("#/", run_address(root), f"#/compare?left={root}&right={root}"):
        show(page, address)
        assert name[:4].strip("\x1b\x07") in page.locator("main").inner_text()
        unharmed(page)


def test_a_problems_words_and_a_searched_text_are_text(page: Page, root: str) -> None:
    def refuse(route: Route) -> None:
        body = json.dumps({"title": IMAGE, "detail": HOSTILE[3], "status": 503})
        route.fulfill(status=503, content_type="application/problem+json", body=body)

    page.route(f"**{root}/clients*", refuse)
    show(page, f"{run_address(root)}/clients")
    assert page.locator("[role=alert] h1").inner_text() == IMAGE
    unharmed(page)
    show(page, "#/search?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%E2%80%AEx")
    assert "<img src=x onerror=alert(1)>⟨U+202E⟩x" in page.locator("main").inner_text()
    unharmed(page)
