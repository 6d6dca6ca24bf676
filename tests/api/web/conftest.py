"""The dashboard in a real browser, over a real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser, BrowserContext, Page

# Debian's chromium-headless-shell is the same engine without windows: where it is installed, these
# tests take a third less.
BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
WAIT_MS = 1_000 * PATIENCE_SECONDS


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it; ended with these modules, and its event loop with it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    own = os.environ.get("CMFL_CHROMIUM")
    places = (own,) if own else BROWSERS
    found = next((place for place in places if Path(place).exists()), None)
    if found is None:
        pytest.skip(f"there is no browser at {' or '.join(places)}; CMFL_CHROMIUM names another")
    with sync_api.sync_playwright() as playwright:
        # Pages come from a server of this process alone, so the browser needs no sandbox here, nor
        # a process for each page.
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--process-per-site"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: Browser, client: httpx.Client) -> Iterator[BrowserContext]:
    """One browser's memory for a module: what never changes is asked for once."""
    with browser.new_context(base_url=str(client.base_url), reduced_motion="reduce") as context:
        context.set_default_timeout(WAIT_MS)
        # While one page is open, the next ones have its process and its scripts as compiled: to
        # open a view takes half as long.
        context.new_page().goto("/dashboard/icon.svg")
        yield context


@pytest.fixture
def page(context: BrowserContext, client: httpx.Client) -> Iterator[Page]:
    """A page whose scripts must not fail, and that may load nothing from elsewhere."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: _note(faults, message.type, message.text))
    page.on("request", lambda request: _note_foreign(faults, request.url, str(client.base_url)))
    yield page
    page.close()
    assert faults == []


def _note(faults: list[str], kind: str, text: str) -> None:
    # What a page says to the reader's face is for the tests to look for.
    told = text.startswith(("Failed to load resource", "This page cannot be shown"))
    if kind in {"error", "warning"} and not told:
        faults.append(text)


def _note_foreign(faults: list[str], url: str, own: str) -> None:
    if not url.startswith((own, "data:")):
        faults.append(f"asked for {url}")


def run_address(root: str) -> str:
    _, _, _, chain, _, address = root.split("/")
    return f"#/runs/{chain}/{address}"


def show(page: Page, address: str) -> None:
    """Open a view and wait until it is there."""
    page.goto(f"/dashboard/{address}")
    settled(page)


def settled(page: Page) -> None:
    """Wait until what the address names is shown."""
    page.wait_for_selector("main:not([aria-busy]) h1")
