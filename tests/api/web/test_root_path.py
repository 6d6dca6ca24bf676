"""The dashboard behind a proxy that serves it below a path, and the REST reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.settings import Settings
from tests.api.conftest import read, serving
from tests.api.proxying import proxied
from tests.api.web.conftest import WAIT_MS, settled

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.xdist_group("web")

ROOT = "/audit/ledger"


def test_every_view_works_below_a_path(browser: Browser, home: Path) -> None:
    with serving(Settings(home=home, root_path=ROOT)) as service, proxied(service, ROOT) as url:
        chain_link = read(service, "/v1/chains")["chains"][0]["links"]["deployments"]
        listed = read(service, chain_link.removeprefix(ROOT))["deployments"]
        link = listed[0]["links"]["self"]
        _, chain, address = link.removeprefix(f"{ROOT}/v1/").replace("/deployments", "").split("/")
        run = f"#/runs/{chain}/{address}"
        with browser.new_context() as context:
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


def test_the_reference_shows_every_operation(page: Page, client: httpx.Client) -> None:
    page.goto("/docs")
    page.wait_for_selector(".opblock")
    document = client.get("/openapi.json").json()
    operations = sum(len(path) for path in document["paths"].values())
    assert page.locator(".opblock").count() == operations
    page.get_by_text("Rounds, page by page", exact=True).click()
    page.wait_for_selector(".opblock-body .response")
    assert page.locator(".try-out").count() == 0
